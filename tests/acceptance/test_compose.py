"""docker-compose.yml and Dockerfile, without a container engine: every service runs as it says, as a process."""

import importlib.util
import re
import shutil
import subprocess
import tempfile
import time
import tomllib
from pathlib import Path

import pytest
import redis
import yaml

from tests.acceptance.composition import Composition, default_profiles, enabled, read_composition
from tests.acceptance.system import KINDS, ROOT, processes_of
from wainwright.errors import WainwrightError
from wainwright.kube.client import KubeClient
from wainwright.kube.config import load_config
from wainwright.kube.resources import PODS
from workers.children import Children

OURS = ("watcher", "window", "solve", "launch", "collect", "tick", "push", "beat", "cluster", "cloud")


def until(what, is_so, seconds, children):
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := is_so():
                return found
        except (WainwrightError, OSError, redis.RedisError):
            pass
        lost = [child for child in children.all() if not child.pid]
        assert not lost, f"{lost[0].name} ended: {lost[0].last_words()}"
        if time.monotonic() > deadline:
            words = "\n".join(f"--- {child.name}\n{child.last_words(5)}" for child in children.all())
            raise AssertionError(f"{what}: not within {seconds} s\n{words}")
        time.sleep(0.1)


@pytest.fixture
def running(alone):
    """All services of `docker compose up`, each as often as it has replicas."""
    folder = Path(tempfile.mkdtemp(prefix="wainwright-compose-"))
    composition = Composition(folder, default_profiles())
    children = Children(folder / "logs")

    def start(name):
        for number in range(1, composition.replicas(name) + 1):
            children.start(f"{name}-{number}", composition.command(name), composition.environment(name))

    try:
        first = ("redis", "cloud", "cluster")
        for name in first:
            start(name)
        client = redis.Redis(port=composition.ports[6379], decode_responses=True)
        until("redis answers", client.ping, 20, children)
        for name in first[1:]:
            until(f"{name} is healthy", lambda name=name: is_healthy(composition, name), 60, children)
        for name in composition.services:
            if name not in first:
                start(name)
        yield composition, children, client
        client.close()
    finally:
        children.stop()
        left = processes_of(folder)
        shutil.rmtree(folder, ignore_errors=True)
    assert not left


def is_healthy(composition, name):
    """As the engine looks: the check's own command, in the service's environment, within its time-out."""
    check = composition.services[name]["healthcheck"]
    done = subprocess.run(
        composition.health_check(name),
        env=composition.environment(name),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=4 * float(check["timeout"].removesuffix("s")),  # two cores run what would be a dozen containers
        check=False,
    )
    return done.returncode == 0


@pytest.mark.slow
def test_docker_compose_up_alone_shows_it_work(running):
    composition, children, client = running
    roles = {"watcher": 2, "window": 1, "solve": 2, "launch": 1, "collect": 1, "tick": 1, "push": 1, "beat": 2}

    def everyone_shows_life():
        names = [key.removeprefix("wainwright:worker:").split("@")[0] for key in client.keys("wainwright:worker:*")]
        return all(names.count(role) == count for role, count in roles.items())

    until("every process shows life", everyone_shows_life, 60, children)
    for name in roles:
        assert is_healthy(composition, name), f"the health check of {name} fails"
    config = client.config_get("maxmemory-policy") | client.config_get("append*")
    assert config["maxmemory-policy"] == "noeviction"
    assert (config["appendonly"], config["appendfsync"]) == ("yes", "everysec")

    kube = KubeClient(load_config(str(composition.mounted("watcher", "/kube/config"))), call_timeout=10)
    for file in ("nodepool.yaml", "deployment.yaml"):
        for document in yaml.safe_load_all((ROOT / "examples" / file).read_text()):
            kube.create(KINDS[document["kind"]], document, "default" if KINDS[document["kind"]].namespaced else "")

    def all_run():
        pods, _ = kube.list(PODS, dict, label_selector="app=inflate")
        return len(pods) == 12 and all(pod["status"].get("phase") == "Running" for pod in pods)

    until("the example's pods run", all_run, 60, children)
    kube.close()


def test_a_process_without_a_sign_of_life_is_unhealthy():
    """The health check's other answer: Redis does not answer, so nothing is known of this host's process."""
    composition = Composition("/nonexistent", default_profiles())
    done = subprocess.run(
        composition.health_check("launch"),
        env={
            **composition.environment("redis"),
            "WAINWRIGHT_REDIS_URL": f"redis://127.0.0.1:{composition.ports[6379]}/0",
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert "Redis did not answer" in done.stderr


def test_the_embedded_profile_is_on_by_default_and_can_be_left_out():
    composition = read_composition()
    assert set(enabled(composition, default_profiles())) == {"redis", *OURS}
    assert set(enabled(composition, [])) == {"redis", *OURS} - {"cluster", "cloud"}
    assert set(enabled(composition, ["cloud"])) == {"redis", *OURS} - {"cluster"}


def test_a_kubeconfig_of_a_real_cluster_is_mounted_where_the_processes_look():
    shell = {
        "KUBECONFIG_FILE": "/home/somebody/.kube/config",
        "KUBECONFIG_TARGET": "/kube/config",
        "RUN_AS": "1000:1000",
    }
    services = enabled(read_composition(shell), ["cloud"])
    for name in set(services) - {"redis", "cloud"}:
        assert services[name]["environment"]["WAINWRIGHT_KUBE_KUBECONFIG"] == "/kube/config"
        assert "/home/somebody/.kube/config:/kube/config:ro" in services[name]["volumes"]
        assert services[name]["user"] == "1000:1000", "a kubeconfig is readable by its owner only"
    assert services["cloud"]["user"] == "10001:10001", "its volume belongs to the image's user"


def test_every_service_has_a_health_check_starts_anew_and_can_be_scaled():
    for name, service in read_composition()["services"].items():
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert service["restart"] == "unless-stopped", name
        assert "container_name" not in service, f"{name} cannot be scaled"
        assert name == "cluster" or "ports" not in service, f"{name} cannot be scaled: its ports are taken"
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), f"{name} is open to the world"
        for wanted, condition in service.get("depends_on", {}).items():
            assert condition["condition"] == "service_healthy", (name, wanted)


def test_every_command_in_the_compose_file_exists():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, service in read_composition()["services"].items():
        for command in (service["command"], service["healthcheck"]["test"][1:]):
            match command:
                case ["python", "-m", module, *_]:
                    assert importlib.util.find_spec(module), f"{name}: there is no module {module}"
                case [program, *_]:
                    assert program in {*scripts, "python", "test", "redis-server", "redis-cli"}, f"{name}: {program}"


# The image ------------------------------------------------------------------------------------------------------------


def instructions():
    """The Dockerfile's instructions, continued lines joined: (name, rest)."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def last_stage():
    lines = instructions()
    begins = max(number for number, (name, _) in enumerate(lines) if name == "FROM")
    return lines[begins:]


def test_the_image_is_slim_and_not_run_by_root():
    stage = last_stage()
    assert re.match(r"^python:3\.\d+-slim\b", dict(stage)["FROM"])
    user = dict(stage)["USER"].split(":")[0]
    assert user.isdigit(), "a number, so that Kubernetes can tell that it is not root"
    assert int(user) > 0
    assert not any("apt-get" in rest for _, rest in stage)


def test_the_image_has_every_package_and_what_building_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = {word for name, rest in instructions() if name == "COPY" for word in rest.split()[:-1]}
    assert copied >= set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert copied >= {"pyproject.toml", "requirements.lock", "README.md", "LICENSE"}
    assert all((ROOT / word).exists() for word in copied if not word.startswith(("-", "/")))
    installs = next(rest for name, rest in instructions() if name == "RUN" and "requirements.lock" in rest)
    assert "--compile-bytecode" in installs, "nothing can be compiled later: the user may not write there"


def test_mounted_folders_belong_to_the_user_of_the_image():
    """A new volume takes the owner of the folder that it covers; one that is not there becomes root's."""
    made = next(rest for name, rest in last_stage() if name == "RUN")
    targets = {
        volume.split(":")[1]
        for name, service in read_composition()["services"].items()
        if name != "redis"
        for volume in service["volumes"]
    }
    for target in targets:
        assert re.search(rf"install -d -o wainwright -g wainwright[^&]* {target}\b", made), target


def test_what_the_image_does_not_need_stays_out_of_the_build():
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv", "**/__pycache__"} <= set(ignored)
