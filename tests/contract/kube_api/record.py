"""Ask a cluster the recorded requests, and write down what a real one answers.

    python -m tests.contract.kube_api.record KUBECONFIG NEW_NAMESPACE

`test_recorded` compares the embedded server's answers with these, key by key.
"""

import json
import re
import sys
from pathlib import Path

import yaml

from tests.contract.kube_api.cluster import TABLE, Api

DIRECTORY = Path(__file__).parent / "recorded"
ANSWERS = DIRECTORY / "answers.json"


def requests():
    found = yaml.safe_load((DIRECTORY / "requests.yaml").read_text())
    defaults = ["application/json", "application/json"]
    return [(*request, *defaults[len(request) - 3 :]) for request in found]


def ask(api, namespace):
    """Status and body of each answer, times, versions, uids and the namespace's name made the same everywhere."""
    assert api.post("/api/v1/namespaces", {"metadata": {"name": namespace}}).status == 201
    answers = []
    for method, path, body, media, accept in requests():
        text = json.dumps(body).replace("NS", namespace) if body is not None else None
        answer = api.send(
            method, path.replace("NS", namespace), text, media=media, accept=TABLE if accept == "table" else accept
        )
        answers.append([answer.status, levelled(answer.body, namespace)])
    api.delete(f"/api/v1/namespaces/{namespace}")
    api.delete(f"/api/v1/persistentvolumes/{namespace}")
    return answers


def levelled(value, namespace):
    if isinstance(value, dict):
        return {
            key.replace(namespace, "NS"): "VARIES" if key in VARYING else levelled(item, namespace)
            for key, item in value.items()
            if key not in DELIBERATE and levelled(item, namespace) not in ({}, [])
        }
    if isinstance(value, list):
        return [levelled(item, namespace) for item in value if not (isinstance(item, str) and item in PROTECTION)]
    if isinstance(value, str):
        value = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID", value)
        value = re.sub(r"\b20(?!26-01-0)\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME", value)
        value = re.sub(r"^\d+[smhd]$", "AGE", value)
        return value.partition("\n@@")[0].replace(namespace, "NS")
    return value


VARYING = {"resourceVersion", "continue"}
DELIBERATE = {"managedFields", "deprecated.daemonset.template.generation", "lastPhaseTransitionTime", "description"}
"""What the embedded server leaves out, or tells in other words: docs/embedded-cluster.md."""
PROTECTION = {"kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"}


def main():
    answers = ask(Api(sys.argv[1]), sys.argv[2])
    ANSWERS.write_text("[\n" + ",\n".join(json.dumps(answer, sort_keys=True) for answer in answers) + "\n]\n")


if __name__ == "__main__":
    main()
