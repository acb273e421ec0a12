"""What must hold when everything has come to rest, whatever was killed, lost or emptied on the way."""

import json
from collections import Counter


def faults_of(system, pools=None, *, doubles_before=()):
    """Every way in which promise 1 is broken: no pod lost, no node bought twice, nothing left over.

    pools: NodePools that are looked at; None: all.
    """
    pods = system.pods()
    claims = {c["metadata"]["name"]: c for c in system.claims()}
    nodes = {node["metadata"]["name"] for node in system.list("Node")}
    instances, record = system.live_instances(), system.launches()
    if pools is not None:
        claims = {k: c for k, c in claims.items() if c["metadata"]["labels"]["karpenter.sh/nodepool"] in pools}
        instances = [instance for instance in instances if instance["node_pool"] in pools]
    faults = [f"{d} had two instances at one time" for d in record["doubles"] if d not in doubles_before]
    for claim, count in Counter(instance["node_claim"] for instance in instances).items():
        if count > 1:
            faults.append(f"claim {claim} has {count} instances")
        if claim not in claims:
            faults.append(f"the instance of {claim} has no NodeClaim")
    with_instance = {instance["node_claim"] for instance in instances}
    faults += [f"claim {name} has no instance" for name in claims if name not in with_instance]
    wanted = Counter(uid for claim in claims.values() for uid in pods_of(claim))
    faults += [f"{count} NodeClaims are for pod {uid}" for uid, count in wanted.items() if count > 1]
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        if not node:
            faults.append(f"pod {pod['metadata']['name']} is not bound")
        elif node not in nodes:
            faults.append(f"pod {pod['metadata']['name']} is bound to {node}, which is not there")
    used = {pod["spec"].get("nodeName") for pod in pods}
    for name, claim in claims.items():
        node = claim.get("status", {}).get("nodeName", "")
        if node not in used:
            faults.append(f"claim {name}: nothing runs on its node {node or '(none)'}")
        state = system.redis(lambda redis, name=name: redis.hget(system.keys.claim(name), "state"))
        if state != "done":
            faults.append(f"the record of claim {name} is {state}, not done")
    return faults


def open_records(system):
    """Records that are not over: nothing may stay behind for ever."""
    keys = system.keys
    counts = {
        "seen": system.redis(lambda redis: redis.hlen(keys.seen)),
        "planned": system.redis(lambda redis: redis.hlen(keys.planned)),
        "batches closed": system.redis(lambda redis: redis.zcard(keys.batches("closed"))),
        "batches planned": system.redis(lambda redis: redis.zcard(keys.batches("planned"))),
        "claims due": system.redis(lambda redis: redis.zcard(keys.claims_due)),
    }
    return {what: count for what, count in counts.items() if count}


def pods_of(claim):
    """UIDs of the pods that a NodeClaim was made for."""
    entries = json.loads(claim["metadata"].get("annotations", {}).get("wainwright.dev/pods", "[]"))
    return [entry if isinstance(entry, str) else entry[0] for entry in entries]
