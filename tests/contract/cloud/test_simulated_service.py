"""The service and its provider where they meet the network: faults, crashes, time-outs, polling, NodeClasses."""

import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

import msgspec
import pytest

from tests.contract.cloud.conftest import CATALOG, a_request
from wainwright.api.meta import ObjectMeta
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodepools import NodeClaimTemplate, NodeClassReference, NodePool, NodePoolSpec, TemplateSpec
from wainwright.cloud.errors import (
    CloudUnavailable,
    InstanceNotFound,
    NodeClassNotReady,
    RequestExpired,
    RequestRefused,
    Throttled,
)
from wainwright.cloud.port import InstanceState
from wainwright.cloud.simulated.provider import SimulatedProvider, SimulatedTimeouts

HASTY = SimulatedTimeouts(create=0.3, call=0.3)


def a_pool(kind="EC2NodeClass", group="karpenter.k8s.aws", name="default"):
    reference = NodeClassReference(group=group, kind=kind, name=name)
    spec = NodePoolSpec(template=NodeClaimTemplate(spec=TemplateSpec(node_class_ref=reference)))
    return NodePool(metadata=ObjectMeta(name="default"), spec=spec)


def a_simulated_pool():
    return a_pool("SimulatedNodeClass", "simulated.wainwright.dev")


class TestFaults:
    def test_a_lost_answer_leaves_the_outcome_unknown_and_the_same_request_finds_it(self, cloud, provider):
        cloud.faults(lose_answers={"next": 1})
        request = a_request()
        with pytest.raises(CloudUnavailable):
            provider.create(request)
        found = provider.find(request.token)
        assert provider.create(request).id == found.id
        assert cloud.record()["by_token"][request.token] == 1

    def test_an_internal_error_leaves_the_outcome_unknown_too(self, cloud, provider):
        cloud.faults(fail={"next": 1})
        request = a_request()
        with pytest.raises(CloudUnavailable, match="injected"):
            provider.create(request)
        assert provider.find(request.token) is None

    def test_throttling_says_when_to_come_again(self, cloud, provider):
        cloud.faults(throttle={"per_second": 0.5, "burst": 1})
        provider.create(a_request())
        with pytest.raises(Throttled) as caught:
            provider.create(a_request())
        assert 0 < caught.value.retry_after_seconds <= 2

    def test_a_refusal_is_for_good_and_says_why(self, cloud, provider):
        cloud.faults(refuse={"next": 1, "reason": "VcpuQuota", "message": "no more than 96 vCPUs"})
        with pytest.raises(RequestRefused, match="no more than 96") as caught:
            provider.create(a_request())
        assert caught.value.reason == "VcpuQuota"

    def test_a_hanging_call_ends_within_its_limit(self, cloud):
        cloud.faults(hang={"seconds": 3, "operations": ["launch", "find"]})
        hasty = cloud.provider(timeouts=HASTY)
        began = time.monotonic()
        for call in (lambda: hasty.create(a_request()), lambda: hasty.find("x")):
            with pytest.raises(CloudUnavailable):
                call()
        assert time.monotonic() - began < 2.5
        hasty.close()

    def test_a_request_that_hung_past_its_date_launches_nothing(self, cloud, provider):
        """Else who found nothing under the token after the date would be deceived."""
        cloud.faults(hang={"seconds": 0.5, "next": 1})
        request = a_request(age=29.8)
        with pytest.raises(RequestExpired):
            provider.create(request)
        assert provider.find(request.token) is None

    def test_an_instance_can_vanish_behind_its_owners_back(self, cloud, provider):
        instance = provider.create(a_request())
        assert cloud.ask("POST", f"/v1/instances/{instance.id}/interrupt")[0] == 200
        with pytest.raises(InstanceNotFound):
            provider.get(instance.provider_id)
        ended = {launch["instance_id"]: launch.get("ended_by") for launch in cloud.record()["launches"]}
        assert ended[instance.id] == "interrupted"

    def test_an_instance_can_fail_to_boot(self, cloud, provider):
        cloud.faults(never_boot={"next": 1})
        assert provider.create(a_request()).boots_at is None
        assert provider.create(a_request()).boots_at is not None

    def test_faults_can_be_read_and_a_misspelt_one_is_refused(self, cloud):
        cloud.faults(hang={"seconds": 1, "next": 2})
        assert cloud.ask("GET", "/v1/faults")[1]["hang"] == {"seconds": 1, "next": 2, "operations": ["launch"]}
        status, answer, _ = cloud.ask("PUT", "/v1/faults", {"hung": {}})
        assert status == 400
        assert "hung" in answer["message"]

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"request": {"token": 5}}'])
    def test_a_launch_that_cannot_be_read_is_refused(self, cloud, body):
        response = cloud.http.request("POST", cloud.url + "/v1/instances", body=body)
        assert response.status == 400
        assert msgspec.json.decode(response.data)["error"] == "RequestRefused"


class TestCrashes:
    def test_every_launch_survives_a_kill(self, own_cloud):
        cloud = own_cloud("--launch-delay", "0", "--boot-delay", "0", "--terminate-delay", "0")
        provider = cloud.provider()
        requests = [a_request() for _ in range(5)]
        instances = [provider.create(request) for request in requests]
        provider.delete(instances[0].provider_id)
        before = cloud.record()
        cloud.kill()
        cloud.start()
        assert cloud.record() == before
        assert [provider.find(request.token).id for request in requests] == [i.id for i in instances]
        assert {i.id for i in provider.list("prod")} == {i.id for i in instances[1:]}
        assert provider.create(requests[1]).id == instances[1].id
        provider.close()

    def test_a_launch_killed_before_its_answer_is_found_again_by_the_same_request(self, own_cloud):
        """The launch is written down before the launch delay; the answer never comes."""
        cloud = own_cloud("--launch-delay", "5")
        hasty = cloud.provider(timeouts=SimulatedTimeouts(create=0.5))
        request = a_request()
        with pytest.raises(CloudUnavailable):
            hasty.create(request)
        cloud.kill()
        cloud.start()
        assert hasty.create(request).token == request.token
        assert cloud.record()["by_token"] == {request.token: 1}
        hasty.close()

    def test_it_stops_on_sigterm_at_once_and_cleanly(self, own_cloud):
        cloud = own_cloud()
        cloud.process.send_signal(signal.SIGTERM)
        assert cloud.process.wait(5) == 0

    def test_it_ends_with_the_process_that_started_it(self, own_cloud, tmp_path):
        """`wainwright up` killed with -9 leaves nothing behind."""
        url_file = tmp_path / "url"
        command = [sys.executable, "-m", "wainwright.cloud.simulated", "--exit-with-parent"]
        command += ["--state-file", str(tmp_path / "state"), "--url-file", str(url_file)]
        starter = "import subprocess, sys; subprocess.Popen(sys.argv[1:]); sys.stdin.read()"
        parent = subprocess.Popen(
            [sys.executable, "-c", starter, *command], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert _eventually(url_file.exists)
        port = int(url_file.read_text().strip().rpartition(":")[2])
        assert _is_open(port)
        parent.kill()
        parent.wait()
        parent.stdin.close()
        assert _eventually(lambda: not _is_open(port))

    def test_a_state_file_in_use_is_refused(self, own_cloud):
        cloud = own_cloud()
        command = [sys.executable, "-m", "wainwright.cloud.simulated", "--state-file", str(cloud.state_file)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert ended.returncode == 2
        assert "in use by another simulated cloud" in ended.stderr

    def test_an_unusable_catalog_file_is_refused(self, tmp_path):
        (tmp_path / "c.json").write_text('{"schema": "other"}')
        command = [sys.executable, "-m", "wainwright.cloud.simulated", "--state-file", str(tmp_path / "s")]
        command += ["--catalog", str(tmp_path / "c.json")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert ended.returncode == 2
        assert "c.json: schema is 'other'" in ended.stderr


class TestPolling:
    def test_nothing_new_costs_an_empty_answer(self, cloud, provider):
        provider.create(a_request())
        _settle(cloud)
        status, answer, headers = cloud.ask("GET", "/v1/instances")
        assert status == 200
        assert answer["full"]
        assert headers["ETag"] == f'"{answer["version"]}"'
        assert cloud.ask("GET", "/v1/instances", headers={"If-None-Match": headers["ETag"]})[0] == 304
        assert cloud.ask("GET", f"/v1/instances?since={answer['version']}")[0] == 304

    def test_only_what_changed_is_told(self, cloud, provider):
        provider.create(a_request())
        _settle(cloud)
        version = cloud.ask("GET", "/v1/instances")[1]["version"]
        instance = provider.create(a_request())
        answer = cloud.ask("GET", f"/v1/instances?since={version}")[1]
        assert not answer["full"]
        assert [i["id"] for i in answer["instances"]] == [instance.id]

    def test_who_waits_hears_of_a_change_at_once_and_of_booting_when_it_is_due(self, cloud, provider):
        _settle(cloud)
        version = cloud.ask("GET", "/v1/instances")[1]["version"]
        answers = []

        def follow(seen=version):
            for _ in range(2):
                status, answer, _ = cloud.ask("GET", f"/v1/instances?since={seen}&wait=5")
                assert status == 200
                answers.append(answer)
                seen = answer["version"]

        follower = threading.Thread(target=follow)
        began = time.monotonic()
        follower.start()
        instance = provider.create(a_request())
        follower.join()
        assert [[(i["id"], i["state"]) for i in answer["instances"]] for answer in answers] == [
            [(instance.id, "pending")],
            [(instance.id, "running")],
        ]
        assert time.monotonic() - began < 4

    def test_a_wait_without_change_ends(self, cloud):
        _settle(cloud)
        version = cloud.ask("GET", "/v1/instances")[1]["version"]
        assert cloud.ask("GET", f"/v1/instances?since={version}&wait=0.1")[0] == 304

    @pytest.mark.parametrize("since", ["nonsense", "-5", "00000000-3", "x-"])
    def test_a_version_of_another_life_gets_everything(self, cloud, provider, since):
        provider.create(a_request())
        status, answer, _ = cloud.ask("GET", f"/v1/instances?since={since}")
        assert status == 200
        assert answer["full"]
        assert answer["instances"]

    @pytest.mark.parametrize(("wait", "status"), [("soon", 422), ("nan", 200), ("-1", 200)])
    def test_a_wait_that_is_no_number_is_refused(self, cloud, wait, status):
        assert cloud.ask("GET", f"/v1/instances?since=x&wait={wait}")[0] == status

    def test_thousands_of_instances_are_listed_quickly(self, own_cloud):
        cloud = own_cloud("--boot-delay", "0")
        cloud.kill()
        _write_launches(cloud, 5000)
        cloud.start()
        provider = cloud.provider()
        began = time.monotonic()
        assert len(provider.list("prod")) == 5000
        assert time.monotonic() - began < 5
        provider.close()


class TestNodeClasses:
    def test_another_providers_kind_is_served_all_the_same(self, provider):
        assert provider.instance_types(a_pool()) == CATALOG

    @pytest.mark.parametrize(
        ("node_class", "told"),
        [
            (None, "there is no SimulatedNodeClass default"),
            ({"metadata": {"name": "default"}, "spec": {"zones": "a"}}, "zones"),
            ({"metadata": {"name": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, "is being deleted"),
        ],
    )
    def test_our_own_kind_must_be_there_and_sound(self, cloud, node_class, told):
        provider = cloud.provider(node_class=lambda _reference: node_class)
        with pytest.raises(NodeClassNotReady, match=told):
            provider.instance_types(a_simulated_pool())
        with pytest.raises(NodeClassNotReady, match=told):
            provider.create(a_request(node_class=a_simulated_pool().spec.template.spec.node_class_ref))
        provider.close()

    def test_zones_narrow_the_catalog_and_boot_seconds_the_start(self, cloud):
        node_class = {"metadata": {"name": "default"}, "spec": {"zones": ["simulated-1b"], "bootSeconds": 100}}
        provider = cloud.provider(node_class=lambda _reference: node_class)
        catalog = provider.instance_types(a_simulated_pool())
        assert {o.zone for machine in catalog.instance_types for o in machine.offerings} == {"simulated-1b"}
        assert catalog.version != CATALOG.version
        assert provider.instance_types(a_simulated_pool()) is catalog
        instance = provider.create(a_request(node_class=a_simulated_pool().spec.template.spec.node_class_ref))
        assert (instance.boots_at - instance.launched_at).total_seconds() == 100
        provider.close()

    def test_a_claim_outside_its_node_classs_zones_has_drifted(self, cloud):
        node_class = {"metadata": {"name": "default"}, "spec": {"zones": ["simulated-1b"]}}
        provider = cloud.provider(node_class=lambda _reference: node_class)

        def claim(zone):
            return NodeClaim(metadata=ObjectMeta(name="c", labels={"topology.kubernetes.io/zone": zone}))

        assert provider.is_drifted(claim("simulated-1a"), a_simulated_pool()) == "NodeClassDrift"
        assert provider.is_drifted(claim("simulated-1b"), a_simulated_pool()) is None
        assert provider.is_drifted(claim("simulated-1a"), a_pool()) is None
        provider.close()


class TestCatalog:
    def test_a_replaced_catalog_is_noticed(self, own_cloud):
        cloud = own_cloud()
        provider = cloud.provider(timeouts=SimulatedTimeouts(catalog_age=0))
        first = provider.instance_types(a_pool())
        offering = {"zone": "z", "capacity_type": "spot", "price": 1}
        machine = {"name": "only", "capacity": {"cpu": "2"}, "offerings": [offering]}
        document = {"schema": "packing-catalog/v1", "instance_types": [machine]}
        assert cloud.ask("PUT", "/v1/catalog", document)[0] == 200
        second = provider.instance_types(a_pool())
        assert [machine.name for machine in second.instance_types] == ["only"]
        assert second.version != first.version
        assert cloud.ask("PUT", "/v1/catalog", {"schema": "x"})[0] == 422
        provider.close()

    def test_a_catalog_once_read_is_used_on_while_the_cloud_is_away(self, own_cloud):
        cloud = own_cloud()
        provider = cloud.provider(timeouts=SimulatedTimeouts(catalog_age=0))
        catalog = provider.instance_types(a_pool())
        cloud.kill()
        assert provider.instance_types(a_pool()) is catalog
        fresh = cloud.provider()
        with pytest.raises(CloudUnavailable):
            fresh.instance_types(a_pool())
        provider.close()
        fresh.close()


class TestTheWire:
    def test_an_answer_that_trickles_ends_within_the_limit(self):
        """A byte every tenth of a second would never meet a time-out that is counted per byte."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            over = threading.Event()

            def trickle():
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                    try:
                        while not over.wait(0.1):
                            connection.sendall(b" ")
                    except OSError:
                        return

            server = threading.Thread(target=trickle)
            server.start()
            provider = SimulatedProvider(f"http://127.0.0.1:{listener.getsockname()[1]}", timeouts=HASTY)
            began = time.monotonic()
            with pytest.raises(CloudUnavailable):
                provider.find("x")
            assert time.monotonic() - began < 2
            over.set()
            server.join()
            provider.close()

    def test_a_service_that_is_not_there_is_unavailable(self):
        provider = SimulatedProvider("http://127.0.0.1:9")
        with pytest.raises(CloudUnavailable):
            provider.list("prod")
        provider.close()

    def test_an_answer_that_is_no_json_leaves_the_outcome_unknown(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def answer():
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\n<p>")

            server = threading.Thread(target=answer)
            server.start()
            provider = SimulatedProvider(f"http://127.0.0.1:{listener.getsockname()[1]}")
            with pytest.raises(CloudUnavailable, match="cannot be read"):
                provider.find("x")
            server.join()
            provider.close()


def _write_launches(cloud, number):
    """As many launches as the first one in the state file, which the service finds when it starts."""
    cloud.start()
    provider = cloud.provider()
    provider.create(a_request("first"))
    provider.close()
    cloud.kill()
    first = msgspec.json.decode(cloud.state_file.read_bytes())
    with cloud.state_file.open("wb") as file:
        for _ in range(number):
            token = str(uuid.uuid4())
            first["instance"] |= {"id": token, "token": token, "node_claim": token}
            first["request"] |= {"token": token, "node_claim": token}
            file.write(msgspec.json.encode(first) + b"\n")


def _settle(cloud):
    """Wait until every instance that boots has booted."""

    def booted():
        instances = cloud.ask("GET", "/v1/instances")[1]["instances"]
        return all("boots_at" not in i or i["state"] != InstanceState.PENDING for i in instances)

    # instances of other tests may boot in 100 s: they are pending for good here
    for instance in cloud.ask("GET", "/v1/instances")[1]["instances"]:
        cloud.ask("DELETE", f"/v1/instances/{instance['id']}")
    assert _eventually(booted)


def _eventually(condition, seconds=10.0):
    ends = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < ends:
        time.sleep(0.02)
    return met


def _is_open(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
