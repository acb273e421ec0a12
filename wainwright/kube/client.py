"""A thin Kubernetes client: raw bytes over pooled connections, decoded straight into our structs.

Typed models cost 24 to 39 times as much on lists of pods; the official client is used for dynamic credentials only
(`wainwright.kube.config`). Every call ends by its own time-out; nothing is retried behind the caller's back except a
read that hit a connection the server had just closed.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar
from urllib.parse import urlencode

import msgspec
import urllib3

from wainwright.clock import Clock, SystemClock
from wainwright.errors import AlreadyExists, Conflict, Expired, KubeError, KubeUnavailable, NotFound, Refused
from wainwright.kube.config import KubeConfig
from wainwright.kube.resources import PODS, Resource

T = TypeVar("T")
Body = Mapping[str, Any] | msgspec.Struct

CALL_TIMEOUT_SECONDS = 3.0
LIST_TIMEOUT_SECONDS = 30.0
WATCH_SECONDS = 10
"""A watch is asked to end after this long, so that progress is known in a quiet cluster too."""
SILENCE_SECONDS = 15.0
"""A watch from which nothing came for this long is cut: the server's own time-out has passed then."""
LIST_PAGE = 1000

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class Undecodable(NamedTuple):
    """One object that our structs cannot hold. key: `namespace/name` or `name`; uid may be empty; why: for people;
    raw: the object's JSON.
    """

    resource: Resource
    key: str
    uid: str
    resource_version: str
    why: str
    raw: bytes


class WatchEvent(NamedTuple, Generic[T]):
    """type: ADDED, MODIFIED, DELETED or BOOKMARK. object: None for a bookmark and for what could not be decoded."""

    type: str
    object: T | None
    resource_version: str
    undecodable: Undecodable | None = None


class Page(NamedTuple):
    """Part of a list; resource_version is the same on each of them."""

    items: builtins.list[Any]
    resource_version: str
    undecodable: builtins.list[Undecodable]


class _Meta(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Envelope(msgspec.Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _List(msgspec.Struct, gc=False):
    items: builtins.list[msgspec.Raw] | None = None
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _Cause(msgspec.Struct, rename="camel"):
    reason: str = ""


class _Details(msgspec.Struct, rename="camel"):
    causes: builtins.list[_Cause] | None = None
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct, rename="camel"):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_LISTS = msgspec.json.Decoder(_List)
_EVENTS = msgspec.json.Decoder(_Event)
_ENVELOPES = msgspec.json.Decoder(_Envelope)
_STATUSES = msgspec.json.Decoder(_Status)


def decoded(resource: Resource, decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T | Undecodable:
    """The object, or what is known of it when our structs cannot hold it (a string where a number belongs, ...)."""
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        try:
            meta = _ENVELOPES.decode(raw).metadata
        except (msgspec.MsgspecError, UnicodeDecodeError):
            meta = _Meta()
        key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        return Undecodable(resource, key, meta.uid, meta.resource_version, str(error), bytes(raw))


def refusal(status: int, body: bytes, what: str) -> KubeError | KubeUnavailable:
    """The error for an answer of 400 or more."""
    try:
        answer = _STATUSES.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        answer = _Status(message=body[:200].decode("utf-8", "replace"))
    message = f"{what}: {status} {answer.reason} {answer.message}".rstrip()
    details = answer.details or _Details()
    causes = {cause.reason for cause in details.causes or ()}
    if status == 429 and "DisruptionBudget" in causes:
        return Refused(message, status=status, reason=answer.reason)
    if "ResourceVersionTooLarge" in causes:
        # The server's history went back (restored from a backup): as with one that is too old, list anew.
        return Expired(message, status=status, reason=answer.reason)
    if status >= 500 or status in (408, 429):
        return KubeUnavailable(message, retry_after=details.retry_after_seconds)
    if status == 404:
        return NotFound(message, status=status, reason=answer.reason)
    if status == 409:
        kind = AlreadyExists if answer.reason == "AlreadyExists" else Conflict
        return kind(message, status=status, reason=answer.reason)
    if status == 410:
        return Expired(message, status=status, reason=answer.reason)
    return KubeError(message, status=status, reason=answer.reason)


class KubeClient:
    """One API server. Thread-safe; make it after forking. call_timeout: seconds for everything but lists and watches.

    Raises NotFound, AlreadyExists, Conflict, Expired, Refused (eviction against a disruption budget), KubeError (any
    other refusal) and KubeUnavailable (time-out, 5xx, 429, no connection): wainwright.errors.
    """

    def __init__(
        self,
        config: KubeConfig,
        *,
        call_timeout: float = CALL_TIMEOUT_SECONDS,
        list_timeout: float = LIST_TIMEOUT_SECONDS,
        connections: int = 32,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self._call_timeout = call_timeout
        self._list_timeout = list_timeout
        self._clock = clock or SystemClock()
        options: dict[str, Any] = {"maxsize": connections, "block": False, "retries": False}
        context = config.ssl_context()
        if context is not None:
            options["ssl_context"] = context
            if config.tls_server_name:
                options["server_hostname"] = options["assert_hostname"] = config.tls_server_name
        self._pool: urllib3.PoolManager = (
            urllib3.ProxyManager(config.proxy_url, **options) if config.proxy_url else urllib3.PoolManager(**options)
        )

    # Reads ---------------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, name: str, namespace: str = "", *, as_type: type[T]) -> T:
        """One object. Raises NotFound; KubeError(reason Undecodable) when as_type cannot hold it."""
        raw = self.request("GET", resource.path(namespace, name))
        found = decoded(resource, msgspec.json.Decoder(as_type), raw)
        if isinstance(found, Undecodable):
            raise KubeError(f"{resource.plural} {name}: {found.why}", status=200, reason="Undecodable")
        return found

    def list(
        self,
        resource: Resource,
        as_type: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = LIST_PAGE,
        on_undecodable: Callable[[Undecodable], None] | None = None,
    ) -> tuple[builtins.list[T], str]:
        """All objects, consistent as of the resourceVersion that comes with them. limit: objects a request.

        One object that as_type cannot hold does not spoil the list: it is left out and told to on_undecodable.
        """
        items: builtins.list[T] = []
        version = ""
        for page in self.pages(
            resource,
            as_type,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
        ):
            items += page.items
            version = page.resource_version
            if on_undecodable is not None:
                for bad in page.undecodable:
                    on_undecodable(bad)
        return items, version

    def pages(
        self,
        resource: Resource,
        as_type: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = LIST_PAGE,
    ) -> Iterator[Page]:
        """The same, page by page. Raises Expired when the list took longer than the server keeps its state."""
        decoder = msgspec.json.Decoder(as_type)
        query = {"limit": str(limit), "labelSelector": label_selector, "fieldSelector": field_selector, "continue": ""}
        first_version = ""
        while True:
            raw = self.request("GET", resource.path(namespace), query=query, timeout=self._list_timeout)
            try:
                listing = _LISTS.decode(raw)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise KubeUnavailable(f"list of {resource.plural} is broken: {error}") from error
            first_version = first_version or listing.metadata.resource_version
            page = Page([], first_version, [])
            for item in listing.items or ():
                one = decoded(resource, decoder, item)
                if isinstance(one, Undecodable):
                    page.undecodable.append(one)
                else:
                    page.items.append(one)
            yield page
            query["continue"] = listing.metadata.continue_
            if not query["continue"]:
                return

    def watch(
        self,
        resource: Resource,
        as_type: type[T],
        resource_version: str,
        *,
        timeout_seconds: int = WATCH_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> Watch[T]:
        """Changes after resource_version, until the server ends the watch (after timeout_seconds)."""
        query = {
            "watch": "1",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_seconds),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        what = f"watch of {resource.plural}"

        def open_() -> urllib3.BaseHTTPResponse:
            response = self._open("GET", resource.path(namespace), query, None, {}, silence_seconds, what)
            if response.status >= 400:
                if response.status == 401:
                    self.config.refresh()
                raise refusal(response.status, self._body(response, what, silence_seconds), what)
            return response

        return Watch(resource, as_type, open_, what)

    # Writes --------------------------------------------------------------------------------------------------------

    def create(self, resource: Resource, body: Body, namespace: str = "", subresource: str = "") -> dict[str, Any]:
        """The object as stored. namespace: where the body does not say it. Raises AlreadyExists."""
        content = _with_type(resource, body)
        meta = content.get("metadata") or {}
        namespace = namespace or meta.get("namespace", "")
        name = meta.get("name", "") if subresource else ""
        return self._write("POST", resource.path(namespace, name, subresource), content)

    def update(self, resource: Resource, body: Body, subresource: str = "") -> dict[str, Any]:
        """Replaces the object named in the body's metadata. Raises Conflict when its resourceVersion is not current."""
        content = _with_type(resource, body)
        meta = content["metadata"]
        return self._write("PUT", resource.path(meta.get("namespace", ""), meta["name"], subresource), content)

    def merge_patch(
        self, resource: Resource, name: str, body: Mapping[str, Any], namespace: str = "", subresource: str = ""
    ) -> dict[str, Any]:
        """Sets what the body names (None removes, lists are replaced). With metadata.resourceVersion or metadata.uid
        in it, raises Conflict when the object is another version or another object.
        """
        return self._write("PATCH", resource.path(namespace, name, subresource), body, MERGE_PATCH)

    def json_patch(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        namespace: str = "",
        subresource: str = "",
    ) -> dict[str, Any]:
        """RFC 6902. Raises KubeError(status 422) when a `test` operation fails."""
        return self._write("PATCH", resource.path(namespace, name, subresource), operations, JSON_PATCH)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: str = "",
    ) -> dict[str, Any]:
        """Marks it for deletion, or removes it when nothing holds it. Raises Conflict when uid or resource_version
        (preconditions, where given) are not those of the object.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        conditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}
        if conditions:
            options["preconditions"] = conditions
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        return self._write("DELETE", resource.path(namespace, name), options)

    def bind(self, namespace: str, name: str, pod_uid: str, node: str) -> None:
        """Binds a pod to a node. Raises Conflict when it is bound already, being deleted, or another pod by now."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": pod_uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._write("POST", PODS.path(namespace, name, "binding"), body)

    def evict(self, namespace: str, name: str, uid: str, grace_seconds: int | None = None) -> None:
        """Asks the pod to leave. Raises Refused when a disruption budget holds it, NotFound when it is gone."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        self._write("POST", PODS.path(namespace, name, "eviction"), body)

    def discover(self, group: str, kind: str) -> Resource | None:
        """How the server serves a kind of a group (its preferred version); None where it does not."""
        try:
            answer = msgspec.json.decode(self.request("GET", f"/apis/{group}"))
            version = answer["preferredVersion"]["version"]
            served = msgspec.json.decode(self.request("GET", f"/apis/{group}/{version}"))
        except NotFound:
            return None
        for entry in served["resources"]:
            if entry["kind"] == kind and "/" not in entry["name"]:
                return Resource(group, version, entry["name"], kind, bool(entry["namespaced"]))
        return None

    def close(self) -> None:
        self._pool.clear()

    # Transport -----------------------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> bytes:
        """One call, ended by timeout seconds (default: the client's); the answer's body. Raises as the class says."""
        limit = timeout or self._call_timeout
        what = f"{method} {path}"
        headers = {"Content-Type": content_type} if body is not None else {}
        deadline = self._clock.monotonic_seconds() + limit
        for again in (True, False):
            try:
                response = self._open(method, path, query or {}, body, headers, limit, what)
            except _Dropped:
                # The server closed an idle connection just as we used it: a read may simply be repeated.
                if again and method == "GET":
                    continue
                raise
            data = self._body(response, what, max(0.1, deadline - self._clock.monotonic_seconds()))
            if response.status < 400:
                return data
            if response.status == 401 and again and self.config.refresh():
                continue
            raise refusal(response.status, data, what)
        raise AssertionError("the second attempt answers or raises")

    def _write(
        self, method: str, path: str, body: Mapping[str, Any] | Sequence[Any], content_type: str = "application/json"
    ) -> dict[str, Any]:
        answer = self.request(method, path, body=msgspec.json.encode(body), content_type=content_type)
        decoded_answer: dict[str, Any] = msgspec.json.decode(answer) if answer else {}
        return decoded_answer

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float,
        what: str,
    ) -> urllib3.BaseHTTPResponse:
        given = urlencode({k: v for k, v in query.items() if v})
        url = f"{self.config.server}{path}" + (f"?{given}" if given else "")
        try:
            return self._pool.request(
                method,
                url,
                body=body,
                headers={"Accept": "application/json", "User-Agent": "wainwright", **self.config.headers(), **headers},
                timeout=urllib3.Timeout(connect=min(timeout, CALL_TIMEOUT_SECONDS), read=timeout),
                preload_content=False,
                redirect=False,
            )
        except urllib3.exceptions.ProtocolError as error:
            raise _Dropped(f"{what}: {error}") from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeUnavailable(f"{what}: {error}") from error

    def _body(self, response: urllib3.BaseHTTPResponse, what: str, limit: float) -> bytes:
        """The whole body, read before limit seconds are over, however slowly it drips."""
        deadline = self._clock.monotonic_seconds() + limit
        chunks: builtins.list[bytes] = []
        try:
            while chunk := response.read1(1 << 18):
                chunks.append(chunk)
                if self._clock.monotonic_seconds() > deadline:
                    _give_up(response, f"{what}: the answer did not end in time")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            response.close()
            raise KubeUnavailable(f"{what}: {error}") from error
        response.release_conn()
        return b"".join(chunks)


class Watch(Generic[T]):
    """The events of one watch, to be iterated over once.

    Raises KubeUnavailable when the connection broke or was silent for too long, Expired when the resourceVersion is too
    old, KubeError when the server refuses.
    """

    def __init__(
        self, resource: Resource, as_type: type[T], open_: Callable[[], urllib3.BaseHTTPResponse], what: str
    ) -> None:
        self._resource = resource
        self._decoder = msgspec.json.Decoder(as_type)
        self._open = open_
        self._what = what
        self._response: urllib3.BaseHTTPResponse | None = None
        self._stopped = False

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        response = self._response = self._open()
        ended = False
        try:
            for line in _lines(response, self._what):
                if self._stopped:
                    return
                yield _event(self._resource, self._decoder, line, self._what)
            ended = True
        except KubeUnavailable:
            if not self._stopped:
                raise
        finally:
            if ended and not self._stopped:
                response.release_conn()
            else:
                response.close()

    def stop(self) -> None:
        """Ends it from another thread, at once: the iteration ends without an error."""
        self._stopped = True
        response = self._response
        if isinstance(response, urllib3.HTTPResponse):
            # ValueError: it has ended by itself just now.
            with contextlib.suppress(ValueError, OSError, RuntimeError):
                response.shutdown()


class _Dropped(KubeUnavailable):
    """The connection broke before an answer came."""


def _give_up(response: urllib3.BaseHTTPResponse, message: str) -> NoReturn:
    response.close()
    raise KubeUnavailable(message)


def _lines(response: urllib3.BaseHTTPResponse, what: str) -> Iterator[bytes]:
    rest = b""
    try:
        while chunk := response.read1(1 << 16):
            rest += chunk
            if b"\n" not in chunk:
                continue
            *lines, rest = rest.split(b"\n")
            for line in lines:
                if line.strip():
                    yield line
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise KubeUnavailable(f"{what}: {error}") from error
    if rest.strip():
        yield rest


def _event(resource: Resource, decoder: msgspec.json.Decoder[T], line: bytes, what: str) -> WatchEvent[T]:
    try:
        event = _EVENTS.decode(line)
        if event.type == "ERROR":
            status = _STATUSES.decode(event.object)
            raise refusal(status.code or 500, bytes(event.object), what)
        envelope = _ENVELOPES.decode(event.object).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise KubeUnavailable(f"{what}: an event is broken: {error}") from error
    if event.type == "BOOKMARK":
        return WatchEvent(event.type, None, envelope.resource_version)
    one = decoded(resource, decoder, event.object)
    if isinstance(one, Undecodable):
        return WatchEvent(event.type, None, envelope.resource_version, one)
    return WatchEvent(event.type, one, envelope.resource_version)


def _with_type(resource: Resource, body: Body) -> dict[str, Any]:
    content = dict(body) if isinstance(body, Mapping) else msgspec.to_builtins(body)
    typed: dict[str, Any] = {"apiVersion": resource.api_version, "kind": resource.kind, **content}
    return typed
