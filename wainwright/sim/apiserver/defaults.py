"""What the API server fills in: the defaults of built-in kinds."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from wainwright.sim.apiserver.kinds import Kind, Object
from wainwright.sim.apiserver.quantities import amount


def _default(obj: Object, **values: Any) -> None:
    for name, value in values.items():
        if obj.get(name) is None:
            obj[name] = value


def _probe(probe: Any) -> None:
    if isinstance(probe, dict):
        _default(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
        _http_get(probe)


def _http_get(handler: Object) -> None:
    action = handler.get("httpGet")
    if isinstance(action, dict):
        _default(action, path="/", scheme="HTTP")
    grpc = handler.get("grpc")
    if isinstance(grpc, dict):
        _default(grpc, service="")


def _container(container: Object) -> None:
    if container.get("imagePullPolicy") is None:
        image = str(container.get("image", ""))
        tag = image.rsplit("/", 1)[-1].partition(":")[2]
        latest = "@" not in image and tag in ("", "latest")
        container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    _default(container, resources={}, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File")
    resources = container["resources"]
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    for port in container.get("ports") or ():
        _default(port, protocol="TCP")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        _probe(container.get(probe))
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if isinstance(source, dict):
            if isinstance(source.get("fieldRef"), dict):
                _default(source["fieldRef"], apiVersion="v1")
            if isinstance(source.get("resourceFieldRef"), dict):
                _default(source["resourceFieldRef"], divisor="0")
    for handler in (container.get("lifecycle") or {}).values():
        if isinstance(handler, dict):
            _http_get(handler)


_VOLUME_MODES = ("secret", "configMap", "projected", "downwardAPI")


def _volume(volume: Object) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for source in _VOLUME_MODES:
        if isinstance(volume.get(source), dict):
            _default(volume[source], defaultMode=420)
    downward = [source.get("downwardAPI") or {} for source in (volume.get("projected") or {}).get("sources") or ()]
    for item in (item for source in (volume.get("downwardAPI") or {}, *downward) for item in source.get("items") or ()):
        if isinstance(item.get("fieldRef"), dict):
            _default(item["fieldRef"], apiVersion="v1")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if isinstance(source.get("serviceAccountToken"), dict):
            _default(source["serviceAccountToken"], expirationSeconds=3600)
    if isinstance(volume.get("hostPath"), dict):
        _default(volume["hostPath"], type="")
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if isinstance(claim, dict):
        _default(claim, metadata={}, spec={})
        _claim_spec(claim["spec"])


def pod_spec(spec: Object) -> None:
    """Defaults of a pod or of a pod template, in place."""
    _default(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
    )
    if isinstance(spec["terminationGracePeriodSeconds"], int) and spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(group) or ():
            _container(container)
    for volume in spec.get("volumes") or ():
        _volume(volume)
    if spec.get("serviceAccountName"):
        _default(spec, serviceAccount=spec["serviceAccountName"])
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]


_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def _pod(pod: Object) -> None:
    spec = pod["spec"]
    pod_spec(spec)
    _default(spec, enableServiceLinks=True)
    if spec.get("hostNetwork"):
        for container in spec.get("containers") or ():
            for port in container.get("ports") or ():
                _default(port, hostPort=port.get("containerPort"))
    status = pod.setdefault("status", {})
    _default(status, phase="Pending")
    if status.get("podIP") and not status.get("podIPs"):
        status["podIPs"] = [{"ip": status["podIP"]}]
    if "qosClass" not in status:
        status["qosClass"] = qos_class(spec)


def tolerate_defaults(spec: Object) -> None:
    """The admission plug-in DefaultTolerationSeconds: five minutes on a node that is not ready or not reachable."""
    tolerations = spec.get("tolerations") or []
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in _TOLERATED
        if not any(
            toleration.get("key") in (key, None, "") and toleration.get("effect") in ("NoExecute", None, "")
            for toleration in tolerations
        )
    ]
    if added:
        spec["tolerations"] = [*tolerations, *added]


def qos_class(spec: Object) -> str:
    """Guaranteed: every container's requests equal its limits for cpu and memory. BestEffort: none has either."""
    any_set, guaranteed = False, True
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            request, limit = requests.get(name, "0"), limits.get(name, "0")
            if request != "0" or limit != "0":
                any_set = True
            if limit == "0" or amount(request) != amount(limit):
                guaranteed = False
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _template(spec: Object) -> None:
    template = spec.get("template")
    if isinstance(template, dict):
        template.setdefault("metadata", {})
        pod_spec(template.setdefault("spec", {}))


def _deployment(obj: Object) -> None:
    spec = obj["spec"]
    _default(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600, strategy={})
    strategy = spec["strategy"]
    _default(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _default(strategy, rollingUpdate={})
        _default(strategy["rollingUpdate"], maxUnavailable="25%", maxSurge="25%")
    _template(spec)


def _replica_set(obj: Object) -> None:
    _default(obj["spec"], replicas=1)
    _template(obj["spec"])
    _default(obj.setdefault("status", {}), replicas=0)


def _stateful_set(obj: Object) -> None:
    spec = obj["spec"]
    _default(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady", updateStrategy={})
    _default(spec, persistentVolumeClaimRetentionPolicy={})
    _default(spec["persistentVolumeClaimRetentionPolicy"], whenDeleted="Retain", whenScaled="Retain")
    _default(spec["updateStrategy"], type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        _default(spec["updateStrategy"], rollingUpdate={})
        _default(spec["updateStrategy"]["rollingUpdate"], partition=0)
    _template(spec)
    for claim in spec.get("volumeClaimTemplates") or ():
        _default(claim, kind="PersistentVolumeClaim", apiVersion="v1", status={})
        _claim_spec(claim.setdefault("spec", {}))
        _default(claim["status"], phase="Pending")
    _default(obj.setdefault("status", {}), replicas=0, availableReplicas=0)


def _daemon_set(obj: Object) -> None:
    spec = obj["spec"]
    _default(spec, revisionHistoryLimit=10, updateStrategy={})
    _default(spec["updateStrategy"], type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        _default(spec["updateStrategy"], rollingUpdate={})
        _default(spec["updateStrategy"]["rollingUpdate"], maxUnavailable=1, maxSurge=0)
    _template(spec)
    _default(
        obj.setdefault("status", {}),
        currentNumberScheduled=0,
        desiredNumberScheduled=0,
        numberMisscheduled=0,
        numberReady=0,
    )


def job_spec(spec: Object) -> None:
    """Defaults of a Job, alone or in a CronJob's template, in place."""
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    _default(spec, parallelism=1, backoffLimit=6, completionMode="NonIndexed", suspend=False, manualSelector=False)
    _default(spec, podReplacementPolicy="TerminatingOrFailed")
    _template(spec)


def _job(obj: Object) -> None:
    spec = obj["spec"]
    manual = spec.get("manualSelector")
    job_spec(spec)
    if not manual:
        uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
        labels = {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        metadata = spec.get("template", {}).get("metadata")
        if isinstance(metadata, dict):
            metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
        _default(spec, selector={"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})
    template = (spec.get("template") or {}).get("metadata") or {}
    if template.get("labels") and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(template["labels"])


def _cron_job(obj: Object) -> None:
    spec = obj["spec"]
    _default(spec, concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    template = spec.get("jobTemplate")
    if isinstance(template, dict):
        template.setdefault("metadata", {})
        _template(template.setdefault("spec", {}))


def _service(obj: Object) -> None:
    spec = obj["spec"]
    _default(spec, type="ClusterIP", sessionAffinity="None")
    for port in spec.get("ports") or ():
        _default(port, protocol="TCP", targetPort=port.get("port"))
    if spec["type"] != "ExternalName":
        _default(spec, internalTrafficPolicy="Cluster", ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        _default(spec, externalTrafficPolicy="Cluster")
    obj.setdefault("status", {}).setdefault("loadBalancer", {})


def _claim_spec(spec: Object) -> None:
    _default(spec, volumeMode="Filesystem")


def _claim(obj: Object) -> None:
    _claim_spec(obj["spec"])
    _default(obj.setdefault("status", {}), phase="Pending")


def _volume_object(obj: Object) -> None:
    spec = obj["spec"]
    _default(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    if isinstance(spec.get("hostPath"), dict):
        _default(spec["hostPath"], type="")
    _default(obj.setdefault("status", {}), phase="Pending")


def _storage_class(obj: Object) -> None:
    _default(obj, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _csi_driver(obj: Object) -> None:
    spec = obj["spec"]
    _default(spec, attachRequired=True, podInfoOnMount=False, storageCapacity=False, requiresRepublish=False)
    _default(spec, fsGroupPolicy="ReadWriteOnceWithFSType", volumeLifecycleModes=["Persistent"], seLinuxMount=False)


def _secret(obj: Object) -> None:
    _default(obj, type="Opaque")
    plain = obj.pop("stringData", None)
    if isinstance(plain, dict):
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def _namespace(obj: Object) -> None:
    _default(obj["spec"], finalizers=["kubernetes"])
    _default(obj.setdefault("status", {}), phase="Active")
    labels = obj["metadata"].get("labels") or {}
    if labels.get("kubernetes.io/metadata.name") != obj["metadata"]["name"]:
        obj["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": obj["metadata"]["name"]}


def _node(obj: Object) -> None:
    status = obj["status"]
    if status.get("capacity") and "allocatable" not in status:
        status["allocatable"] = dict(status["capacity"])
    for taint in obj["spec"].get("taints") or ():
        taint.setdefault("effect", "")
    _default(status, daemonEndpoints={"kubeletEndpoint": {"Port": 0}})
    names = "architecture bootID containerRuntimeVersion kernelVersion kubeProxyVersion kubeletVersion machineID"
    empty = dict.fromkeys((*names.split(), "operatingSystem", "osImage", "systemUUID"), "")
    status["nodeInfo"] = {**empty, **(status.get("nodeInfo") or {})}


def _priority_class(obj: Object) -> None:
    _default(obj, preemptionPolicy="PreemptLowerPriority")


def _autoscaler(obj: Object) -> None:
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    _default(obj["spec"], minReplicas=1, metrics=[{"type": "Resource", "resource": cpu}])
    _default(obj["status"], desiredReplicas=0)
    obj["status"].setdefault("currentMetrics", None)


def _endpoint_slice(obj: Object) -> None:
    for port in obj.get("ports") or ():
        _default(port, name="", protocol="TCP")
    for endpoint in obj.get("endpoints") or ():
        _default(endpoint, conditions={})


def _network_policy(obj: Object) -> None:
    _default(obj["spec"], policyTypes=["Ingress", "Egress"] if obj["spec"].get("egress") else ["Ingress"])


def _event(obj: Object) -> None:
    _default(obj, source={}, type="", reportingComponent="", reportingInstance="")


def _budget(obj: Object) -> None:
    _default(obj.setdefault("status", {}), currentHealthy=0, desiredHealthy=0, disruptionsAllowed=0, expectedPods=0)


_BY_KIND: dict[str, Callable[[Object], None]] = {
    "pods": _pod,
    "deployments.apps": _deployment,
    "replicasets.apps": _replica_set,
    "replicationcontrollers": _replica_set,
    "statefulsets.apps": _stateful_set,
    "daemonsets.apps": _daemon_set,
    "jobs.batch": _job,
    "cronjobs.batch": _cron_job,
    "services": _service,
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume_object,
    "storageclasses.storage.k8s.io": _storage_class,
    "csidrivers.storage.k8s.io": _csi_driver,
    "secrets": _secret,
    "namespaces": _namespace,
    "nodes": _node,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "horizontalpodautoscalers.autoscaling": _autoscaler,
    "endpointslices.discovery.k8s.io": _endpoint_slice,
    "networkpolicies.networking.k8s.io": _network_policy,
    "events": _event,
    "poddisruptionbudgets.policy": _budget,
}

_WITH_SPEC = frozenset(_BY_KIND) - {
    "storageclasses.storage.k8s.io",
    "secrets",
    "priorityclasses.scheduling.k8s.io",
    "endpointslices.discovery.k8s.io",
    "events",
}


def apply_defaults(kind: Kind, obj: Object) -> None:
    """Fill in, in place, what the type of a built-in kind says when the client leaves it out. Metadata is complete."""
    fill = _BY_KIND.get(kind.collection)
    if kind.status:
        _default(obj, status={})
    if fill is None:
        return
    if kind.collection in _WITH_SPEC and not isinstance(obj.get("spec"), dict):
        obj["spec"] = {}
    fill(obj)
