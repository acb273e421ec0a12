"""The Redis scripts keep the rules of the pure window policy, exactly: both are fed the server's own times."""

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.batching.conftest import a_lock, queued
from wainwright.batching.batcher import read_batch
from wainwright.batching.pools import use_pool
from wainwright.batching.windows import Window, WindowPolicy, closed, is_due, with_item

POLICIES = st.builds(
    WindowPolicy,
    idle_ms=st.sampled_from([0, 1, 2, 5, 1000]),
    max_ms=st.sampled_from([0, 2, 4, 1000]),
    max_items=st.integers(1, 6),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 4)),
        st.tuples(st.just("see again"), st.just(1)),
        st.tuples(st.just("close"), st.just(1)),
        st.tuples(st.just("let time pass"), st.integers(1, 3)),
    ),
    max_size=25,
)


def recorded(store):
    held = store.redis.hgetall(store.keys.window("general"))
    return (
        Window(opened_ms=int(held["opened_ms"]), due_ms=int(held["due_ms"]), items=int(held["items"])) if held else None
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(policy=POLICIES, steps=STEPS)
def test_scripts_agree_with_the_pure_policy(make_store, policy, steps):
    store = make_store(policy)
    for key in store.redis.scan_iter(f"{store.keys.prefix}*"):
        store.redis.delete(key)
    use_pool(store, "general", "u")
    lock, numbers, window, waiting, left = a_lock(store), itertools.count(), None, [], []
    for step, amount in steps:
        if step == "add":
            pods = [f"pod-{next(numbers)}" for _ in range(amount)]
            reply = store.run("add", "general", "u", lock.name, "", *(p for pod in pods for p in (pod, f"d/{pod}")))
            for _ in pods:
                window = with_item(window, reply[2], policy)
            waiting += pods
        elif step == "see again" and waiting:
            store.run("add", "general", "u", lock.name, "", waiting[0], "d/x")
        elif step == "close":
            reply = store.run("close", *lock.claim, "general", f"t{next(numbers)}")
            if window is None:
                assert reply == ["none"]
            elif reply[0] == "early":
                assert not is_due(window, reply[2])
            else:
                now_ms = int(store.redis.hget(store.keys.batch(reply[1]), "closed_ms"))
                assert is_due(window, now_ms)
                count, window = closed(window, now_ms, policy)
                assert [item.uid for item in read_batch(store, reply[1]).items] == waiting[:count]
                left += waiting[:count]
                waiting = waiting[count:]
        elif step == "let time pass":
            until_ms = store.now_ms() + amount
            while store.now_ms() < until_ms:
                pass
        assert recorded(store) == window
        assert queued(store) == waiting
        due = store.redis.zscore(store.keys.windows, "general")
        assert due == (window.due_ms if window else None)
