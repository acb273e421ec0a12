"""What a solve keeps of what it read."""

from __future__ import annotations

import msgspec

from wainwright.api.pods import Pod
from wainwright.provisioning.reading import lean

TOLERATION = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}


def a_pod(node="", phase="Pending"):
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    pod = {
        "metadata": {"name": "web-0", "namespace": "default", "uid": "u1", "labels": {"app": "web"}},
        "spec": {"nodeName": node, "tolerations": [TOLERATION], "containers": [{"name": "app"}]},
        "status": {"phase": phase, "conditions": conditions, "startTime": "2026-01-01T00:00:00Z"},
    }
    return msgspec.convert(pod, Pod)


def test_a_pod_that_waits_stays_as_it_is():
    pod = a_pod()
    assert lean(pod) is pod
    assert pod.is_provisionable


def test_a_bound_pod_keeps_all_but_the_details_of_its_status():
    pod = a_pod(node="node-1", phase="Running")
    kept = lean(pod)
    assert (kept.metadata, kept.spec) == (pod.metadata, pod.spec)
    assert kept.status.phase == "Running"
    assert kept.status.conditions == ()
    assert not kept.is_terminal


def test_equal_bound_pods_share_what_is_equal():
    one, other = (lean(a_pod(node=node, phase="Running")) for node in ("node-1", "node-2"))
    assert one.spec.tolerations is other.spec.tolerations
    assert one.status is other.status
