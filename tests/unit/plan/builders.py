"""Manifests with what matters in sight, and plans of them without files."""

import json

import yaml

from wainwright.scheduling.instance_types import Catalog, InstanceType, Offering
from workers.plan.command import make_plan
from workers.plan.documents import parse
from workers.plan.findings import Findings
from workers.plan.inputs import assemble, empty_cluster
from workers.plan.manifests import sort_documents
from workers.plan.output import make_output

GIB = 2**30


def a_pod_spec(cpu="500m", memory="256Mi", **spec):
    requests = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    container = {"name": "app", "image": "registry.example/app:1", "resources": {"requests": requests}}
    return {"containers": [container], **spec}


def a_pod(name="solo", *, namespace="default", labels=None, **spec):
    meta = {"name": name, "namespace": namespace, "labels": labels or {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": a_pod_spec(**spec)}


def a_workload(kind="Deployment", name="web", *, replicas=1, namespace="default", more=None, **spec):
    template = {"metadata": {"labels": {"app": name}}, "spec": a_pod_spec(**spec)}
    content = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template, **(more or {})}
    if kind == "DaemonSet":
        del content["replicas"]
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": content}


def a_job(name="batch", *, spec=None, **pod):
    template = {"spec": a_pod_spec(restartPolicy="Never", **pod)}
    meta = {"name": name}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template, **(spec or {})}}


def a_node_pool(name="general", *, requirements=(), taints=(), **spec):
    template = {
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": list(requirements),
            "taints": list(taints),
        }
    }
    meta = {"name": name}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": meta,
        "spec": {"template": template, **spec},
    }


def a_node(name="node-1", *, cpu="4", memory="8Gi", labels=None, allocatable=None, **spec):
    sizes = {"cpu": cpu, "memory": memory, "pods": "110"} if allocatable is None else allocatable
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": sizes, "capacity": sizes} if sizes else {},
    }


def a_type(name, cpu, memory_gib, price, *, zones=("zone-a", "zone-b"), arch="amd64"):
    return InstanceType(
        name=name,
        arch=arch,
        capacity={"cpu": cpu * 1000, "memory": memory_gib * GIB, "pods": 110},
        offerings=tuple(Offering(zone=zone, capacity_type="on-demand", price=price) for zone in zones),
    )


SMALL = Catalog(version="small", instance_types=(a_type("s2", 2, 4, 0.1), a_type("s4", 4, 8, 0.19)))


def yaml_of(*objects):
    return yaml.safe_dump_all(objects, sort_keys=False).encode()


def read(*objects):
    """Manifests and findings of objects, or of one text."""
    findings = Findings()
    text = objects[0] if isinstance(objects[0], bytes) else yaml_of(*objects)
    return sort_documents(parse(text, "test.yaml", findings), findings), findings


def given(*objects, catalog=SMALL, cluster=None, **options):
    manifests, findings = read(*objects)
    return assemble(manifests, cluster or empty_cluster(), lambda _pool: catalog, findings, **options)


def planned(*objects, **options):
    """The answer as a program reads it."""
    found = given(*objects, **options)
    return as_json(make_output(found, make_plan(found)))


def as_json(answer):
    import msgspec

    return json.loads(msgspec.json.encode(answer))


def placed(answer):
    """Every pod with a place."""
    on_new = [pod for claim in answer["new_node_claims"] for pod in claim["pods"]]
    return sorted([*on_new, *(pod for pods in answer["existing_nodes"].values() for pod in pods)])
