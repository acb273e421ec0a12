"""`wainwright plan` as it is called: options, exit statuses, what goes where."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import workers.plan.command as command
from tests.unit.plan.builders import a_job, a_node, a_node_pool, a_pod, a_workload, yaml_of
from tests.unit.plan.test_inputs import a_cluster, a_running_pod
from wainwright.errors import ViewNotReady
from wainwright.scheduling.checker import Violation
from workers.cli import cli
from workers.plan.command import EXIT_BROKEN, EXIT_INPUT, EXIT_PLACED, EXIT_UNPLACED, PlanOptions, run_plan
from workers.plan.inputs import CurrentCluster, Policies

GOLDEN = Path(__file__).parents[2] / "golden" / "packing"
EC2 = str(GOLDEN / "catalogs" / "ec2-us-east-1.json")
EXAMPLES = Path(__file__).parents[3] / "examples"
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}


def types(*names):
    return {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": list(names)}


def call(*arguments, stdin=b"", columns="80"):
    return CliRunner().invoke(cli, ["plan", *map(str, arguments)], input=stdin, env={"COLUMNS": columns})


def answer(*objects, catalog=EC2):
    result = call("-f", "-", "--catalog", catalog, "-o", "json", stdin=yaml_of(*objects))
    assert result.exit_code in (EXIT_PLACED, EXIT_UNPLACED), result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def write(tmp_path):
    def written(name, *objects):
        path = tmp_path / name
        path.write_bytes(objects[0] if isinstance(objects[0], bytes) else yaml_of(*objects))
        return path

    return written


# Cases from the field ------------------------------------------------------------------------------------------------


def general(*kinds, **spec):
    return a_node_pool(requirements=[ON_DEMAND, types(*kinds)], **spec)


def container(name, cpu, **more):
    return {"name": name, "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}, **more}


def test_the_order_of_sidecars_decides_about_the_peak():
    """late: 0.9 sidecar + 1.2 migrate = 2.1 > 1.93 of c6a.large. early: max(1.2, 0.9 + 1.0) = 1.9 fits."""
    proxy, migrate = container("proxy", "900m", restartPolicy="Always"), container("migrate", "1200m")
    late = a_pod("late", cpu="1", memory="128Mi", initContainers=[proxy, migrate])
    early = a_pod("early", cpu="1", memory="128Mi", initContainers=[migrate, proxy])
    found = answer(general("c6a.large", "c6a.xlarge"), late, early)
    assert found["summary"]["total_price"] == pytest.approx(0.2295)
    kinds = {claim["pods"][0]: claim["cheapest"]["instance_type"] for claim in found["new_node_claims"]}
    assert kinds == {"late": "c6a.xlarge", "early": "c6a.large"}


def test_a_daemon_that_has_limits_only_takes_them_as_requests():
    daemon = a_workload("DaemonSet", "agent", namespace="kube-system", tolerations=[{"operator": "Exists"}])
    daemon["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "500m", "memory": "128Mi"}}
    found = answer(general("c6a.large", "c6a.xlarge"), daemon, a_workload(cpu="1500m"))
    assert found["summary"]["total_price"] == pytest.approx(0.153)


def test_a_daemon_is_charged_to_the_types_it_runs_on():
    term = {"matchExpressions": [types("c6a.xlarge", "c6a.2xlarge")]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    tuner = a_workload("DaemonSet", "tuner", cpu="1", memory="64Mi", affinity=affinity)
    found = answer(general("c6a.xlarge", "m6a.xlarge", "c6a.2xlarge"), tuner, a_workload(cpu="3500m", memory="1Gi"))
    assert found["summary"]["total_price"] == pytest.approx(0.1728)


def test_domains_of_a_node_pool_that_is_not_tolerated_do_not_count():
    def pool(name, domains, **more):
        made = a_node_pool(name, requirements=[ON_DEMAND, types("c6a.large"), domains], **more)
        made["spec"]["template"]["metadata"] = {"labels": {"pool": name}}
        return made

    def domains(*values):
        return {"key": "capacity-spread", "operator": "In", "values": list(values)}

    taint = {"key": "pool", "value": "a", "effect": "NoSchedule"}
    spread = {
        "maxSkew": 1,
        "topologyKey": "capacity-spread",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "nodeTaintsPolicy": "Honor",
    }
    web = a_workload(
        replicas=3,
        nodeSelector={"pool": "a"},
        tolerations=[{"key": "pool", "operator": "Equal", "value": "a", "effect": "NoSchedule"}],
        topologySpreadConstraints=[spread],
    )
    found = answer(pool("a", domains("1"), taints=[taint]), pool("b", domains(*"23456789")), web)
    assert found["pod_errors"] == {}
    assert found["summary"]["total_price"] == pytest.approx(0.0765)
    [fact] = found["topology"]
    assert (fact["counts"], fact["eligible_domains"], fact["skew"]) == ({"1": 3}, ["1"], 0)


def test_a_volume_pulls_the_pods_that_want_to_be_beside_its_own():
    zone = "topology.kubernetes.io/zone"
    term = {"matchExpressions": [{"key": zone, "operator": "In", "values": ["us-east-1b"]}]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "vol-1"},
        "spec": {
            "claimRef": {"namespace": "default", "name": "data"},
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "volumeName": "vol-1",
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }
    beside = {"topologyKey": zone, "labelSelector": {"matchLabels": {"app": "db"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}}
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    db = a_workload("StatefulSet", "db", cpu="500m", volumes=volumes)
    cache = a_workload(name="cache", replicas=2, cpu="1500m", affinity=affinity)
    found = answer(general("c6a.large", "c6a.xlarge"), volume, claim, cache, db)
    assert found["pod_errors"] == {}
    assert {c["cheapest"]["zone"] for c in found["new_node_claims"]} == {"us-east-1b"}
    assert found["summary"]["total_price"] == pytest.approx(0.153)


# Where input comes from -----------------------------------------------------------------------------------------------


def test_files_folders_standard_input_and_plain_arguments_come_together(write, tmp_path):
    write("one.yaml", a_workload(name="one"))
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "two.yaml").write_bytes(yaml_of(a_workload(name="two")))
    three = write("three.yaml", a_workload(name="three"))
    result = call("-f", tmp_path / "one.yaml", "-f", folder, three, "-", "-o", "json", stdin=yaml_of(a_job("four")))
    found = json.loads(result.stdout)
    pods = [pod for claim in found["new_node_claims"] for pod in claim["pods"]]
    assert sorted(pods) == ["four-0", "one-0", "three-0", "two-0"]


def test_node_pools_of_their_own_file_take_the_place_of_others_of_their_name(write):
    manifests = write("web.yaml", a_workload(cpu="3"), a_node_pool(limits={"cpu": "1"}))
    pools = write("pools.yaml", a_node_pool())
    assert call("-f", manifests).exit_code == EXIT_UNPLACED
    assert call("-f", manifests, "--nodepools", pools).exit_code == EXIT_PLACED


def test_the_examples_can_be_planned():
    result = call("-f", EXAMPLES)
    assert result.exit_code == EXIT_PLACED, result.output
    assert "new nodes for 12 pods" in result.stdout


def test_a_catalog_may_be_gzipped_and_without_one_the_simulated_cloud_is_named(tmp_path):
    packed = tmp_path / "catalog.json.gz"
    packed.write_bytes(gzip.compress(Path(EC2).read_bytes()))
    objects = (a_workload(), general("c6a.large"))
    assert answer(*objects, catalog=str(packed)) == answer(*objects)
    plain = call("-f", "-", "-o", "json", stdin=yaml_of(a_workload(), a_node_pool()))
    assert "types and prices are those of the simulated cloud" in json.loads(plain.stdout)["warnings"][0]


@pytest.mark.parametrize("name", ["weights-a", "existing-room-a", "too-large-a"])
def test_a_scenario_is_planned_plain_or_gzipped(name, tmp_path):
    path = GOLDEN / "small" / "scenarios" / f"{name}.json"
    packed = tmp_path / "scenario.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    plain, unpacked = (call("--scenario", each, "-o", "json") for each in (path, packed))
    assert plain.stdout == unpacked.stdout
    expected = json.loads((GOLDEN / "small" / "outputs" / f"{name}.json").read_text())
    found = json.loads(plain.stdout)
    assert found["summary"]["total_price"] <= expected["summary"]["total_price"] + 1e-9
    assert found["pod_errors"].keys() == expected["pod_errors"].keys()
    assert plain.exit_code == (EXIT_UNPLACED if expected["pod_errors"] else EXIT_PLACED)


def test_a_scenario_finds_its_catalog_beside_it(tmp_path):
    scenario = {
        "schema": "packing-scenario/v1",
        "name": "mine",
        "catalog": "catalog.json",
        "node_pools": [general("c6a.large")],
        "pods": [{"metadata": {"name": "w"}, "count": 2, "spec": {"containers": [container("a", "500m")]}}],
    }
    (tmp_path / "mine.json").write_text(json.dumps(scenario))
    missing = call("--scenario", tmp_path / "mine.json")
    assert (missing.exit_code, "catalog.json: No such file" in missing.stderr) == (EXIT_INPUT, True)
    (tmp_path / "catalog.json").write_bytes(Path(EC2).read_bytes())
    found = call("--scenario", tmp_path / "mine.json")
    assert found.exit_code == EXIT_PLACED
    assert "mine: 1 new node for 2 pods" in found.stdout
    assert call("--scenario", tmp_path / "mine.json", "--catalog", EC2).stdout == found.stdout


# What it answers ------------------------------------------------------------------------------------------------------


def test_yaml_says_what_json_says(write):
    path = write("web.yaml", a_workload(replicas=3), a_node_pool())
    as_yaml, as_json = call("-f", path, "-o", "yaml"), call("-f", path, "-o", "json")
    assert yaml.safe_load(as_yaml.stdout) == json.loads(as_json.stdout)


def test_text_keeps_to_80_columns_on_any_terminal(write):
    path = write("web.yaml", a_workload(replicas=30), a_pod("big", cpu="400"), a_node_pool())
    for columns in ("80", "200"):
        result = call("-f", path, columns=columns)
        assert max(map(len, result.stdout.splitlines())) <= 80


def test_explaining_one_pod_has_that_pods_exit_status(write):
    path = write("web.yaml", a_workload(), a_pod("big", cpu="400"), a_node_pool())
    assert call("-f", path).exit_code == EXIT_UNPLACED
    fine, big = call("-f", path, "--explain", "web-0"), call("-f", path, "--explain", "big", "-o", "json")
    assert (fine.exit_code, big.exit_code) == (EXIT_PLACED, EXIT_UNPLACED)
    assert "web-0 goes to a new node" in fine.stdout
    told = json.loads(big.stdout)
    assert (told["schema"], told["placed"], told["node"]) == ("wainwright-explain/v1", False, None)
    assert told["reasons"][0]["code"] == "resources"
    unknown = call("-f", path, "--explain", "wbe-0")
    assert (unknown.exit_code, unknown.stdout) == (EXIT_INPUT, "")
    assert "there is web-0" in unknown.stderr


def test_broken_documents_are_warnings_while_something_is_left(write):
    path = write("a.yaml", b"kind: [\n---\n" + yaml_of(a_workload(replicas="x"), a_pod(), a_node_pool()))
    result = call("-f", path, "-o", "json")
    assert result.exit_code == EXIT_PLACED
    warnings = json.loads(result.stdout)["warnings"]
    assert warnings[0].startswith(f"left out: {path}, document 1: line ")
    assert warnings[1] == f'left out: {path}, document 2 (Deployment web): spec.replicas: "x": must be a whole number'


def test_with_nothing_left_every_fault_is_told_and_the_status_is_2(write):
    path = write("a.yaml", b"kind: [\n---\n" + yaml_of(a_workload(replicas="x"), a_node_pool()))
    result = call("-f", path)
    assert (result.exit_code, result.stdout) == (EXIT_INPUT, "")
    assert f"{path}, document 1: line " in result.stderr
    assert f'{path}, document 2 (Deployment web): spec.replicas: "x"' in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to plan"),
        (["-f", "/nonexistent/a.yaml"], "/nonexistent/a.yaml: No such file"),
        (["-f", EXAMPLES, "--catalog", "/nonexistent/c.json"], "/nonexistent/c.json: No such file"),
        (["-f", EXAMPLES, "--catalog", EXAMPLES / "nodepool.yaml"], "nodepool.yaml"),
        (["-f", EXAMPLES, "--scenario", "x.json"], "--scenario brings everything"),
        (["--scenario", EC2], "schema 'packing-catalog/v1'"),
        (["--scenario", EXAMPLES], "Is a directory"),
        (["-f", "-", "--nodepools", "-"], "can be read once only"),
    ],
)
def test_options_that_cannot_be_used_end_with_status_2(arguments, words):
    result = call(*arguments)
    assert (result.exit_code, result.stdout) == (EXIT_INPUT, "")
    assert words in result.stderr


def test_a_plan_that_breaks_a_rule_is_not_shown(write, monkeypatch):
    found = [Violation(rule="resources", where="claim/0", message="cpu 3 of 2")]
    monkeypatch.setattr(command, "check", lambda *_: found)
    result = call("-f", write("web.yaml", a_workload(), a_node_pool()))
    assert (result.exit_code, result.stdout) == (EXIT_BROKEN, "")
    assert "internal error" in result.stderr
    assert "resources at claim/0: cpu 3 of 2" in result.stderr


def test_the_answer_is_the_same_whatever_the_hash_seed(write):
    path = write("web.yaml", *(a_workload(name=f"w{n}", replicas=n, cpu=f"{n}00m") for n in range(1, 8)), a_node_pool())
    runs = [
        subprocess.run(
            [sys.executable, "-m", "workers.cli", "plan", "-f", str(path), "-o", "json"],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]


# The running cluster --------------------------------------------------------------------------------------------------


def beside(cluster, *objects, **options):
    from tests.unit.plan.builders import SMALL

    found = run_plan(
        PlanOptions(manifests=("-",) if objects else (), current=True, **options),
        explained=None,
        form="json",
        stdin=lambda: yaml_of(*objects),
        current=lambda: CurrentCluster(cluster, lambda _pool: SMALL, Policies()),
    )
    return found.status, json.loads(found.shown)


def test_beside_the_running_cluster_its_nodes_pools_and_waiting_pods_count():
    status, found = beside(a_cluster(a_running_pod("waits")), a_pod(cpu="3"), a_node("n2", cpu="1"))
    assert status == EXIT_PLACED
    assert found["existing_nodes"] == {"n1": ["waits"]}
    assert [claim["node_pool"] for claim in found["new_node_claims"]] == ["general"]


def test_without_manifests_the_waiting_pods_alone_are_planned():
    status, found = beside(a_cluster(a_running_pod("waits")))
    assert (status, found["summary"]["pods"]) == (EXIT_PLACED, 1)


def test_a_catalog_of_ones_own_takes_the_place_of_the_clouds():
    cluster = a_cluster(a_running_pod("waits", cpu="3"))
    _, found = beside(cluster, catalog=Path(EC2))
    assert found["new_node_claims"][0]["cheapest"]["instance_type"] not in ("s2", "s4")


def test_a_view_that_is_not_ready_ends_with_status_2():
    def not_ready():
        raise ViewNotReady("the cluster view is not complete")

    found = run_plan(PlanOptions(current=True), explained=None, form="text", stdin=bytes, current=not_ready)
    assert (found.status, found.problem) == (EXIT_INPUT, "the cluster view is not complete")
