"""What makes a built-in object invalid: names, required fields, fields that never change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from wainwright.sim.apiserver.errors import Fault, forbidden_field, invalid, required, unsupported
from wainwright.sim.apiserver.kinds import Kind, Object
from wainwright.sim.apiserver.quantities import amount
from wainwright.sim.apiserver.selectors import matches_selector

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_PATH_SEGMENT = re.compile(r"(?!\.{1,2}\Z)[^/%]+\Z")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")

_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_SEGMENT_NAMES = frozenset(
    {
        "roles.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
    }
)
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_LABEL_NAMES = frozenset({"namespaces", "services"})


def validate_metadata(kind: Kind, metadata: Object) -> Iterator[Fault]:
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        yield required("metadata.name", "name or generateName is required")
    elif kind.collection in _SEGMENT_NAMES:
        if not _PATH_SEGMENT.match(name):
            yield invalid("metadata.name", name, "may not contain '/' or '%'")
    elif kind.collection in _LABEL_NAMES:
        if len(name) > 63:
            yield invalid("metadata.name", name, "must be no more than 63 characters")
        if not _LABEL.match(name):
            yield invalid("metadata.name", name, _LABEL_TEXT)
    else:
        if len(name) > 253:
            yield invalid("metadata.name", name, "must be no more than 253 characters")
        if not _SUBDOMAIN.match(name):
            yield invalid("metadata.name", name, _SUBDOMAIN_TEXT)
    yield from _validate_labels("metadata.labels", metadata.get("labels"))
    annotations = metadata.get("annotations") or {}
    for key, value in annotations.items():
        if not _is_qualified(key.lower()):
            yield invalid("metadata.annotations", key, _qualified_text())
        if not isinstance(value, str):
            yield invalid("metadata.annotations", value, "must be a string")
    if sum(len(str(key)) + len(str(value)) for key, value in annotations.items()) > 262_144:
        yield Fault("metadata.annotations", "FieldValueTooLong", "Too long: may not be more than 262144 bytes")
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        if not _is_qualified(str(finalizer)):
            yield invalid("metadata.finalizers", finalizer, _qualified_text())
        if "/" not in str(finalizer) and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(f"metadata.finalizers[{index}]", finalizer, why)
    yield from _validate_owners(metadata.get("ownerReferences") or ())


def _validate_owners(owners: Any) -> Iterator[Fault]:
    controllers = 0
    for owner in owners:
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                why = "version must not be empty" if name == "apiVersion" else "must not be empty"
                yield invalid(f"metadata.ownerReferences.{name}", "", why)
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        yield invalid("metadata.ownerReferences", list(owners), "Only one reference can have Controller set to true.")


def _validate_labels(path: str, labels: Any) -> Iterator[Fault]:
    for key, value in (labels or {}).items():
        if not _is_qualified(key):
            yield invalid(path, key, _qualified_text())
        if not isinstance(value, str):
            yield invalid(path, value, "must be a string")
        elif len(value) > 63:
            yield invalid(path, value, "must be no more than 63 bytes")
        elif not _LABEL_VALUE.match(value):
            yield invalid(
                path,
                value,
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and "
                "must "
                "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
                "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            )


def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.match(prefix)):
        return False
    return len(name) <= 63 and bool(_QUALIFIED.match(name))


def _qualified_text() -> str:
    return (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric "
        "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    )


def validate(kind: Kind, obj: Object) -> Iterator[Fault]:
    """Faults of a complete (defaulted) built-in object, metadata aside."""
    check = _CHECKS.get(kind.collection)
    if check is not None:
        yield from check(obj)


_RESTART = ("Always", "OnFailure", "Never")


def validate_pod_spec(spec: Object, path: str) -> Iterator[Fault]:
    containers = spec.get("containers")
    if not containers:
        yield required(f"{path}.containers")
    names: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            yield from _validate_container(container, f"{path}.{group}[{index}]", names)
    if spec.get("restartPolicy") not in _RESTART:
        yield unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART)
    yield from _validate_labels(f"{path}.nodeSelector", spec.get("nodeSelector"))
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        operator = toleration.get("operator") or "Equal"
        if operator not in ("Equal", "Exists", "Lt", "Gt"):
            yield unsupported(f"{path}.tolerations[{index}].operator", operator, ["Equal", "Exists"])
        if operator == "Exists" and toleration.get("value"):
            yield invalid(
                f"{path}.tolerations[{index}].operator",
                toleration["value"],
                "value must be empty when `operator` is 'Exists'",
            )
        if not toleration.get("key") and operator != "Exists":
            yield invalid(
                f"{path}.tolerations[{index}].operator",
                operator,
                'operator must be Exists when `key` is empty, which means "match all values and all keys"',
            )


def _validate_container(container: Object, path: str, names: set[str]) -> Iterator[Fault]:
    name = container.get("name")
    if not name:
        yield required(f"{path}.name")
    elif not _LABEL.match(name) or len(name) > 63:
        yield invalid(f"{path}.name", name, _LABEL_TEXT)
    elif name in names:
        yield Fault(f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
    names.add(str(name))
    if not container.get("image"):
        yield required(f"{path}.image")
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for resource, request in requests.items():
        limit = limits.get(resource)
        if limit is not None and amount(request) > amount(limit):
            yield invalid(
                f"{path}.resources.requests", request, f"must be less than or equal to {resource} limit of {limit}"
            )
        if amount(request) < 0:
            yield invalid(f"{path}.resources.requests[{resource}]", request, "must be greater than or equal to 0")
    for index, port in enumerate(container.get("ports") or ()):
        number = port.get("containerPort")
        if not number:
            yield required(f"{path}.ports[{index}].containerPort")
            continue
        if not isinstance(number, int) or not 0 < number < 65536:
            yield invalid(f"{path}.ports[{index}].containerPort", number, "must be between 1 and 65535, inclusive")


def _pod(obj: Object) -> Iterator[Fault]:
    yield from validate_pod_spec(obj["spec"], "spec")


def _workload(obj: Object) -> Iterator[Fault]:
    spec = obj["spec"]
    replicas = spec.get("replicas")
    if isinstance(replicas, int) and replicas < 0:
        yield invalid("spec.replicas", replicas, "must be greater than or equal to 0")
    selector = spec.get("selector")
    if not selector:
        yield required("spec.selector")
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    if not matches_selector(selector, labels or {}):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from validate_pod_spec(template.get("spec") or {}, "spec.template.spec")
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy in ("OnFailure", "Never"):
        yield unsupported("spec.template.spec.restartPolicy", policy, ["Always"])


def _job(obj: Object) -> Iterator[Fault]:
    template = obj["spec"].get("template") or {}
    yield from validate_pod_spec(template.get("spec") or {}, "spec.template.spec")
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy == "Always":
        yield required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')


def _cron_job(obj: Object) -> Iterator[Fault]:
    if not obj["spec"].get("schedule"):
        yield required("spec.schedule")


def _budget(obj: Object) -> Iterator[Fault]:
    spec = obj.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")


def _claim(obj: Object) -> Iterator[Fault]:
    spec = obj["spec"]
    if not spec.get("accessModes"):
        yield required("spec.accessModes", "at least 1 access mode is required")
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        yield required("spec.resources[storage]")


def _storage_class(obj: Object) -> Iterator[Fault]:
    if not obj.get("provisioner"):
        yield required("provisioner")


def _service(obj: Object) -> Iterator[Fault]:
    spec = obj["spec"]
    if not spec.get("ports") and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        yield required("spec.ports")


def _priority_class(obj: Object) -> Iterator[Fault]:
    value = obj.get("value", 0)
    name = obj["metadata"]["name"]
    if isinstance(value, int) and value > 1_000_000_000 and not name.startswith("system-"):
        yield forbidden_field("value", "maximum allowed value of a user defined priority is 1000000000")


_CHECKS: dict[str, Callable[[Object], Iterator[Fault]]] = {
    "pods": _pod,
    "deployments.apps": _workload,
    "replicasets.apps": _workload,
    "statefulsets.apps": _workload,
    "daemonsets.apps": _workload,
    "jobs.batch": _job,
    "cronjobs.batch": _cron_job,
    "poddisruptionbudgets.policy": _budget,
    "persistentvolumeclaims": _claim,
    "storageclasses.storage.k8s.io": _storage_class,
    "services": _service,
    "priorityclasses.scheduling.k8s.io": _priority_class,
}


def validate_update(kind: Kind, new: Object, old: Object) -> Iterator[Fault]:
    """Faults of a change to a built-in object: fields that are fixed once it exists."""
    if kind.collection == "pods":
        yield from _pod_update(new["spec"], old["spec"])
    elif kind.collection == "statefulsets.apps":
        changed = {k for k in (*new["spec"], *old["spec"]) if new["spec"].get(k) != old["spec"].get(k)}
        if changed - _STATEFUL_SET_MAY_CHANGE:
            yield forbidden_field(
                "spec",
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
                "'updateStrategy', "
                "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
            )
    elif kind.collection in ("configmaps", "secrets") and old.get("immutable"):
        if any(new.get(name) != old.get(name) for name in ("data", "binaryData", "immutable")):
            yield forbidden_field("data", "field is immutable when `immutable` is set")
    elif kind.collection == "nodes":
        before, after = old["spec"].get("providerID"), new["spec"].get("providerID")
        if before and after != before:
            yield forbidden_field("spec.providerID", 'node updates may not change providerID except from "" to valid')
    else:
        if kind.collection == "priorityclasses.scheduling.k8s.io" and new.get("value") != old.get("value"):
            yield forbidden_field("value", "may not be changed in an update.")
        for path in _FIXED.get(kind.collection, ()):
            before, after = _at(old, path), _at(new, path)
            if before != after and (before is not None or path not in _MAY_BE_SET):
                yield invalid(".".join(path), after, "field is immutable")


_STATEFUL_SET_MAY_CHANGE = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)
_SELECTOR = ("spec", "selector")
_FIXED: dict[str, tuple[tuple[str, ...], ...]] = {
    "deployments.apps": (_SELECTOR,),
    "replicasets.apps": (_SELECTOR,),
    "daemonsets.apps": (_SELECTOR,),
    "jobs.batch": (_SELECTOR, ("spec", "completions"), ("spec", "template")),
    "services": (("spec", "clusterIP"),),
    "storageclasses.storage.k8s.io": (("provisioner",), ("parameters",), ("reclaimPolicy",), ("volumeBindingMode",)),
    "priorityclasses.scheduling.k8s.io": (("preemptionPolicy",),),
    "persistentvolumeclaims": (
        ("spec", "volumeName"),
        ("spec", "storageClassName"),
        ("spec", "accessModes"),
        ("spec", "selector"),
    ),
}
_MAY_BE_SET = frozenset({("spec", "clusterIP"), ("spec", "volumeName"), ("spec", "storageClassName")})


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj


def _pod_update(new: Object, old: Object) -> Iterator[Fault]:
    """Images, deadlines, added tolerations, and fewer scheduling gates may change; all else is fixed."""
    if new == old:
        return
    gates_before = [gate.get("name") for gate in old.get("schedulingGates") or ()]
    gates_after = [gate.get("name") for gate in new.get("schedulingGates") or ()]
    gated = bool(gates_before)
    if any(gate not in gates_before for gate in gates_after):
        yield forbidden_field("spec.schedulingGates", "only deletion is allowed, but found new scheduling gate")
    known = old.get("tolerations") or []
    if any(toleration not in (new.get("tolerations") or []) for toleration in known):
        yield forbidden_field(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )
    if _fixed_part(new, gated=gated) != _fixed_part(old, gated=gated):
        yield forbidden_field(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        )


def _fixed_part(spec: Object, *, gated: bool) -> Object:
    free = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if gated:
        free |= {"nodeSelector", "affinity"}
    part = {key: value for key, value in spec.items() if key not in free}
    for group in ("containers", "initContainers"):
        if group in part:
            part[group] = [{k: v for k, v in item.items() if k != "image"} for item in part[group]]
    return part
