"""Write wainwright/sim/apiserver/types.json: fields of the built-in kinds, from the tags in Kubernetes' Go types.

    go mod download -json k8s.io/api@v0.36.5   (and k8s.io/apimachinery, same version): each prints a directory
    python tests/contract/kube_api/generate_types.py API_DIRECTORY APIMACHINERY_DIRECTORY

One entry per struct, one list per field: JSON name, protobuf number, type, flags. Types: string int float bool bytes
time microtime quantity intstr raw, `[]T`, `{}T` (map from text), or the name of a struct. Flags: `p` pointer (a zero
is kept), `i` inline, `n` a time that is written as null when it is not set; for strategic merge `m=KEY` list merged by
this key, `m` by value, `r` retains keys; for server-side apply `k=KEYS` list map by these keys, `s` set, `a` atomic.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

OUTPUT = Path(__file__).parents[3] / "wainwright/sim/apiserver/types.json"

PACKAGES = {
    "core": "core/v1",
    "apps": "apps/v1",
    "batch": "batch/v1",
    "autoscaling": "autoscaling/v2",
    "scale": "autoscaling/v1",
    "policy": "policy/v1",
    "coordination": "coordination/v1",
    "discovery": "discovery/v1",
    "events": "events/v1",
    "scheduling": "scheduling/v1",
    "storage": "storage/v1",
    "networking": "networking/v1",
    "node": "node/v1",
    "rbac": "rbac/v1",
    "authorization": "authorization/v1",
    "authentication": "authentication/v1",
}
ROOTS = [
    "core.ConfigMap",
    "core.Endpoints",
    "core.Event",
    "core.LimitRange",
    "core.Namespace",
    "core.Node",
    "core.PersistentVolumeClaim",
    "core.PersistentVolume",
    "core.Pod",
    "core.PodTemplate",
    "core.ReplicationController",
    "core.ResourceQuota",
    "core.Secret",
    "core.ServiceAccount",
    "core.Service",
    "core.Binding",
    "apps.DaemonSet",
    "apps.Deployment",
    "apps.ReplicaSet",
    "apps.StatefulSet",
    "apps.ControllerRevision",
    "autoscaling.HorizontalPodAutoscaler",
    "scale.Scale",
    "batch.Job",
    "batch.CronJob",
    "policy.PodDisruptionBudget",
    "policy.Eviction",
    "coordination.Lease",
    "discovery.EndpointSlice",
    "events.Event",
    "scheduling.PriorityClass",
    "storage.StorageClass",
    "storage.CSINode",
    "storage.CSIDriver",
    "storage.CSIStorageCapacity",
    "storage.VolumeAttachment",
    "networking.NetworkPolicy",
    "networking.Ingress",
    "node.RuntimeClass",
    "rbac.ClusterRole",
    "rbac.ClusterRoleBinding",
    "rbac.Role",
    "rbac.RoleBinding",
    "authorization.SelfSubjectAccessReview",
    "authorization.SelfSubjectRulesReview",
    "authorization.SubjectAccessReview",
    "authorization.LocalSubjectAccessReview",
    "authentication.SelfSubjectReview",
    "meta.DeleteOptions",
]
SCALARS = {
    "string": "string",
    "bool": "bool",
    "int": "int",
    "int32": "int",
    "int64": "int",
    "float64": "float",
    "float32": "float",
    "[]byte": "bytes",
    "metav1.Time": "time",
    "metav1.MicroTime": "microtime",
    "meta.Time": "time",
    "meta.MicroTime": "microtime",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intstr",
    "runtime.RawExtension": "raw",
    "meta.FieldsV1": "raw",
    "types.UID": "string",
    "types.NodeName": "string",
    "k8s_api_v1.UID": "string",
}
ALIASES = {"metav1": "meta", "v1": "core", "corev1": "core", "apiv1": "core", "k8s_api_v1": "core"}


def structs(package: str, text: str) -> tuple[dict[str, list[tuple[str, str, list[str]]]], dict[str, str]]:
    """Fields (Go type, tag, markers) by struct, and plain named types."""
    found: dict[str, list[tuple[str, str, list[str]]]] = {}
    named: dict[str, str] = {}
    for match in re.finditer(r"^type (\w+) ([^\n{]+)$", text, re.MULTILINE):
        named[f"{package}.{match[1]}"] = match[2].split("//")[0].strip().lstrip("= ")
    for match in re.finditer(r"^type (\w+) struct \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields, markers = [], []
        for text in match[2].splitlines():
            line = text.strip()
            if line.startswith("//"):
                if line.startswith("// +"):
                    markers.append(line[4:])
                continue
            if not line:
                markers = []
                continue
            field = re.match(r"(?:\w+\s+)?([\w.\[\]*]+)\s+`([^`]*)`", line)
            if field:
                fields.append((field[1], field[2], markers))
            markers = []
        found[f"{package}.{match[1]}"] = fields
    return found, named


class Types:
    def __init__(self) -> None:
        self.structs: dict[str, list[tuple[str, str, list[str]]]] = {}
        self.named: dict[str, str] = {}
        self.done: dict[str, list[list[object]]] = {}

    def read(self, package: str, path: Path) -> None:
        found, named = structs(package, path.read_text())
        self.structs |= found
        self.named |= named

    def resolve(self, go: str, package: str) -> str:
        go = go.lstrip("*")
        if go in SCALARS:
            return SCALARS[go]
        if go.startswith("[]"):
            return f"[]{self.resolve(go[2:], package)}"
        if go.startswith("map["):
            return f"{{}}{self.resolve(go.partition(']')[2], package)}"
        prefix, _, name = go.rpartition(".")
        full = f"{ALIASES.get(prefix, prefix) or package}.{name}"
        if full in SCALARS:
            return SCALARS[full]
        if full in self.named:
            return self.resolve(self.named[full], full.partition(".")[0])
        if full not in self.structs:
            raise SystemExit(f"unknown type {go} in {package}")
        self.add(full)
        return full

    def add(self, full: str) -> None:
        if full in self.done:
            return
        fields: list[list[object]] = []
        self.done[full] = fields
        package = full.partition(".")[0]
        for go, tag, markers in self.structs[full]:
            tags = dict(re.findall(r'(\w+):"([^"]*)"', tag))
            json_name, *options = tags.get("json", "").split(",")
            if go.endswith("TypeMeta"):
                continue
            protobuf = tags.get("protobuf", "").split(",")
            number = int(protobuf[1]) if len(protobuf) > 1 else 0
            inline = "inline" in options or (not json_name and "json" in tags)
            if not number and inline:
                fields += self.inlined(go, package)
                continue
            flags = ["p"] if go.startswith("*") else []
            if inline:
                flags.append("i")
            if self.resolve(go, package) in ("time", "microtime") and not flags and "omitzero" not in options:
                flags.append("n")
            if "merge" in tags.get("patchStrategy", ""):
                flags.append(f"m={tags['patchMergeKey']}" if "patchMergeKey" in tags else "m")
            if "retainKeys" in tags.get("patchStrategy", ""):
                flags.append("r")
            keys = [marker.partition("=")[2] for marker in markers if marker.startswith("listMapKey=")]
            if "listType=map" in markers:
                flags.append(f"k={','.join(keys)}")
            elif "listType=set" in markers:
                flags.append("s")
            elif "listType=atomic" in markers or "mapType=atomic" in markers or "structType=atomic" in markers:
                flags.append("a")
            fields.append([json_name, number, self.resolve(go, package), " ".join(flags)])

    def inlined(self, go: str, package: str) -> list[list[object]]:
        name = self.resolve(go, package)
        return self.done[name]


def main() -> None:
    api, machinery = Path(sys.argv[1]), Path(sys.argv[2])
    types = Types()
    types.read("meta", machinery / "pkg/apis/meta/v1/types.go")
    for package, directory in PACKAGES.items():
        types.read(package, api / directory / "types.go")
    for root in ROOTS:
        types.add(root)
    lines = (
        f"{json.dumps(name)}:{json.dumps(fields, separators=(',', ':'))}" for name, fields in sorted(types.done.items())
    )
    OUTPUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
