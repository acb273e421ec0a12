"""Which NodePool's window a pod waits in."""

from scheduling_builders import a_catalog, a_pod, a_pool, a_type, requirement

from wainwright.scheduling.routing import Router, could_take, route

CATALOG = a_catalog()


def router(*pools):
    return Router(pools, {pool.name: CATALOG for pool in pools})


def test_the_heaviest_pool_that_could_take_it_wins_then_the_name():
    tainted = a_pool("team", weight=50, taints=[{"key": "team", "effect": "NoSchedule"}])
    pools = (a_pool("b", weight=10), a_pool("a", weight=10), tainted)
    assert router(*pools).route(a_pod()) == "a"
    assert router(*pools).route(a_pod(tolerations=[{"operator": "Exists"}])) == "team"


def test_a_pod_that_no_pool_could_take_waits_in_the_first():
    assert router(a_pool("b"), a_pool("a")).route(a_pod(cpu="900")) == "a"
    assert router(a_pool("b"), a_pool("a")).route(a_pod(cpu="much")) == "a"
    assert Router((), {}).route(a_pod()) == ""


def test_selectors_on_custom_labels_find_the_pool_that_has_them():
    pools = (a_pool("a"), a_pool("b", labels={"team": "red"}))
    assert router(*pools).route(a_pod(nodeSelector={"team": "red"})) == "b"


def test_a_label_the_pool_leaves_open_can_take_any_of_its_values():
    pools = (a_pool("a"), a_pool("b", requirements=[requirement("rack", "In", "1", "2", "3")]))
    ask = router(*pools)
    assert ask.route(a_pod(nodeSelector={"rack": "2"})) == "b"
    assert ask.route(a_pod(nodeSelector={"rack": "4"})) == "a"
    assert ask.route(a_pod(nodeSelector={"rack": "3"})) == "b"


def test_shortages_and_limits_do_not_change_the_window():
    sold_out = a_catalog(a_type("m2", offerings=()), a_type("m4"))
    assert could_take(a_pool(limits={"cpu": "0"}), sold_out, a_pod())


def test_the_function_remembers_the_last_pools_and_sees_new_ones():
    one, two = a_pool("one"), a_pool("two", labels={"team": "red"})
    pod = a_pod(nodeSelector={"team": "red"})
    assert route(pod, [one], {"one": CATALOG}) == "one"
    assert route(pod, [one, two], {"one": CATALOG, "two": CATALOG}) == "two"
