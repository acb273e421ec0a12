"""Create, update and delete: metadata, defaults, validation, versions, finalizers, graceful deletion."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from wainwright.sim.apiserver import ownership, schemas
from wainwright.sim.apiserver.customs import FINALIZER as CUSTOM_FINALIZER
from wainwright.sim.apiserver.customs import custom_kinds, defined_status, unchecked_rules, validate_definition
from wainwright.sim.apiserver.defaults import apply_defaults, tolerate_defaults
from wainwright.sim.apiserver.errors import (
    ApiError,
    Fault,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    forbidden_field,
    invalid,
    invalid_object,
    not_found,
)
from wainwright.sim.apiserver.kinds import Kind, Object, Registry
from wainwright.sim.apiserver.requests import timestamp
from wainwright.sim.apiserver.rules import broken
from wainwright.sim.apiserver.shapes import shape_of
from wainwright.sim.apiserver.store import Record, Store
from wainwright.sim.apiserver.validation import validate, validate_metadata, validate_update

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""The alphabet of generated names: no vowels, nothing that reads like another."""

_MOST_FAULTS = 100
"""An answer names no more: who has as many needs no complete list."""

_KEEPS_STATUS_ON_CREATE = frozenset({"nodes"})
_STATUS_WITH_METADATA = frozenset({"pods", "nodes"})
_SYSTEM_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class Writer:
    """All changes go through here. Each takes `now` and leaves the store consistent or raises ApiError."""

    def __init__(self, store: Store, registry: Registry, chance: random.Random) -> None:
        self.store = store
        self.registry = registry
        self._chance = chance
        self._namespaces = self.builtin("", "namespaces")
        self._priorities = self.builtin("scheduling.k8s.io", "priorityclasses")
        self._definitions = self.builtin("apiextensions.k8s.io", "customresourcedefinitions")
        self._global_priority: tuple[str, int] | None = None
        self._global_priority_known = False

    def builtin(self, group: str, plural: str) -> Kind:
        found = next(kind for kind in self.registry.all() if (kind.group, kind.plural) == (group, plural))
        self.store.collection(found)
        return found

    def record(self, kind: Kind, namespace: str, name: str) -> Record:
        record = self.store.collection(kind).get(namespace, name)
        if record is None:
            raise not_found(kind, name)
        return record

    # Create -------------------------------------------------------------------------------------------------------

    def create(
        self, kind: Kind, namespace: str, obj: Object, now: datetime, *, dry_run: bool = False
    ) -> tuple[Record, list[str]]:
        """The stored object and warnings. `obj` is the caller's no longer."""
        collection = self.store.collection(kind)
        metadata = self._new_metadata(kind, namespace, obj, now)
        if metadata.get("name") and collection.get(metadata.get("namespace", ""), metadata["name"]) is not None:
            raise already_exists(kind, metadata["name"])
        if kind.status and kind.collection not in _KEEPS_STATUS_ON_CREATE:
            obj.pop("status", None)
        self._complete(kind, obj)
        self._admit(kind, obj, now)
        self._check(kind, obj, None)
        warnings: list[str] = []
        if kind.collection == "customresourcedefinitions.apiextensions.k8s.io":
            obj["status"] = defined_status(obj, timestamp(now))
            warnings = unchecked_rules(obj)
        if dry_run:
            return Record(collection.kind, obj, self.store.version), warnings
        record = self.store.add(collection, obj)
        self._changed(kind, obj)
        return record, warnings

    def _new_metadata(self, kind: Kind, namespace: str, obj: Object, now: datetime) -> Object:
        metadata = obj.get("metadata")
        if metadata is None:
            metadata = {}
        if not isinstance(metadata, dict):
            raise bad_request("metadata must be an object")
        if metadata.get("resourceVersion"):
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        own = metadata.get("namespace") or ""
        if kind.namespaced:
            if own and own != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            self._require_namespace(kind, namespace, str(metadata.get("name") or ""))
        name = metadata.get("name") or ""
        if not name and metadata.get("generateName"):
            prefix = str(metadata["generateName"])[:58]
            name = prefix + "".join(self._chance.choices(_SUFFIX, k=5))
        fresh: Object = {"name": name}
        if kind.namespaced:
            fresh["namespace"] = namespace
        fresh["uid"] = str(uuid.UUID(int=self._chance.getrandbits(128), version=4))
        fresh["resourceVersion"] = ""
        if kind.has_generation or kind.custom:
            fresh["generation"] = 1
        fresh["creationTimestamp"] = timestamp(now)
        for key, value in metadata.items():
            if key not in fresh and key not in _SERVER_METADATA and value not in (None, {}, []):
                fresh[key] = value
        obj["metadata"] = fresh
        return fresh

    def _require_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        found = self.store.collection(self._namespaces).get("", namespace)
        if found is None:
            raise not_found(self._namespaces, namespace)
        if found.fields["status.phase"] == "Terminating":
            cause = Fault("metadata.namespace", "NamespaceTerminating", f"namespace {namespace} is being terminated")
            raise forbidden(
                kind,
                name,
                f"unable to create new content in namespace {namespace} because it is being terminated",
                [cause],
            )

    def _complete(self, kind: Kind, obj: Object) -> None:
        """Fill defaults in, in place."""
        if kind.schema is None:
            apply_defaults(kind, obj)
        else:
            schemas.apply_schema_defaults(obj, kind.schema)

    def _admit(self, kind: Kind, obj: Object, now: datetime) -> None:
        """What the default admission plug-ins add to a new object."""
        match kind.collection:
            case "pods":
                tolerate_defaults(obj["spec"])
                self._prioritise(kind, obj)
                gates = obj["spec"].get("schedulingGates")
                if gates:
                    obj["status"]["conditions"] = [
                        {
                            "type": "PodScheduled",
                            "status": "False",
                            "reason": "SchedulingGated",
                            "message": "Scheduling is blocked due to non-empty scheduling gates",
                            "lastProbeTime": None,
                            "lastTransitionTime": timestamp(now),
                        }
                    ]
            case "nodes":
                taints = obj["spec"].get("taints") or []
                if not any(t.get("key") == _NOT_READY["key"] and t.get("effect") == "NoSchedule" for t in taints):
                    obj["spec"]["taints"] = [*taints, dict(_NOT_READY)]
            case "persistentvolumeclaims" if "storageClassName" not in obj["spec"]:
                default = self._default_storage_class()
                if default:
                    obj["spec"]["storageClassName"] = default
            case "services":
                self._address(obj["spec"])
            case _:
                pass

    def _prioritise(self, kind: Kind, pod: Object) -> None:
        spec = pod["spec"]
        name = spec.get("priorityClassName")
        priority, policy = 0, "PreemptLowerPriority"
        if name:
            record = self.store.collection(self._priorities).get("", name)
            if record is None:
                raise forbidden(kind, pod["metadata"]["name"], f"no PriorityClass with name {name} was found")
            found = record.decode(self._priorities)
            priority, policy = found.get("value", 0), found.get("preemptionPolicy", policy)
        else:
            default = self._default_priority()
            if default is not None:
                spec["priorityClassName"], priority = default
        if spec.get("priority") not in (None, priority):
            raise forbidden(
                kind,
                pod["metadata"]["name"],
                f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
                f"priority admission controller computed {priority} from the given PriorityClass name",
            )
        spec["priority"] = priority
        spec.setdefault("preemptionPolicy", policy)

    def _default_priority(self) -> tuple[str, int] | None:
        if not self._global_priority_known:
            self._global_priority = None
            for record in self.store.collection(self._priorities).select(""):
                found = record.decode(self._priorities)
                if found.get("globalDefault"):
                    self._global_priority = (record.name, found.get("value", 0))
            self._global_priority_known = True
        return self._global_priority

    def _default_storage_class(self) -> str | None:
        kind = self.builtin("storage.k8s.io", "storageclasses")
        for record in self.store.collection(kind).select(""):
            annotations = record.decode(kind)["metadata"].get("annotations") or {}
            if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
                return record.name
        return None

    def _address(self, spec: Object) -> None:
        """Give a Service an address of 10.96.0.0/16 and node ports from 30000 on, the lowest free ones."""
        kind = self.builtin("", "services")
        others = [record.decode(kind)["spec"] for record in self.store.collection(kind).select("")]
        if spec.get("type") != "ExternalName":
            if not spec.get("clusterIP"):
                taken = {other.get("clusterIP") for other in others}
                spec["clusterIP"] = next(
                    address
                    for number in range(1, 2**16)
                    if (address := f"10.96.{number >> 8}.{number & 255}") not in taken
                )
            spec.setdefault("clusterIPs", [spec["clusterIP"]])
        if spec.get("type") in ("NodePort", "LoadBalancer"):
            used = {port.get("nodePort") for other in others for port in other.get("ports") or ()}
            for port in spec.get("ports") or ():
                if not port.get("nodePort"):
                    port["nodePort"] = next(number for number in range(30000, 32768) if number not in used)
                    used.add(port["nodePort"])

    # Update -------------------------------------------------------------------------------------------------------

    def update(
        self,
        kind: Kind,
        record: Record,
        obj: Object,
        now: datetime,
        *,
        subresource: str = "",
        dry_run: bool = False,
        from_patch: bool = False,
        manager: str = "",
    ) -> Record:
        """Replace an object by `obj`, the caller's no longer; the record as it is then.

        manager: who becomes the owner of what changes, where owners are tracked; "" leaves managedFields as they are.

        subresource: "" changes all but the status (where the kind has one), "status" changes the status only, "whole"
        (for the server's own use) changes everything. Nothing is written when nothing changes.
        """
        collection = self.store.collection(kind)
        old = record.decode(collection.kind)
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            raise bad_request("metadata must be an object")
        self._check_identity(kind, record, metadata, from_patch=from_patch)
        if subresource == "status":
            obj = self._only_status(kind, obj, old)
        else:
            if not subresource and kind.status:
                if "status" in old:
                    obj["status"] = old["status"]
                else:
                    obj.pop("status", None)
            obj["metadata"] = _kept_metadata(kind, metadata, old["metadata"])
        obj["kind"], obj["apiVersion"] = old["kind"], old["apiVersion"]
        self._complete(kind, obj)
        self._check(kind, obj, old)
        meta = obj["metadata"]
        if subresource != "status" and _is_new_generation(kind, obj, old):
            meta["generation"] = old["metadata"].get("generation", 0) + 1
        meta["resourceVersion"] = old["metadata"]["resourceVersion"]
        if obj == old:
            return record
        if manager and meta.get("managedFields"):
            author = ownership.Manager(manager, "Update", subresource)
            meta["managedFields"] = ownership.after_update(
                obj, old, author, shape_of(kind), kind.api_version, timestamp(now)
            )
        if dry_run:
            return Record(collection.kind, obj, record.version)
        if _is_over(kind, obj):
            final = Record(collection.kind, obj, record.version)
            self._remove(kind, record)
            return final
        stored = self.store.replace(collection, record, obj)
        self._changed(kind, obj)
        return stored

    def _check_identity(self, kind: Kind, record: Record, metadata: Object, *, from_patch: bool) -> None:
        name = metadata.get("name")
        if name not in (None, "", record.name) or (not name and from_patch):
            raise bad_request(
                f"the name of the object ({name or ''}) does not match the name on the URL ({record.name})"
            )
        if (metadata.get("namespace") or record.namespace) != record.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        version = metadata.get("resourceVersion")
        if not version:
            if not kind.unconditional_update and not from_patch:
                refused = invalid_object(
                    kind, record.name, [invalid("metadata.resourceVersion", 0, "must be specified for an update")]
                )
                refused.message = refused.message.replace(kind.title, kind.resource, 1)
                refused.details["kind"] = kind.plural
                raise refused
        elif str(version) != str(record.version):
            if not str(version).isdigit():
                fault = invalid("metadata.resourceVersion", str(version), "must be an unsigned integer")
                raise invalid_object(kind, record.name, [fault])
            raise conflict(kind, record.name)
        uid = metadata.get("uid")
        if uid and uid != record.uid:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
            raise conflict(kind, record.name, why)

    def _only_status(self, kind: Kind, obj: Object, old: Object) -> Object:
        changed: Object = {**old, "metadata": dict(old["metadata"])}
        if "status" in obj:
            changed["status"] = obj["status"]
        else:
            changed.pop("status", None)
        if "managedFields" in obj["metadata"]:
            changed["metadata"]["managedFields"] = obj["metadata"]["managedFields"]
        if kind.collection in _STATUS_WITH_METADATA:
            for key in ("labels", "annotations"):
                if obj["metadata"].get(key):
                    changed["metadata"][key] = obj["metadata"][key]
        return changed

    def _check(self, kind: Kind, obj: Object, old: Object | None) -> None:
        metadata = obj["metadata"]
        faults = list(validate_metadata(kind, metadata))
        if old is not None and not faults:
            faults += _metadata_changes(metadata, old["metadata"])
        if kind.schema is not None:
            faults += islice(schemas.validate(obj, kind.schema), _MOST_FAULTS)
            if kind.has_rules and not faults:
                faults += islice(broken(obj, old, kind.schema), _MOST_FAULTS)
        else:
            try:
                faults += islice(validate(kind, obj), _MOST_FAULTS)
                if old is not None:
                    faults += validate_update(kind, obj, old)
                if kind is self._definitions:
                    faults += validate_definition(obj)
            except (AttributeError, TypeError, KeyError, ValueError) as error:
                raise bad_request(
                    f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {error}'
                ) from error
        if faults:
            raise invalid_object(kind, str(metadata.get("name") or ""), faults)

    # Delete -------------------------------------------------------------------------------------------------------

    def delete(
        self, kind: Kind, record: Record, options: Mapping[str, Any], now: datetime, *, dry_run: bool = False
    ) -> tuple[Record, bool]:
        """The object as it is then, and whether it is gone. options: a DeleteOptions object."""
        _check_preconditions(kind, record, options.get("preconditions") or {})
        if kind.collection == "namespaces" and record.name in _SYSTEM_NAMESPACES:
            raise forbidden(kind, record.name, "this namespace may not be deleted")
        collection = self.store.collection(kind)
        obj = record.decode(collection.kind)
        metadata = obj["metadata"]
        finalizers = _with_propagation(list(metadata.get("finalizers") or ()), options)
        if kind is self._definitions and CUSTOM_FINALIZER not in finalizers:
            finalizers.append(CUSTOM_FINALIZER)
        grace = self._grace_seconds(kind, obj, options)
        deleted_at = metadata.get("deletionTimestamp")
        lingers = kind.collection == "namespaces" and bool(obj["spec"].get("finalizers"))
        over = not finalizers and not grace and not lingers
        if over and (kind.collection != "pods" or dry_run):
            return record if dry_run else self._remove(kind, record), True
        changed = {**metadata}
        if finalizers:
            changed["finalizers"] = finalizers
        else:
            changed.pop("finalizers", None)
        if not deleted_at:
            changed["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace or 0))
            if kind.collection != "namespaces":
                changed["deletionGracePeriodSeconds"] = grace or 0
            if "generation" in changed:
                changed["generation"] += 1
        elif grace is not None and grace < metadata.get("deletionGracePeriodSeconds", 0):
            shorter = metadata["deletionGracePeriodSeconds"] - grace
            was = datetime.fromisoformat(deleted_at)
            changed["deletionTimestamp"] = timestamp(was - timedelta(seconds=shorter))
            changed["deletionGracePeriodSeconds"] = grace
        if lingers:
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        elif changed == metadata and not over:
            return record, False
        obj["metadata"] = changed
        if dry_run:
            return Record(collection.kind, obj, record.version), False
        stored = record
        if obj != record.decode(collection.kind):
            stored = self.store.replace(collection, record, obj)
        if over:
            return self._remove(kind, stored), True
        if kind is self._definitions:
            self._terminate_definition(stored, now)
        return stored, False

    def _grace_seconds(self, kind: Kind, obj: Object, options: Mapping[str, Any]) -> int | None:
        """Seconds until the kubelet is to have ended a pod; 0 for what nobody has to end; None: as it already is."""
        if kind.collection != "pods":
            return 0
        asked: int | None = options.get("gracePeriodSeconds")
        status = obj.get("status") or {}
        if not obj["spec"].get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        already: int | None = obj["metadata"].get("deletionGracePeriodSeconds")
        if obj["metadata"].get("deletionTimestamp"):
            if asked is None or already is None:
                return already or None
            return min(asked, already)
        grace: int = obj["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
        return grace if grace >= 0 else 1

    def _remove(self, kind: Kind, record: Record) -> Record:
        removed = self.store.remove(self.store.collection(kind), record)
        self._changed(kind, None)
        if kind is self._definitions:
            for custom in self._kinds_of(record):
                self.registry.remove(custom)
                self.store.drop(custom)
        elif kind.custom:
            self._finish_definition(kind)
        return removed

    def _kinds_of(self, definition: Record) -> list[Kind]:
        return [kind for kind in self.registry.all() if kind.custom and kind.collection == definition.name]

    def _terminate_definition(self, definition: Record, now: datetime) -> None:
        """Delete every object of a resource that is going; the last one takes the definition with it."""
        for kind in self._kinds_of(definition)[:1]:
            for record in list(self.store.collection(kind).select("")):
                self.delete(kind, record, {}, now)
            self._finish_definition(kind)

    def _finish_definition(self, kind: Kind) -> None:
        definitions = self.store.collection(self._definitions)
        record = definitions.get("", kind.collection)
        if record is None or self.store.collection(kind).records:
            return
        obj = record.decode(self._definitions)
        metadata = obj["metadata"]
        if metadata.get("deletionTimestamp"):
            rest = [name for name in metadata.get("finalizers") or () if name != CUSTOM_FINALIZER]
            if not rest:
                self._remove(self._definitions, record)
            else:
                metadata["finalizers"] = rest
                self.store.replace(definitions, record, obj)

    def _changed(self, kind: Kind, obj: Object | None) -> None:
        """What the server itself derives from its objects is derived anew."""
        if kind is self._priorities:
            self._global_priority_known = False
        elif kind is self._definitions and obj is not None:
            self.define(obj)

    def define(self, definition: Object) -> None:
        """Serve the kinds of a CustomResourceDefinition, in place of what it defined before."""
        name = definition["metadata"]["name"]
        for kind in self.registry.all():
            if kind.custom and kind.collection == name:
                self.registry.remove(kind)
        for kind in custom_kinds(definition):
            self.registry.add(kind)
            self.store.collection(kind).kind = kind


_SERVER_METADATA = frozenset(
    {"namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "selfLink"}
    | {"deletionGracePeriodSeconds"}
)
_FIXED_METADATA = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def _kept_metadata(kind: Kind, new: Object, old: Object) -> Object:
    """New metadata with what only the server sets taken from the old where the client leaves it out."""
    kept: Object = {}
    for key in ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"):
        if key in old:
            kept[key] = new.get(key) or old[key]
    if "generation" in old:
        kept["generation"] = old["generation"]
    elif not kind.has_generation:
        kept.pop("generation", None)
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if key in old:
            kept[key] = old[key] if new.get(key) is None else new[key]
    for key, value in new.items():
        if key not in kept and key not in _SERVER_METADATA and value not in (None, {}, [], [{}]):
            kept[key] = value
    if "managedFields" in old and "managedFields" not in new:
        kept["managedFields"] = old["managedFields"]
    return kept


def _is_over(kind: Kind, obj: Object) -> bool:
    """Is an object that is being deleted held by nothing any more?"""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp"):
        return False
    if metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
        return False
    return not (kind.collection == "namespaces" and obj["spec"].get("finalizers"))


def _metadata_changes(new: Object, old: Object) -> list[Fault]:
    faults = [
        invalid(f"metadata.{key}", new.get(key), "field is immutable")
        for key in _FIXED_METADATA
        if new.get(key) != old.get(key)
    ]
    if old.get("deletionTimestamp"):
        added = [name for name in new.get("finalizers") or () if name not in (old.get("finalizers") or ())]
        if added:
            faults.append(
                forbidden_field(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, found new finalizers "
                    f"{_go_strings(added)}",
                )
            )
    return faults


def _go_strings(values: list[str]) -> str:
    quoted = ", ".join(f'"{value}"' for value in values)
    return f"[]string{{{quoted}}}"


def _is_new_generation(kind: Kind, new: Object, old: Object) -> bool:
    if kind.custom:
        ignored = {"metadata", "status"} if kind.status else {"metadata"}
        return any(new.get(key) != old.get(key) for key in {*new, *old} - ignored)
    if not kind.has_generation:
        return False
    return any(new.get(key) != old.get(key) for key in {*new, *old} - {"metadata", "status"})


def _check_preconditions(kind: Kind, record: Record, preconditions: Mapping[str, Any]) -> None:
    uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
    for name, wanted, found in (("UID", uid, record.uid), ("ResourceVersion", version, str(record.version))):
        if wanted and str(wanted) != found:
            fate = "deleted and then recreated" if name == "UID" else "modified"
            raise ApiError(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {kind.title} "{record.name}": the {name} in the precondition '
                f"({wanted}) does not match the {name} in record ({found}). The object might have been {fate}",
                details={"name": record.name, "kind": kind.title},
            )


def _with_propagation(finalizers: list[str], options: Mapping[str, Any]) -> list[str]:
    """Finalizers as propagationPolicy wants them: the garbage collector acts on `orphan` and `foregroundDeletion`."""
    policy = options.get("propagationPolicy")
    if policy is None and options.get("orphanDependents") is not None:
        policy = "Orphan" if options["orphanDependents"] else "Background"
    if policy is None:
        return finalizers
    if policy not in ("Orphan", "Background", "Foreground"):
        raise ApiError(
            422,
            "Invalid",
            f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "{policy}": '
            'supported values: "Background", "Foreground", "Orphan", "nil"',
        )
    kept = [name for name in finalizers if name not in ("orphan", "foregroundDeletion")]
    return kept + {"Orphan": ["orphan"], "Foreground": ["foregroundDeletion"], "Background": []}[policy]
