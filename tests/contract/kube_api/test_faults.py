"""Fault switches. Always on an embedded cluster, one in a thread of its own for each test."""

import json
import time

import pytest

from tests.contract.kube_api.cluster import Api, a_config_map, a_pod, is_gone
from wainwright.sim.apiserver.faults import FaultRule
from wainwright.sim.apiserver.switches import SwitchError, Switches, main
from wainwright.sim.apiserver.testing import ThreadedServer

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def server(tmp_path):
    with ThreadedServer(ring_size=50, watch_limit_bytes=200_000) as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        yield server


@pytest.fixture
def api(server, tmp_path):
    return Api(tmp_path / "kubeconfig")


@pytest.fixture
def switches(server, tmp_path):
    return Switches(tmp_path / "kubeconfig")


def test_errors_by_verb_and_resource(api, switches):
    rule = FaultRule(verbs=frozenset({"create"}), resources=frozenset({"pods", "pods/binding"}), rate=1.0, status=503)
    switches.inject([rule])
    assert switches.faults() == (rule,)
    refused = api.post(PODS, a_pod("a"))
    assert (refused.status, refused.reason) == (503, "ServiceUnavailable")
    assert api.post(f"{PODS}/a/binding", {}).status == 503
    assert api.get(PODS).status == 200
    assert api.post(MAPS, a_config_map("a")).status == 201
    switches.clear()
    assert api.post(PODS, a_pod("a")).status == 201


def test_a_rate_fails_some(api, switches):
    switches.inject([FaultRule(verbs=frozenset({"list"}), rate=0.5)])
    statuses = {api.get(PODS).status for _ in range(60)}
    assert statuses == {200, 500}


def test_too_many_requests_says_when_to_come_back(api, switches):
    switches.inject([FaultRule(verbs=frozenset({"get"}), rate=1.0, status=429, retry_after_seconds=7)])
    refused = api.get(f"{PODS}/a")
    assert (refused.status, refused.reason, refused.headers["Retry-After"]) == (429, "TooManyRequests", "7")
    assert refused.body["details"]["retryAfterSeconds"] == 7


def test_latency(api, switches):
    switches.inject([FaultRule(verbs=frozenset({"get"}), latency_seconds=0.2)])
    begun = time.monotonic()
    assert api.get(f"{PODS}/a").status == 404
    assert time.monotonic() - begun >= 0.2


def test_rules_that_are_none(api):
    refused = api.put("/_wainwright/faults", [{"verb": "get"}])
    assert refused.status == 400
    assert "verb" in refused.message
    assert api.post("/_wainwright/nothing", {}).status == 404


def test_cut_watches_can_be_resumed(api, switches):
    version = api.get(MAPS).body["metadata"]["resourceVersion"]
    watch, other = api.watch(MAPS, resourceVersion=version, seconds=30), api.watch(PODS, seconds=30)
    api.post(MAPS, a_config_map("a"))
    assert next(watch)[1]["metadata"]["name"] == "a"
    assert switches.cut_watches("configmaps") == 1
    assert list(watch) == []
    api.post(MAPS, a_config_map("b"))
    assert len(api.watch(MAPS, resourceVersion=version, seconds=30).take(2)) == 2
    assert switches.cut_watches() >= 1
    assert list(other) == []


def test_compaction_answers_gone(api, switches):
    version = api.get(MAPS).body["metadata"]["resourceVersion"]
    api.post(MAPS, a_config_map("a"))
    api.post(MAPS, a_config_map("b"))
    token = api.get(MAPS, limit=1).body["metadata"]["continue"]
    switches.compact()
    assert is_gone(api.get(MAPS, watch="1", resourceVersion=version))
    api.delete(f"{MAPS}/b")
    switches.compact()
    gone = api.get(MAPS, limit=1, **{"continue": token})
    assert (gone.status, gone.reason) == (410, "Expired")
    rest = api.get(MAPS, **{"continue": gone.body["metadata"]["continue"]})
    assert rest.status == 200
    assert rest.body["items"] == []


def test_history_is_bounded(api):
    """The ring holds 50 events here: who comes from further back is told so, whoever is within it resumes."""
    version = api.get(MAPS).body["metadata"]["resourceVersion"]
    for number in range(60):
        api.post(MAPS, a_config_map(f"m{number}"))
    assert is_gone(api.get(MAPS, watch="1", resourceVersion=version))
    late = api.get(f"{MAPS}/m19").body["metadata"]["resourceVersion"]
    assert len(api.watch(MAPS, resourceVersion=late, seconds=5).take(40)) == 40


def test_stale_reads(api, switches):
    api.post(MAPS, a_config_map("a", key="old"))
    switches.stale(1)
    api.patch(f"{MAPS}/a", {"data": {"key": "new"}})
    switches.stale(1)
    assert api.get(f"{MAPS}/a").body["data"] == {"key": "old"}
    assert api.get(MAPS).body["items"][0]["data"] == {"key": "old"}
    switches.stale(0)
    assert api.get(f"{MAPS}/a").body["data"] == {"key": "new"}


def test_restart_keeps_objects_and_loses_connections(api, switches):
    created = api.post(MAPS, a_config_map("a", key="1")).body
    watch = api.watch(MAPS, seconds=30)
    next(watch)
    switches.restart(down_seconds=0.1)
    assert list(watch) == []
    deadline = time.monotonic() + 5
    while True:
        try:
            found = api.get(f"{MAPS}/a")
            break
        except Exception:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert found.body == created
    version = created["metadata"]["resourceVersion"]
    assert is_gone(api.get(MAPS, watch="1", resourceVersion=str(int(version) - 1)))
    assert int(api.post(MAPS, a_config_map("b")).body["metadata"]["resourceVersion"]) > int(version)


def test_a_watcher_that_never_reads_is_cut_off(api, server):
    """It holds no more than its bound, and the server goes on; another watcher sees everything."""
    slow, quick = api.watch(MAPS, seconds=60), api.watch(MAPS, seconds=60)
    filling = "x" * 100_000
    for number in range(150):
        api.post(MAPS, a_config_map(f"m{number}", filling=filling))
        assert next(quick)[1]["metadata"]["name"] == f"m{number}"
    open_watches = server.call(lambda core: len(core.store.collection(core.writer.builtin("", "configmaps")).watches))
    assert open_watches == 1
    quick.close()
    slow.close()


def test_switches_say_why_they_are_refused(switches):
    with pytest.raises(SwitchError, match="stale"):
        switches._answer("stale", versions="many")


def test_the_command_line_has_every_switch(api, tmp_path, capsys):
    def run(*arguments):
        status = main(["--kubeconfig", str(tmp_path / "kubeconfig"), *arguments])
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    assert run("inject", '[{"verbs":["list"],"rate":1.0,"status":503}]') == (0, "done\n")
    assert api.get(PODS).status == 503
    assert '"status":503' in run("show")[1]
    assert run("clear") == (0, "done\n")
    assert api.get(PODS).status == 200
    assert run("cut-watches", "pods") == (0, "0 watches ended\n")
    for action in ("compact", "stale", "restart"):
        assert run(action) == (0, "done\n")
    status, said = run("stale", "many")
    assert status == 1
    assert "many" in said


def test_snapshot_is_json_lines(api, switches):
    api.post(MAPS, a_config_map("a"))
    header, *rest = (json.loads(line) for line in switches.snapshot().splitlines())
    assert int(header["resourceVersion"]) > 0
    assert ("ConfigMap", "a") in {(obj["kind"], obj["metadata"]["name"]) for obj in rest}
