"""A cluster to test against: the embedded one as a child process, or the one that a kubeconfig names."""

import base64
import itertools
import json
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import pytest
import urllib3
import yaml

EMBEDDED_ONLY = pytest.mark.parametrize("server", ["embedded"], indirect=True)
"""For tests that a real control plane cannot run; each says why."""

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


class Answer(NamedTuple):
    status: int
    headers: dict
    body: object

    @property
    def reason(self):
        return self.body.get("reason")

    @property
    def message(self):
        return self.body.get("message", "")


class Api:
    """Raw HTTP. Each method takes a path, query parameters by keyword, and gives an Answer."""

    def __init__(self, kubeconfig, token=None):
        config = yaml.safe_load(Path(kubeconfig).read_text())
        cluster = config["clusters"][0]["cluster"]
        context = ssl.create_default_context()
        if "certificate-authority-data" in cluster:
            context.load_verify_locations(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        elif "certificate-authority" in cluster:
            context.load_verify_locations(cluster["certificate-authority"])
        self.server = cluster["server"]
        self.token = config["users"][0]["user"]["token"] if token is None else token
        self.pool = urllib3.PoolManager(ssl_context=context, maxsize=16, retries=False)

    def headers(self, more=None):
        own = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {**own, **(more or {})}

    def send(self, method, path, body=None, *, media="application/json", accept="application/json", **query):
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = self.headers({"Content-Type": media, "Accept": accept})
        response = self.pool.request(method, url, body=body, headers=headers, timeout=20)
        found = json.loads(response.data) if response.data[:1] == b"{" else response.data
        return Answer(response.status, dict(response.headers), found)

    def get(self, path, **options):
        return self.send("GET", path, **options)

    def post(self, path, body, **options):
        return self.send("POST", path, body, **options)

    def put(self, path, body, **options):
        return self.send("PUT", path, body, **options)

    def patch(self, path, body, media=MERGE, **options):
        return self.send("PATCH", path, body, media=media, **options)

    def delete(self, path, body=None, **options):
        return self.send("DELETE", path, body, **options)

    def watch(self, path, *, seconds=1, accept="application/json", **query):
        """A watch that is open when this returns: iterate over it for (type, object)."""
        parameters = {"watch": "true", "timeoutSeconds": seconds, **query}
        url = f"{self.server}{path}?{urlencode(parameters)}"
        response = self.pool.request(
            "GET", url, headers=self.headers({"Accept": accept}), preload_content=False, timeout=20
        )
        return Watch(response)


class Watch:
    def __init__(self, response):
        self.response = response
        self.status = response.status
        self._events = self._read()

    def _read(self):
        rest = b""
        for chunk in self.response.stream(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                event = json.loads(line)
                yield event["type"], event["object"]
        assert not rest
        self.response.release_conn()

    def __iter__(self):
        return self._events

    def __next__(self):
        return next(self._events)

    def take(self, count):
        """The next `count` events, bookmarks passed over; the watch is closed then."""
        wanted = (event for event in self._events if event[0] != "BOOKMARK")
        found = list(itertools.islice(wanted, count))
        self.close()
        return found

    def close(self):
        self.response.close()


class EmbeddedCluster:
    """`python -m wainwright.sim.apiserver` as a child. Also for tests of the process itself."""

    def __init__(self, *options):
        self.directory = Path(tempfile.mkdtemp(prefix="wainwright-cluster-"))
        self.kubeconfig = self.directory / "kubeconfig"
        self.options = options
        self.process = None

    def start(self):
        command = [sys.executable, "-m", "wainwright.sim.apiserver", "--kubeconfig", str(self.kubeconfig)]
        command += ["--data-dir", str(self.directory / "data"), "--exit-with-parent", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert "ready" in line, f"the embedded cluster said {line!r}"
        return self

    def stop(self):
        """Seconds that it took."""
        begun = time.monotonic()
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)
            self.process.stdout.close()
            self.process = None
        return time.monotonic() - begun


def a_container(name="main", image="registry.k8s.io/pause:3.10", **fields):
    return {"name": name, "image": image, **fields}


def a_pod(name=None, *, labels=None, containers=None, **spec):
    metadata = {"name": name} if name else {"generateName": "pod-"}
    if labels:
        metadata["labels"] = labels
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers or [a_container()], **spec},
    }


def a_binding(pod, node, **metadata):
    return {"metadata": {"name": pod, **metadata}, "target": {"kind": "Node", "name": node}}


def is_gone(answer):
    """Was a watch told that its version is too old? By status, or by an event, as the real server does."""
    status = answer.body.get("object", {}) if answer.status == 200 else answer.body
    return (status.get("code"), status.get("reason")) == (410, "Expired")


def a_config_map(name, labels=None, **data):
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def a_deployment(name, replicas=1, **spec):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [a_container()]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec},
    }


def a_definition(group, kind="Widget", *, schema=None, scope="Namespaced", **version):
    """A CustomResourceDefinition with one version v1."""
    plural = f"{kind.lower()}s"
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = schema or {"type": "object", "properties": {"spec": spec, "status": spec}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "shortNames": ["wd"]},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
        },
    }
