"""The API server as a function: a request and the time in, an answer or a watch out."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import msgspec

from wainwright.sim.apiserver import discovery
from wainwright.sim.apiserver.errors import (
    BODY_LIMIT_BYTES,
    ApiError,
    bad_request,
    invalid,
    invalid_object,
    method_not_allowed,
    not_found,
    required,
    too_large,
    unknown_path,
    unsupported_media_type,
)
from wainwright.sim.apiserver.kinds import REVIEWS, Kind, Object, Registry
from wainwright.sim.apiserver.ownership import Manager, apply
from wainwright.sim.apiserver.patches import json_patch, merge_patch, strategic_merge
from wainwright.sim.apiserver.reads import Reader, form_of, selection_of
from wainwright.sim.apiserver.requests import (
    JSON,
    Request,
    Response,
    WatchStream,
    answer,
    decode_document,
    decode_object,
    refusal,
    timestamp,
)
from wainwright.sim.apiserver.schemas import prune
from wainwright.sim.apiserver.shapes import shape_of
from wainwright.sim.apiserver.store import Record, Store
from wainwright.sim.apiserver.subresources import bind, evict, rescale, scale_of, success
from wainwright.sim.apiserver.types import conform, struct_of
from wainwright.sim.apiserver.writes import Writer

_FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_FIRST_PRIORITIES = (
    ("system-cluster-critical", 2_000_000_000, "Used for system critical pods that must run in the cluster."),
    ("system-node-critical", 2_000_001_000, "Used for system critical pods that must not be moved from their node."),
)
_PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a kind, and maybe a namespace, an object, a sub-resource of it."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class ApiServer:
    """All state of one cluster and the function `handle` over it. Not thread-safe: one caller at a time.

    ring_size: how many events of each resource watches can resume from. version: resource version to begin after.
    """

    def __init__(
        self,
        *,
        ring_size: int = 10_000,
        watch_limit_bytes: int = 8 * 1024 * 1024,
        version: int = 0,
        seed: int | None = None,
    ) -> None:
        self.registry = Registry()
        self.store = Store(ring_size=ring_size, version=version)
        self.reader = Reader(self.store, watch_limit_bytes=watch_limit_bytes)
        self.writer = Writer(self.store, self.registry, random.Random(seed))

    def bootstrap(self, now: datetime) -> None:
        """Create what every cluster has: namespaces and the two system priorities."""
        for name in _FIRST_NAMESPACES:
            self.writer.create(self.writer.builtin("", "namespaces"), "", {"metadata": {"name": name}}, now)
        priorities = self.writer.builtin("scheduling.k8s.io", "priorityclasses")
        for name, value, description in _FIRST_PRIORITIES:
            obj: Object = {"metadata": {"name": name}, "value": value, "description": description}
            self.writer.create(priorities, "", obj, now)

    def handle(self, request: Request, now: Callable[[], datetime]) -> Response | WatchStream:
        """now: read once per request, and again for each event of a watch that is shown as a Table."""
        try:
            return self._route(request, now)
        except ApiError as error:
            return refusal(error)
        except RecursionError:
            return refusal(bad_request("the object is nested too deeply"))

    # Paths --------------------------------------------------------------------------------------------------------

    def _route(self, request: Request, now: Callable[[], datetime]) -> Response | WatchStream:
        if len(request.body) > BODY_LIMIT_BYTES:
            raise too_large()
        parts = [unquote(part) for part in request.path.strip("/").split("/")]
        match parts:
            case ["api", "v1", _, *_]:
                return self._resource("", "v1", parts[2:], request, now)
            case ["apis", group, version, _, *_]:
                return self._resource(group, version, parts[3:], request, now)
            case _ if request.method != "GET":
                raise unknown_path()
            case _:
                return self._about(parts, request)

    def _about(self, parts: list[str], request: Request) -> Response:
        registry = self.registry
        found: Object | None = None
        match parts:
            case ["api"] | ["apis"]:
                core = parts == ["api"]
                if "g=apidiscovery.k8s.io;v=v2;" in request.headers.get("accept", "").replace(" ", ""):
                    response = answer(200, discovery.aggregated(registry, core=core))
                    response.content_type = discovery.AGGREGATED
                    return response
                found = discovery.versions_list() if core else discovery.group_list(registry)
            case ["api", "v1"]:
                found = discovery.resource_list(registry, "", "v1")
            case ["apis", group]:
                found = discovery.group(registry, group)
            case ["apis", group, version]:
                found = discovery.resource_list(registry, group, version)
            case ["version"]:
                found = discovery.VERSION
            case ["healthz" | "livez" | "readyz", *_]:
                return Response(200, b"ok", "text/plain; charset=utf-8")
            case ["openapi", "v3"]:
                found = discovery.openapi_index(registry)
            case ["openapi", "v3", "api", "v1"]:
                found = discovery.openapi_document(registry, "", "v1")
            case ["openapi", "v3", "apis", group, version]:
                found = discovery.openapi_document(registry, group, version)
            case _:
                pass
        if found is None:
            raise unknown_path()
        return answer(200, found)

    def _resource(
        self, group: str, version: str, parts: list[str], request: Request, now: Callable[[], datetime]
    ) -> Response | WatchStream:
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in ("status", "finalize"):
            namespace, parts = parts[1], parts[2:]
        if len(parts) > 3:
            raise unknown_path()
        plural, name, subresource = (*parts, "", "")[:3]
        kind = self.registry.find(group, version, plural)
        if kind is None:
            return self._unstored(group, version, namespace, plural, request, now())
        if namespace and not kind.namespaced:
            raise unknown_path()
        target = Target(kind, namespace, name, subresource)
        if not name:
            return self._on_collection(target, request, now)
        if kind.namespaced and not namespace:
            raise unknown_path()
        if subresource:
            return self._on_subresource(target, request, now())
        return self._on_object(target, request, now())

    def _unstored(
        self, group: str, version: str, namespace: str, plural: str, request: Request, now: datetime
    ) -> Response:
        if (group, plural) == ("", "bindings") and request.method == "POST":
            binding = _typed(decode_object(request), "core.Binding")
            name = str((binding.get("metadata") or {}).get("name") or "")
            pods = self.writer.builtin("", "pods")
            bind(self.writer, pods, namespace, name, binding, now, dry_run=request.dry_run)
            return answer(201, success())
        if any((r.group, r.version, r.plural) == (group, version, plural) for r in REVIEWS):
            if request.method != "POST":
                raise method_not_allowed()
            review = next(r.name for r in REVIEWS if (r.group, r.plural) == (group, plural))
            return answer(
                201, _reviewed({**decode_object(request), "kind": review, "apiVersion": f"{group}/{version}"})
            )
        raise unknown_path()

    # Collections --------------------------------------------------------------------------------------------------

    def _on_collection(self, target: Target, request: Request, now: Callable[[], datetime]) -> Response | WatchStream:
        match request.method:
            case "GET" if request.flag("watch"):
                return self.reader.watch(target.kind, target.namespace, request, now)
            case "GET":
                return self.reader.list_objects(target.kind, target.namespace, request, now())
            case "POST" if bool(target.namespace) == target.kind.namespaced:
                return self._create(target, request, now())
            case "DELETE" if bool(target.namespace) == target.kind.namespaced:
                return self._delete_collection(target, request, now())
            case _:
                raise method_not_allowed()

    def _create(self, target: Target, request: Request, now: datetime) -> Response:
        obj, unknown = self._received(target.kind, request)
        return self._created(target, obj, request, now, unknown)

    def _created(self, target: Target, obj: Object, request: Request, now: datetime, unknown: list[str]) -> Response:
        record, warnings = self.writer.create(target.kind, target.namespace, obj, now, dry_run=request.dry_run)
        return self._shown(201, target.kind, record, request, now, unknown + warnings)

    def _delete_collection(self, target: Target, request: Request, now: datetime) -> Response:
        options = _delete_options(request)
        selection = selection_of(target.kind, target.namespace, request)
        test = selection.test()
        collection = self.store.collection(target.kind)
        doomed = [r for r in collection.select(selection.namespace, selection.node) if test is None or test(r)]
        for record in doomed:
            self.writer.delete(target.kind, record, options, now, dry_run=request.dry_run)
        listed = {
            "kind": f"{target.kind.name}List",
            "apiVersion": target.kind.api_version,
            "metadata": {"resourceVersion": str(self.store.version)},
            "items": [msgspec.Raw(b"{" + record.tail) for record in doomed],
        }
        return answer(200, listed)

    # Single objects -----------------------------------------------------------------------------------------------

    def _on_object(self, target: Target, request: Request, now: datetime) -> Response:
        kind, namespace, name = target.kind, target.namespace, target.name
        match request.method:
            case "GET":
                found = self.reader.get(kind, namespace, name, request, now)
                if found is None:
                    raise not_found(kind, name)
                return found
            case "PUT":
                return self._put(target, request, now)
            case "PATCH":
                return self._patch(target, request, now)
            case "DELETE":
                record = self.writer.record(kind, namespace, name)
                options = _delete_options(request)
                left, gone = self.writer.delete(kind, record, options, now, dry_run=request.dry_run)
                if gone and not kind.returns_deleted:
                    return answer(200, success(kind, left))
                status = 202 if not gone and options.get("orphanDependents") is False else 200
                return self._shown(status, kind, left, request, now)
            case _:
                raise method_not_allowed()

    def _put(self, target: Target, request: Request, now: datetime) -> Response:
        kind = target.kind
        obj, unknown = self._received(kind, request)
        record = self.store.collection(kind).get(target.namespace, target.name)
        if record is None:
            if kind.create_on_update and not target.subresource:
                return self._created(target, obj, request, now, unknown)
            raise not_found(kind, target.name)
        return self._updated(target, record, obj, request, now, unknown)

    def _updated(
        self,
        target: Target,
        record: Record,
        obj: Object,
        request: Request,
        now: datetime,
        unknown: list[str],
        *,
        from_patch: bool = False,
        applied: bool = False,
    ) -> Response:
        stored = self.writer.update(
            target.kind,
            record,
            obj,
            now,
            subresource=target.subresource,
            dry_run=request.dry_run,
            from_patch=from_patch or applied,
            manager="" if applied else request.manager,
        )
        return self._shown(200, target.kind, stored, request, now, unknown)

    def _patch(self, target: Target, request: Request, now: datetime) -> Response:
        kind = target.kind
        style = self._patch_style(kind, request)
        patch = decode_document(request.body, "application/yaml" if style == "apply" else JSON)
        record = self.store.collection(kind).get(target.namespace, target.name)
        if style == "apply":
            return self._apply(target, record, patch, request, now)
        if record is None:
            raise not_found(kind, target.name)
        obj = record.decode(kind)
        if kind.outward is not None:
            obj = kind.outward(obj)
        patched = _patched(style, obj, patch, struct_of(kind.group, kind.name))
        if not isinstance(patched, dict):
            raise bad_request("the patched object is no object")
        patched, unknown = self._conformed(kind, patched, request)
        return self._updated(target, record, patched, request, now, unknown, from_patch=True)

    def _apply(self, target: Target, record: Record | None, patch: Any, request: Request, now: datetime) -> Response:
        if not isinstance(patch, dict) or not isinstance(patch.get("metadata", {}), dict):
            raise bad_request("an apply configuration must be an object")
        kind = target.kind
        if not request.query.get("fieldManager"):
            fault = required("fieldManager", "is required for apply patch")
            raise invalid_object(Kind("meta.k8s.io", "v1", "PatchOptions", "patchoptions"), "", [fault])
        self._check_kind(kind, patch, request)
        metadata = patch.setdefault("metadata", {})
        metadata.setdefault("name", target.name)
        if metadata.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        config, unknown = self._conformed(kind, patch, request)
        if record is None and target.subresource:
            raise not_found(kind, target.name)
        if target.subresource:
            config = {key: config[key] for key in ("kind", "apiVersion", "metadata", "status") if key in config}
        manager = Manager(request.query["fieldManager"], "Apply", target.subresource)
        live = record.decode(self.store.collection(kind).kind) if record is not None else None
        force, at = request.flag("force"), timestamp(now)
        merged = apply(live, config, manager, shape_of(kind), kind.api_version, at, force=force)
        if record is None:
            return self._created(target, merged, request, now, unknown)
        return self._updated(target, record, merged, request, now, unknown, applied=True)

    def _patch_style(self, kind: Kind, request: Request) -> str:
        style = _PATCH_TYPES.get(request.media_type)
        if style is None:
            raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
        if style == "strategic" and kind.custom:
            raise unsupported_media_type([name for name, known in _PATCH_TYPES.items() if known != "strategic"])
        return style

    def _received(self, kind: Kind, request: Request) -> tuple[Object, list[str]]:
        """The object in a body as `_conformed` has it. Raises ApiError 400 for another kind than the path's."""
        obj = decode_object(request)
        self._check_kind(kind, obj, request)
        return self._conformed(kind, obj, request)

    def _check_kind(self, kind: Kind, obj: Object, request: Request) -> None:
        name, version = obj.get("kind", ""), obj.get("apiVersion", "")
        if kind.custom and not (name and version):
            missing = "apiVersion" if name else "Kind"
            start = request.body[:200].decode(errors="replace")
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind.name}): "
                f"Object '{missing}' is missing in '{start}'"
            )
        if kind.custom and version != kind.api_version:
            raise bad_request(
                f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
            )
        if kind.custom and name != kind.name:
            given = replace(kind, name=str(name))
            fault = invalid("kind", name, f"must be {kind.name}")
            raise invalid_object(given, str((obj.get("metadata") or {}).get("name", "")), [fault])
        if (name and name != kind.name) or (version and version != kind.api_version):
            raise bad_request(
                f'{name} in version "{version}" cannot be handled as a {kind.name}: '
                f'no kind "{name}" of version "{version}" is known at this path'
            )

    def _conformed(self, kind: Kind, obj: Object, request: Request) -> tuple[Object, list[str]]:
        """An object with only the fields that its kind has, converted to what is stored, and warnings about the rest.

        Raises ApiError 400 for values of the wrong type, and for unknown fields where the request asks for that.
        """
        title = f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}'
        struct = None if kind.custom else struct_of(kind.group, kind.name)
        try:
            unknown = conform(obj, struct) if struct else []
            if kind.schema is not None:
                unknown = prune(obj, kind.schema)
            if struct is None and isinstance(obj.get("metadata"), dict):
                unknown += conform(obj["metadata"], "meta.ObjectMeta", "metadata.")
        except ApiError as error:
            raise bad_request(f"{title}: {error.message}") from error
        texts = [f'unknown field "{path}"' for path in unknown]
        mode = request.query.get("fieldValidation", "Warn")
        if texts and mode == "Strict":
            raise bad_request(f"{title}: strict decoding error: {', '.join(texts)}")
        return (kind.inward(obj) if kind.inward else obj), texts if mode != "Ignore" else []

    def _shown(
        self,
        status: int,
        kind: Kind,
        record: Record,
        request: Request,
        now: datetime,
        warnings: list[str] | None = None,
    ) -> Response:
        form = form_of(request)
        response = Response(status, self.reader.show(kind, record, form, now), form.content_type)
        if warnings:
            response.headers["Warning"] = ", ".join(f'299 - "{_escaped(text)}"' for text in warnings)
        return response

    # Sub-resources ------------------------------------------------------------------------------------------------

    def _on_subresource(self, target: Target, request: Request, now: datetime) -> Response:
        kind, name = target.kind, target.name
        match target.subresource, request.method:
            case "status", "GET" if kind.status:
                return self._on_object(Target(kind, target.namespace, name), request, now)
            case "status", "PUT" if kind.status:
                return self._put(target, request, now)
            case "status", "PATCH" if kind.status:
                return self._patch(target, request, now)
            case "scale", "GET" | "PUT" | "PATCH" if kind.scale:
                return self._scale(target, request, now)
            case "finalize", "PUT" if kind.collection == "namespaces":
                return self._put(Target(kind, "", name), request, now)
            case "binding", "POST" if kind.collection == "pods":
                body = _typed(decode_object(request), "core.Binding")
                bind(self.writer, kind, target.namespace, name, body, now, dry_run=request.dry_run)
                return answer(201, success())
            case "eviction", "POST" if kind.collection == "pods":
                body = _typed(decode_object(request), "policy.Eviction")
                evict(self.writer, kind, target.namespace, name, body, now, dry_run=request.dry_run)
                return answer(201, success())
            case "log", "GET" if kind.collection == "pods":
                pod = self.writer.record(kind, target.namespace, name)
                if not pod.fields["spec.nodeName"]:
                    return Response(204, b"", "text/plain")
                raise ApiError(500, "InternalError", "the embedded cluster runs no containers and keeps no logs")
            case subresource, _:
                known = {name for name, *_ in discovery.subresources(kind)}
                raise method_not_allowed() if subresource in known else unknown_path()

    def _scale(self, target: Target, request: Request, now: datetime) -> Response:
        record = self.writer.record(target.kind, target.namespace, target.name)
        scale = scale_of(target.kind, record.decode(target.kind))
        if request.method == "PATCH":
            style = self._patch_style(target.kind, request)
            patch = decode_document(request.body, "application/yaml" if style == "apply" else JSON)
            patched = _typed(
                _patched("merge" if style == "apply" else style, scale, patch, "scale.Scale"), "scale.Scale"
            )
            if patched.get("metadata", {}).get("resourceVersion") == scale["metadata"]["resourceVersion"]:
                patched = {**patched, "metadata": {}}
            scale = rescale(self.writer, target.kind, record, patched, now, dry_run=request.dry_run)
        elif request.method == "PUT":
            received = _typed(decode_object(request), "scale.Scale")
            scale = rescale(self.writer, target.kind, record, received, now, dry_run=request.dry_run)
        return answer(200, scale)


def _typed(obj: Any, struct: str) -> Object:
    """The body of a sub-resource, of the given type. Raises ApiError 400 for another."""
    if not isinstance(obj, dict):
        raise bad_request(f"a {struct.rpartition('.')[2]} was expected")
    conform(obj, struct)
    return obj


def _patched(style: str, obj: Object, patch: Any, struct: str | None) -> Any:
    """struct: the type by whose keys lists are merged."""
    match style:
        case "json":
            return json_patch(obj, patch)
        case "merge":
            return merge_patch(obj, patch)
        case _:
            return strategic_merge(obj, patch, struct or "")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def _delete_options(request: Request) -> Object:
    """DeleteOptions from the body, with what the query says put over it."""
    options: Object = {}
    if request.body.strip():
        options = decode_object(request)
        _typed(options, "meta.DeleteOptions")
    if "gracePeriodSeconds" in request.query:
        text = request.query["gracePeriodSeconds"]
        if not text.lstrip("-").isdigit():
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        options["gracePeriodSeconds"] = int(text)
    if "propagationPolicy" in request.query:
        options["propagationPolicy"] = request.query["propagationPolicy"]
    if "orphanDependents" in request.query:
        options["orphanDependents"] = request.flag("orphanDependents")
    return options


def _reviewed(review: Object) -> Object:
    """Everybody who got in may do everything."""
    if review.get("kind") == "SelfSubjectRulesReview":
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        status: Object = {
            "resourceRules": [everything],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }
    elif review.get("kind") == "SelfSubjectReview":
        status = {"userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]}}
    else:
        status = {"allowed": True}
    return {**review, "metadata": review.get("metadata") or {}, "status": status}
