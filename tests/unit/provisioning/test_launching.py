"""Carrying out claims, from pending pods to bound ones, with everything real but the outside."""

from wainwright.kube.resources import NODE_CLAIMS, NODES, PODS


def test_pending_pods_get_one_node_and_run_on_it(world):
    world.pods("a", "b", "c")
    world.settle()
    [launch] = world.launches()
    assert {pod["spec"]["nodeName"] for pod in world.kube.of(PODS).values()} == {launch.node_claim}
    assert list(world.kube.of(NODE_CLAIMS)) == list(world.kube.of(NODES)) == [launch.node_claim]
