"""KPAMetrics on fakeredis and a real server: get, create, delete, update, watch."""

import threading

import fakeredis
import msgspec
import pytest

from tests.conftest import fake_store
from tests.unit.autoscaling.builders import a_spec
from wainwright.podscaling import metrics as module
from wainwright.podscaling.kpa import KPAMetrics, Metric, MetricNotFound, ScaleUnknown
from wainwright.podscaling.records import decode_record, encode_record


@pytest.fixture(params=["fakeredis", "server"])
def make_store(request, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_BLOCK_SECONDS", 0.2)
    if request.param == "fakeredis":
        server = fakeredis.FakeServer()
        return lambda: fake_store(server=server)
    make_real_store = request.getfixturevalue("make_real_store")
    first = make_real_store()
    return lambda: make_real_store(prefix=first.keys.prefix)


@pytest.fixture
def store(make_store):
    return make_store()


def a_metric(name="web", **spec):
    return Metric(namespace="default", name=name, spec=a_spec(**spec), uid=f"uid-{name}")


def wish(store, key, desired):
    """What a decision leaves behind when the wish changed."""
    record = decode_record(store.raw.get(store.keys.kpa_state(key)))
    state = msgspec.structs.replace(record.state, desired=desired)
    new = msgspec.structs.replace(record, decided_ms=record.decided_ms + 1, state=state)
    assert store.run("kpa_commit", 0, "", 1, key, record.decided_ms, encode_record(new), 1, "", "", desired, 1) == []


def test_a_new_decider_has_no_wish_yet(store):
    metrics = KPAMetrics(store)
    created = metrics.create(a_metric())
    assert created.desired_scale == ScaleUnknown == -1
    assert metrics.get("default", "web") == created


def test_creating_what_is_there_keeps_it(store):
    metrics = KPAMetrics(store)
    metrics.create(a_metric(target=7.0))
    wish(store, "default/web", 4)
    again = metrics.create(a_metric(target=9.0))
    assert (again.spec.target, again.desired_scale) == (7.0, 4)


def test_updating_changes_the_parameters_and_keeps_the_statistics(store):
    metrics = KPAMetrics(store)
    metrics.create(a_metric())
    wish(store, "default/web", 4)
    updated = metrics.update(a_metric(target=9.0))
    assert (updated.spec.target, updated.desired_scale) == (9.0, 4)


def test_what_is_not_there_is_not_found_and_deleting_it_is_no_error(store):
    metrics = KPAMetrics(store)
    with pytest.raises(MetricNotFound, match="default/web"):
        metrics.get("default", "web")
    with pytest.raises(MetricNotFound):
        metrics.update(a_metric())
    metrics.delete("default", "web")
    metrics.create(a_metric())
    metrics.delete("default", "web")
    with pytest.raises(MetricNotFound):
        metrics.get("default", "web")


def test_a_decider_that_begins_with_many_ready_pods_begins_in_panic(store):
    KPAMetrics(store).create(a_metric(), ready_pods=5)
    record = decode_record(store.raw.get(store.keys.kpa_state("default/web")))
    assert record.state.panic_since_ms is not None
    assert record.state.max_panic_pods == 5


class Heard:
    """A watcher that remembers what it was told."""

    def __init__(self):
        self.keys = []
        self._changed = threading.Condition()

    def __call__(self, key):
        with self._changed:
            self.keys.append(key)
            self._changed.notify_all()

    def wait(self, *keys):
        with self._changed:
            return self._changed.wait_for(lambda: set(keys) <= set(self.keys), timeout=10)


def test_every_watcher_hears_every_wish_that_changed(store, make_store):
    metrics = KPAMetrics(store)
    for name in ("a", "b"):
        metrics.create(a_metric(name))
    heard = [Heard() for _ in range(3)]
    watching = [KPAMetrics(make_store()).watch(one) for one in heard]
    wish(store, "default/a", 2)
    wish(store, "default/b", 3)
    assert all(one.wait("default/a", "default/b") for one in heard)
    for one in watching:
        one.stop()
    assert all(one.join(5) for one in watching)


def test_a_watcher_that_fails_on_one_key_hears_the_next(store):
    metrics = KPAMetrics(store)
    metrics.create(a_metric("a"))
    metrics.create(a_metric("b"))
    heard = Heard()

    def fn(key):
        heard(key)
        raise RuntimeError(key)

    watching = metrics.watch(fn)
    wish(store, "default/a", 2)
    wish(store, "default/b", 2)
    assert heard.wait("default/a", "default/b")
    watching.stop()
    watching.join(5)


def test_a_watcher_that_fell_behind_what_is_kept_hears_every_key(store, monkeypatch):
    metrics = KPAMetrics(store)
    for name in "abc":
        metrics.create(a_metric(name))
    wish(store, "default/a", 1)
    position = metrics._newest()
    for desired in range(2, 6):
        wish(store, "default/b", desired)
    store.redis.xtrim(store.keys.kpa_wishes, maxlen=1, approximate=False)
    keys, position = metrics._changed(position)
    assert keys == ["default/a", "default/b", "default/c"]
    wish(store, "default/c", 9)
    assert metrics._changed(position)[0] == ["default/c"]


def test_a_watcher_goes_on_after_redis_was_emptied(store):
    metrics = KPAMetrics(store)
    metrics.create(a_metric("a"))
    wish(store, "default/a", 1)
    position = metrics._newest()
    for name in ("kpa_wishes", "kpa_specs"):
        store.redis.delete(getattr(store.keys, name))
    store.redis.delete(store.keys.kpa_state("default/a"))
    metrics.create(a_metric("b"))
    keys, position = metrics._changed(position)
    assert keys == ["default/b"]
    wish(store, "default/b", 2)
    assert metrics._changed(position)[0] == ["default/b"]


def test_two_decisions_from_one_state_leave_one(store):
    """The script compares with what the decision was made from, whoever comes second is refused."""
    KPAMetrics(store).create(a_metric())
    key = store.keys.kpa_state("default/web")
    record = decode_record(store.raw.get(key))
    one, other = (msgspec.structs.replace(record, decided_ms=record.decided_ms + n) for n in (1, 2))
    arguments = (0, "", 1, "default/web", record.decided_ms)
    assert store.run("kpa_commit", *arguments, encode_record(other)) == []
    assert store.run("kpa_commit", *arguments, encode_record(one)) == [1]
    assert decode_record(store.raw.get(key)) == other


def test_an_older_decision_is_refused_unless_the_clock_went_back(store):
    KPAMetrics(store).create(a_metric())
    key = store.keys.kpa_state("default/web")
    record = decode_record(store.raw.get(key))
    older = encode_record(msgspec.structs.replace(record, decided_ms=record.decided_ms - 60_000))
    arguments = (0, "", 1, "default/web", record.decided_ms, older)
    assert store.run("kpa_commit", *arguments) == [1]
    assert store.run("kpa_commit", *arguments, 1, "anew", "", "", 0) == []


def test_a_record_that_was_emptied_meanwhile_is_not_written_again(store):
    KPAMetrics(store).create(a_metric())
    key = store.keys.kpa_state("default/web")
    record = decode_record(store.raw.get(key))
    store.redis.delete(key)
    new = encode_record(msgspec.structs.replace(record, decided_ms=record.decided_ms + 1))
    assert store.run("kpa_commit", 0, "", 1, "default/web", record.decided_ms, new) == [1]
    assert store.raw.get(key) is None
