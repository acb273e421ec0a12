"""Manifests with defaults, so that a test shows only what matters to it."""

import itertools

numbers = itertools.count(1)


def a_node_pool(name="general", *, types=("c6a.large",), node_class=None, requirements=(), **spec):
    """A NodePool of on-demand nodes of these types."""
    template = spec.pop("template", {})
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "metadata": template.pop("metadata", {}),
                "spec": {
                    "nodeClassRef": node_class
                    or {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                        *(
                            [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": list(types)}]
                            if types
                            else []
                        ),
                        *requirements,
                    ],
                    **template,
                },
            },
            **spec,
        },
    }


def a_pod_spec(cpu="500m", memory="128Mi", **spec):
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    return {"containers": [{"name": "app", "image": "registry.example/app:1", "resources": resources}], **spec}


def a_pod(name=None, *, cpu="500m", memory="128Mi", labels=None, annotations=None, namespace="default", **spec):
    meta = {"name": name or f"pod-{next(numbers)}", "namespace": namespace}
    meta |= {"labels": labels} if labels else {}
    meta |= {"annotations": annotations} if annotations else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": a_pod_spec(cpu, memory, **spec)}


def a_deployment(name="web", replicas=3, *, cpu="500m", memory="128Mi", namespace="default", **spec):
    """Its pods carry the label app=NAME."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": a_pod_spec(cpu, memory, **spec)},
        },
    }
