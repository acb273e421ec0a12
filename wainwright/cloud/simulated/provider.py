"""The CloudProvider for the simulated cloud's service."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec
import urllib3
from urllib3.exceptions import HTTPError

from wainwright.api.names import ZONE_LABEL
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodepools import NodeClassReference, NodePool
from wainwright.clock import Clock, SystemClock
from wainwright.cloud.catalog import make_catalog
from wainwright.cloud.errors import CloudError, CloudUnavailable, InstanceNotFound, NodeClassNotReady
from wainwright.cloud.port import (
    CALL_TIMEOUT_SECONDS,
    CREATE_TIMEOUT_SECONDS,
    Instance,
    InstanceState,
    LaunchRequest,
    NodeClassKind,
    RepairPolicy,
)
from wainwright.cloud.simulated.node_class import NODE_CLASS_KIND, SimulatedNodeClass, SimulatedNodeClassSpec
from wainwright.cloud.simulated.wire import ErrorAnswer, InstanceList, LaunchCall, error_of
from wainwright.scheduling.instance_types import Catalog

NodeClassReader = Callable[[NodeClassReference], Mapping[str, object] | None]
"""The NodeClass object (as the API gives it) that a reference names, or None when there is none."""

_CONNECT_TIMEOUT_SECONDS: Final = 3.0
_CHUNK_BYTES: Final = 2**16
_RENEWAL_SECONDS: Final = 2.0
"""How long a solve that has a catalog may be held up by asking for a newer one."""
_Answer = TypeVar("_Answer")
logger = logging.getLogger(__name__)


class SimulatedTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: within which a call ends, and how long a catalog is believed before it is asked for again."""

    create: float = CREATE_TIMEOUT_SECONDS
    call: float = CALL_TIMEOUT_SECONDS
    catalog_age: float = 5.0


class SimulatedProvider:
    """Speaks to one simulated cloud for one cluster. See CloudProvider for the contract.

    url: of the service, or a callable that tells it anew for each call (a service that was restarted may have moved).
    node_class: reads SimulatedNodeClasses; without one, every SimulatedNodeClass is missing.
    """

    name: Final = "simulated"
    names_nodes: Final = True
    node_class_kinds: Final[frozenset[NodeClassKind]] = frozenset({NODE_CLASS_KIND})

    def __init__(
        self,
        url: str | Callable[[], str],
        *,
        node_class: NodeClassReader = lambda _reference: None,
        timeouts: SimulatedTimeouts = SimulatedTimeouts(),  # noqa: B008 - frozen
        clock: Clock = SystemClock(),  # noqa: B008 - has no state
        connections: int = 32,
    ) -> None:
        self._url = url if callable(url) else lambda: url
        self._node_class = node_class
        self._timeouts = timeouts
        self._clock = clock
        self._http = urllib3.PoolManager(num_pools=2, maxsize=connections, retries=False)
        self._lock = threading.Lock()
        self._catalog: Catalog | None = None
        self._catalog_asked_at = float("-inf")
        self._narrowed: dict[frozenset[str], Catalog] = {}
        """Catalogs for some zones only, made from `_catalog`."""

    def instance_types(self, node_pool: NodePool) -> Catalog:
        """See CloudProvider. A catalog once read is used on while the cloud cannot be reached."""
        spec = self._spec_of(node_pool.spec.template.spec.node_class_ref)
        with self._lock:
            whole = self._fresh_catalog()
            if not spec.zones:
                return whole
            zones = frozenset(spec.zones)
            if zones not in self._narrowed:
                self._narrowed[zones] = _only_in(zones, whole)
            return self._narrowed[zones]

    def _fresh_catalog(self) -> Catalog:
        known = self._catalog
        if known is None:
            _, body = self._call("GET", "/v1/catalog")
            catalog = _decode(body, Catalog)
        elif self._clock.monotonic_seconds() - self._catalog_asked_at < self._timeouts.catalog_age:
            return known
        else:
            catalog = self._renewed(known)
        self._catalog_asked_at = self._clock.monotonic_seconds()
        if catalog is not known:
            self._catalog = catalog
            self._narrowed = {}
        return catalog

    def _renewed(self, known: Catalog) -> Catalog:
        """What the service offers now; the known catalog where that is the same, or it does not say within a moment."""
        try:
            status, body = self._call(
                "GET",
                "/v1/catalog",
                headers={"If-None-Match": f'"{known.version}"'},
                seconds=min(_RENEWAL_SECONDS, self._timeouts.call),
            )
            return known if status == HTTPStatus.NOT_MODIFIED else _decode(body, Catalog)
        except CloudError as error:
            logger.warning("action=catalog_not_renewed version=%s error=%s", known.version, error)
            return known

    def create(self, request: LaunchRequest) -> Instance:
        """See CloudProvider."""
        spec = self._spec_of(request.node_class)
        body = msgspec.json.encode(LaunchCall(request=request, boot_seconds=spec.boot_seconds))
        _, answer = self._call("POST", "/v1/instances", body=body, seconds=self._timeouts.create)
        return _decode(answer, Instance)

    def find(self, token: str) -> Instance | None:
        """See CloudProvider."""
        try:
            _, body = self._call("GET", f"/v1/find?token={quote(token, safe='')}")
        except InstanceNotFound:
            return None
        return _decode(body, Instance)

    def get(self, provider_id: str) -> Instance:
        """See CloudProvider."""
        _, body = self._call("GET", f"/v1/instances/{_identity(provider_id)}")
        return _decode(body, Instance)

    def list(self, cluster: str) -> list[Instance]:
        """See CloudProvider."""
        _, body = self._call("GET", f"/v1/instances?cluster={quote(cluster, safe='')}")
        listed = _decode(body, InstanceList).instances
        return sorted(
            (instance for instance in listed if instance.state is not InstanceState.TERMINATED),
            key=lambda instance: instance.id,
        )

    def delete(self, provider_id: str) -> None:
        """See CloudProvider."""
        self._call("DELETE", f"/v1/instances/{_identity(provider_id)}")

    def is_drifted(self, node_claim: NodeClaim, node_pool: NodePool) -> str | None:
        """`NodeClassDrift` when the claim's zone is none of its NodeClass's any more."""
        spec = self._spec_of(node_pool.spec.template.spec.node_class_ref)
        zone = node_claim.metadata.labels.get(ZONE_LABEL)
        return "NodeClassDrift" if spec.zones and zone is not None and zone not in spec.zones else None

    def repair_policies(self) -> tuple[RepairPolicy, ...]:
        """A node that is not Ready, or unknown, for half an hour."""
        return tuple(
            RepairPolicy(condition_type="Ready", condition_status=status, toleration=timedelta(minutes=30))
            for status in ("False", "Unknown")
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.clear()

    def _spec_of(self, reference: NodeClassReference) -> SimulatedNodeClassSpec:
        """What the NodeClass asks for; nothing in particular for another provider's kind."""
        if NodeClassKind(reference.group, reference.kind) not in self.node_class_kinds:
            return SimulatedNodeClassSpec()
        raw = self._node_class(reference)
        if raw is None:
            raise NodeClassNotReady(f"there is no {reference.kind} {reference.name}; create it or name another one")
        try:
            node_class = msgspec.convert(raw, SimulatedNodeClass)
        except msgspec.ValidationError as error:
            raise NodeClassNotReady(f"{reference.kind} {reference.name}: {error}") from error
        if node_class.metadata.deletion_timestamp is not None:
            raise NodeClassNotReady(f"{reference.kind} {reference.name} is being deleted")
        return node_class.spec

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of an answer that is a success or 304. Raises what the answer tells, or CloudUnavailable."""
        limit = self._timeouts.call if seconds is None else seconds
        ends_at = self._clock.monotonic_seconds() + limit
        try:
            response = self._http.request(
                method,
                self._url().rstrip("/") + path,
                body=body,
                headers={"Content-Type": "application/json", **(headers or {})},
                timeout=urllib3.Timeout(connect=min(_CONNECT_TIMEOUT_SECONDS, limit), read=limit, total=limit),
                preload_content=False,
                redirect=False,
            )
            content = self._read(response, ends_at)
        except (HTTPError, OSError) as error:
            raise CloudUnavailable(f"{method} {path.partition('?')[0]}: {error}") from error
        if response.status < HTTPStatus.MULTIPLE_CHOICES or response.status == HTTPStatus.NOT_MODIFIED:
            return response.status, content
        raise error_of(_decode(content, ErrorAnswer))

    def _read(self, response: urllib3.BaseHTTPResponse, ends_at: float) -> bytes:
        """The whole body. Raises TimeoutError or HTTPError when it trickles past the end."""
        socket = getattr(response.connection, "sock", None)
        chunks = []
        try:
            while chunk := response.read1(_CHUNK_BYTES):
                chunks.append(chunk)
                left = ends_at - self._clock.monotonic_seconds()
                if socket is not None and socket.fileno() >= 0:
                    socket.settimeout(max(left, 0.001))
        except BaseException:
            response.close()
            raise
        response.release_conn()
        return b"".join(chunks)


def _only_in(zones: frozenset[str], catalog: Catalog) -> Catalog:
    """The catalog without offerings elsewhere, and without what is offered nowhere then."""
    narrowed = tuple(
        msgspec.structs.replace(machine, offerings=offerings)
        for machine in catalog.instance_types
        if (offerings := tuple(offering for offering in machine.offerings if offering.zone in zones))
    )
    return make_catalog(catalog.region, catalog.well_known, narrowed)


def _identity(provider_id: str) -> str:
    """The instance's id. Raises InstanceNotFound when the provider id is not one of ours."""
    scheme, _, rest = provider_id.partition(":///")
    identity = rest.rpartition("/")[2]
    if scheme != "simulated" or not identity:
        raise InstanceNotFound(f"{provider_id!r} is not an instance of the simulated cloud")
    return quote(identity, safe="")


def _decode(body: bytes, kind: type[_Answer]) -> _Answer:
    """Raises CloudUnavailable when the answer is not what it should be: what happened is then unknown."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise CloudUnavailable(f"the answer of the simulated cloud cannot be read: {error}") from error
