"""Tables as `kubectl get` prints them: columns and cells of each kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from wainwright.sim.apiserver.kinds import Column, Kind, Object
from wainwright.sim.apiserver.selectors import selector_text

Cell = str | int | bool | float | None

_NAME = Column("Name", ".metadata.name", format="name")
_AGE = Column("Age", ".metadata.creationTimestamp")


def _columns(text: str) -> tuple[Column, ...]:
    """`Ready, Up-to-date:integer, IP*`: a type behind the colon, a star for columns that only `-o wide` shows."""
    found = []
    for part in text.split(","):
        name, _, kind = part.strip().partition(":")
        found.append(
            Column(name.rstrip("*"), "", kind.rstrip("*") or "string", priority=int(part.strip().endswith("*")))
        )
    return tuple(found)


def age(since: Any, now: datetime) -> str:
    """A duration as kubectl writes it: 5s, 2m30s, 45m, 3h20m, 2d5h, 40d."""
    if not since:
        return "<unknown>"
    try:
        seconds = int((now - datetime.fromisoformat(str(since))).total_seconds())
    except (ValueError, TypeError):
        return "<unknown>"
    return duration(seconds)


def duration(seconds: int) -> str:
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y{days % 365}d" if days < 365 * 8 and days % 365 else f"{days // 365}y"


def _get(obj: Any, *path: str) -> Any:
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj


def _spec(obj: Object) -> Object:
    spec = obj.get("spec")
    return spec if isinstance(spec, dict) else {}


def _status(obj: Object) -> Object:
    status = obj.get("status")
    return status if isinstance(status, dict) else {}


def _condition(obj: Object, type_: str) -> Object | None:
    return next((c for c in _status(obj).get("conditions") or () if c.get("type") == type_), None)


def _created(obj: Object, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _names(containers: Iterable[Object]) -> tuple[str, str]:
    containers = list(containers)
    return (
        ",".join(str(container.get("name", "")) for container in containers),
        ",".join(str(container.get("image", "")) for container in containers),
    )


def _template_names(obj: Object) -> tuple[str, str]:
    return _names(_get(_spec(obj), "template", "spec", "containers") or ())


def _selector(obj: Object) -> str:
    return selector_text(_spec(obj).get("selector") or {}) or "<none>"


def pod_reason(pod: Object) -> str:
    """The word in kubectl's STATUS column: phase, or why a container is not there, or Terminating."""
    status = _status(pod)
    reason = str(status.get("reason") or status.get("phase") or "Unknown")
    if any(
        c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in status.get("conditions") or ()
    ):
        reason = "SchedulingGated"
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        if (state.get("terminated") or {}).get("exitCode") == 0:
            continue
        waiting = (state.get("waiting") or {}).get("reason")
        if waiting and waiting != "PodInitializing":
            reason = f"Init:{waiting}"
        else:
            reason = f"Init:{index}/{len(_spec(pod).get('initContainers') or ())}"
        break
    else:
        for container in reversed(status.get("containerStatuses") or ()):
            state = container.get("state") or {}
            waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
            if waiting.get("reason"):
                reason = waiting["reason"]
            elif ended:
                reason = ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}"
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def _pod(pod: Object, now: datetime) -> list[Cell]:
    status, spec = _status(pod), _spec(pod)
    statuses = status.get("containerStatuses") or ()
    ready = sum(bool(container.get("ready")) for container in statuses)
    restarts = sum(int(container.get("restartCount", 0)) for container in statuses)
    gates = spec.get("readinessGates") or ()
    met = sum((_condition(pod, gate.get("conditionType")) or {}).get("status") == "True" for gate in gates)
    return [
        pod["metadata"]["name"],
        f"{ready}/{len(spec.get('containers') or ())}",
        pod_reason(pod),
        str(restarts),
        _created(pod, now),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"{met}/{len(gates)}" if gates else "<none>",
    ]


def _node(node: Object, now: datetime) -> list[Cell]:
    ready = _condition(node, "Ready")
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if _spec(node).get("unschedulable"):
        words.append("SchedulingDisabled")
    labels = node["metadata"].get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key[len(prefix) :] for key in labels if key.startswith(prefix) and len(key) > len(prefix))
    info = _status(node).get("nodeInfo") or {}
    addresses = {a.get("type"): a.get("address") for a in _status(node).get("addresses") or ()}
    return [
        node["metadata"]["name"],
        ",".join(words),
        ",".join(roles) or "<none>",
        _created(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or "<none>",
        addresses.get("ExternalIP") or "<none>",
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _deployment(obj: Object, now: datetime) -> list[Cell]:
    status = _status(obj)
    return [
        obj["metadata"]["name"],
        f"{status.get('readyReplicas', 0)}/{_spec(obj).get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _created(obj, now),
        *_template_names(obj),
        _selector(obj),
    ]


def _replica_set(obj: Object, now: datetime) -> list[Cell]:
    status = _status(obj)
    return [
        obj["metadata"]["name"],
        _spec(obj).get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        _created(obj, now),
        *_template_names(obj),
        _selector(obj),
    ]


def _stateful_set(obj: Object, now: datetime) -> list[Cell]:
    ready = _status(obj).get("readyReplicas", 0)
    return [
        obj["metadata"]["name"],
        f"{ready}/{_spec(obj).get('replicas', 0)}",
        _created(obj, now),
        *_template_names(obj),
    ]


def _daemon_set(obj: Object, now: datetime) -> list[Cell]:
    status = _status(obj)
    numbers = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled")
    selector = _get(_spec(obj), "template", "spec", "nodeSelector") or {}
    return [
        obj["metadata"]["name"],
        *(status.get(number, 0) for number in (*numbers, "numberAvailable")),
        ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>",
        _created(obj, now),
        *_template_names(obj),
        _selector(obj),
    ]


def _job(obj: Object, now: datetime) -> list[Cell]:
    spec, status = _spec(obj), _status(obj)
    succeeded, completions = status.get("succeeded", 0), spec.get("completions")
    parallelism = spec.get("parallelism", 1)
    if completions is not None:
        progress = f"{succeeded}/{completions}"
    else:
        progress = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    if (_condition(obj, "Complete") or {}).get("status") == "True":
        state = "Complete"
    elif (_condition(obj, "Failed") or {}).get("status") == "True":
        state = "Failed"
    elif obj["metadata"].get("deletionTimestamp"):
        state = "Terminating"
    elif (_condition(obj, "Suspended") or {}).get("status") == "True":
        state = "Suspended"
    else:
        state = "FailureTarget" if _condition(obj, "FailureTarget") else "Running"
    took = ""
    if status.get("startTime"):
        end = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
        took = age(status["startTime"], end)
    return [obj["metadata"]["name"], state, progress, took, _created(obj, now), *_template_names(obj), _selector(obj)]


def _cron_job(obj: Object, now: datetime) -> list[Cell]:
    spec, status = _spec(obj), _status(obj)
    last = status.get("lastScheduleTime")
    return [
        obj["metadata"]["name"],
        spec.get("schedule", ""),
        spec.get("timeZone") or "<none>",
        "True" if spec.get("suspend") else "False",
        len(status.get("active") or ()),
        age(last, now) if last else "<none>",
        _created(obj, now),
        *_names(_get(spec, "jobTemplate", "spec", "template", "spec", "containers") or ()),
        selector_text(_get(spec, "jobTemplate", "spec", "selector") or {}) or "<none>",
    ]


def _service(obj: Object, now: datetime) -> list[Cell]:
    spec = _spec(obj)
    ports = [
        f"{port.get('port')}:{port['nodePort']}/{port.get('protocol')}"
        if port.get("nodePort")
        else f"{port.get('port')}/{port.get('protocol')}"
        for port in spec.get("ports") or ()
    ]
    addresses = [a.get("ip") or a.get("hostname") for a in _get(_status(obj), "loadBalancer", "ingress") or ()]
    external = ",".join(filter(None, addresses)) or ("<pending>" if spec.get("type") == "LoadBalancer" else "<none>")
    selector = ",".join(f"{key}={value}" for key, value in sorted((spec.get("selector") or {}).items()))
    return [
        obj["metadata"]["name"],
        spec.get("type", ""),
        spec.get("clusterIP") or "<none>",
        external,
        ",".join(ports) or "<none>",
        _created(obj, now),
        selector or "<none>",
    ]


def _event(obj: Object, now: datetime) -> list[Cell]:
    about, source = obj.get("involvedObject") or {}, obj.get("source") or {}
    series = obj.get("series") or {}
    last = (
        series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("eventTime") or obj.get("firstTimestamp")
    )
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    origin = source.get("component") or obj.get("reportingComponent") or ""
    if source.get("host"):
        origin = f"{origin}, {source['host']}"
    return [
        age(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        origin,
        str(obj.get("message", "")).strip(),
        age(first, now),
        str(series.get("count") or obj.get("count") or 1),
        obj["metadata"]["name"],
    ]


def _modes(spec: Object) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(short.get(mode, mode) for mode in spec.get("accessModes") or ())


def _claim(obj: Object, now: datetime) -> list[Cell]:
    spec, status = _spec(obj), _status(obj)
    bound = bool(spec.get("volumeName"))
    return [
        obj["metadata"]["name"],
        "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", ""),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "") if bound else "",
        _modes(status) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        _created(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _volume(obj: Object, now: datetime) -> list[Cell]:
    spec, status = _spec(obj), _status(obj)
    claim = spec.get("claimRef") or {}
    return [
        obj["metadata"]["name"],
        (spec.get("capacity") or {}).get("storage", ""),
        _modes(spec),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", ""),
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        status.get("reason", ""),
        _created(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _budget(obj: Object, now: datetime) -> list[Cell]:
    spec = _spec(obj)

    def bound(name: str) -> str:
        return "N/A" if spec.get(name) is None else str(spec[name])

    return [
        obj["metadata"]["name"],
        bound("minAvailable"),
        bound("maxUnavailable"),
        _status(obj).get("disruptionsAllowed", 0),
        _created(obj, now),
    ]


def _target(metric: Object) -> str:
    """What a metric aims at; nothing here measures it."""
    source = _get(metric, str(metric.get("type", "")).lower()) or {}
    target = source.get("target") or {}
    share = target.get("averageUtilization")
    wanted = f"{share}%" if share is not None else target.get("averageValue") or target.get("value") or "<auto>"
    name = source.get("name")
    return f"{name}: <unknown>/{wanted}" if name else f"<unknown>/{wanted}"


def _autoscaler(obj: Object, now: datetime) -> list[Cell]:
    spec, status = _spec(obj), _status(obj)
    target = spec.get("scaleTargetRef") or {}
    return [
        obj["metadata"]["name"],
        f"{target.get('kind')}/{target.get('name')}",
        ", ".join(_target(metric) for metric in spec.get("metrics") or ()) or "<none>",
        str(spec.get("minReplicas") or "<unset>"),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        _created(obj, now),
    ]


def _storage_class(obj: Object, now: datetime) -> list[Cell]:
    annotations = obj["metadata"].get("annotations") or {}
    default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        f"{obj['metadata']['name']} (default)" if default else obj["metadata"]["name"],
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", ""),
        obj.get("volumeBindingMode", ""),
        bool(obj.get("allowVolumeExpansion")),
        _created(obj, now),
    ]


def _controller(obj: Object) -> str:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            group = str(owner.get("apiVersion", "")).partition("/")[0]
            return f"{str(owner.get('kind', '')).lower()}.{group}/{owner.get('name')}"
    return "<none>"


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


_PRINTERS: dict[str, tuple[str, Callable[[Object, datetime], list[Cell]]]] = {
    "pods": ("Name, Ready, Status, Restarts, Age, IP*, Node*, Nominated Node*, Readiness Gates*", _pod),
    "nodes": (
        "Name, Status, Roles, Age, Version, Internal-IP*, External-IP*, OS-Image*, Kernel-Version*, Container-Runtime*",
        _node,
    ),
    "deployments.apps": (
        "Name, Ready, Up-to-date, Available, Age, Containers*, Images*, Selector*",
        _deployment,
    ),
    "replicasets.apps": (
        "Name, Desired:integer, Current:integer, Ready:integer, Age, Containers*, Images*, Selector*",
        _replica_set,
    ),
    "replicationcontrollers": (
        "Name, Desired:integer, Current:integer, Ready:integer, Age, Containers*, Images*, Selector*",
        _replica_set,
    ),
    "statefulsets.apps": ("Name, Ready, Age, Containers*, Images*", _stateful_set),
    "daemonsets.apps": (
        (
            "Name, Desired:integer, Current:integer, Ready:integer, Up-to-date:integer, Available:integer, "
            "Node Selector, Age, Containers*, Images*, Selector*"
        ),
        _daemon_set,
    ),
    "jobs.batch": ("Name, Status, Completions, Duration, Age, Containers*, Images*, Selector*", _job),
    "cronjobs.batch": (
        (
            "Name, Schedule, Timezone, Suspend:boolean, Active:integer, Last Schedule, Age, "
            "Containers*, Images*, Selector*"
        ),
        _cron_job,
    ),
    "services": ("Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector*", _service),
    "events": (
        "Last Seen, Type, Reason, Object, Subobject*, Source*, Message, First Seen*, Count*, Name*",
        _event,
    ),
    "persistentvolumeclaims": (
        "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, VolumeMode*",
        _claim,
    ),
    "persistentvolumes": (
        (
            "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, VolumeAttributesClass, "
            "Reason, Age, VolumeMode*"
        ),
        _volume,
    ),
    "poddisruptionbudgets.policy": (
        "Name, Min Available, Max Unavailable, Allowed Disruptions:integer, Age",
        _budget,
    ),
    "horizontalpodautoscalers.autoscaling": (
        "Name, Reference, Targets, MinPods, MaxPods, Replicas, Age",
        _autoscaler,
    ),
    "storageclasses.storage.k8s.io": (
        "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age",
        _storage_class,
    ),
    "namespaces": (
        "Name, Status, Age",
        lambda o, now: [_name(o), _status(o).get("phase", ""), _created(o, now)],
    ),
    "configmaps": (
        "Name, Data, Age",
        lambda o, now: [_name(o), len(o.get("data") or ()) + len(o.get("binaryData") or ()), _created(o, now)],
    ),
    "secrets": (
        "Name, Type, Data, Age",
        lambda o, now: [_name(o), o.get("type", ""), len(o.get("data") or ()), _created(o, now)],
    ),
    "leases.coordination.k8s.io": (
        "Name, Holder, Age",
        lambda o, now: [_name(o), _spec(o).get("holderIdentity", ""), _created(o, now)],
    ),
    "priorityclasses.scheduling.k8s.io": (
        "Name, Value:integer, Global-Default:boolean, Age, PreemptionPolicy",
        lambda o, now: [
            _name(o),
            o.get("value", 0),
            bool(o.get("globalDefault")),
            _created(o, now),
            o.get("preemptionPolicy", ""),
        ],
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        "Name, Created At",
        lambda o, _: [_name(o), o["metadata"].get("creationTimestamp", "")],
    ),
    "controllerrevisions.apps": (
        "Name, Controller, Revision:integer, Age",
        lambda o, now: [_name(o), _controller(o), o.get("revision", 0), _created(o, now)],
    ),
}


def columns_of(kind: Kind) -> tuple[Column, ...]:
    printer = _PRINTERS.get(kind.collection)
    if printer is not None and not kind.custom:
        first, *rest = _columns(printer[0])
        name = Column(first.name, "", format="name") if first.name == "Name" else first
        return (name, *rest)
    return (_NAME, *(kind.columns or (_AGE,)))


def cells_of(kind: Kind, obj: Object, now: datetime) -> list[Cell]:
    printer = _PRINTERS.get(kind.collection)
    if printer is not None and not kind.custom:
        return printer[1](obj, now)
    return [_name(obj), *(_cell(column, obj, now) for column in kind.columns or (_AGE,))]


def _cell(column: Column, obj: Object, now: datetime) -> Cell:
    found = list(json_path(column.path, obj))
    if not found:
        return None
    value = found[0]
    if column.type == "date" or column.path == ".metadata.creationTimestamp":
        return age(value, now)
    match column.type, value:
        case "integer", int():
            return value
        case "number", int() | float():
            return float(value)
        case "boolean", bool():
            return value
        case "string", _ if isinstance(value, (dict, list)):
            import msgspec

            return msgspec.json.encode(value).decode()
        case "string", _:
            if isinstance(value, bool):
                return "true" if value else "false"
            return ",".join(str(item) for item in found) if len(found) > 1 else str(value)
        case _:
            return None


_STEP = re.compile(
    r"\.(?P<name>(?:[^.\[\]\\]|\\.)+)|\['(?P<quoted>[^']+)'\]|\[(?P<index>-?\d+|\*)\]"
    r"|\[\?\(@\.(?P<key>[\w.\-]+)\s*==\s*[\"'](?P<value>[^\"']*)[\"']\)\]"
)


def json_path(path: str, obj: Any) -> Iterable[Any]:
    """Values that a printer column's path finds: names, indexes, `[*]` and `[?(@.key=="value")]` are known."""
    values = [obj]
    for match in _STEP.finditer(path.strip("{}")):
        found: list[Any] = []
        name = match["name"] or match["quoted"]
        for value in values:
            if name is not None and isinstance(value, dict):
                key = name.replace("\\", "")
                if key in value:
                    found.append(value[key])
            elif match["index"] == "*" and isinstance(value, (list, dict)):
                found += value if isinstance(value, list) else value.values()
            elif match["index"] and match["index"] != "*" and isinstance(value, list):
                index = int(match["index"])
                if -len(value) <= index < len(value):
                    found.append(value[index])
            elif match["key"] and isinstance(value, list):
                keys = match["key"].split(".")
                found += [item for item in value if str(_get(item, *keys)) == match["value"]]
        values = found
    return [value for value in values if value is not None]


def _definition(column: Column) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description or column.name,
        "priority": column.priority,
    }


def table(kind: Kind, objects: Iterable[Object], now: datetime, *, include: str, header: bool = True) -> Object:
    """A Table of objects, its list metadata left to the caller. include: Metadata, Object or None beside each row."""
    rows = []
    for obj in objects:
        row: Object = {"cells": cells_of(kind, obj, now)}
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            row["object"] = partial_metadata(obj)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [_definition(column) for column in columns_of(kind)] if header else None,
        "rows": rows,
    }


def partial_metadata(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
