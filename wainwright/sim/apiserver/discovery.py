"""What the server says about itself: version, groups, resources, and OpenAPI without schemas."""

from __future__ import annotations

import hashlib
from typing import Any

from wainwright.sim.apiserver.kinds import REVIEWS, Kind, Object, Registry

VERSION: Object = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+wainwright",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_POD_VERBS: dict[str, tuple[str, list[str], str, str]] = {
    "binding": ("Binding", ["create"], "", ""),
    "eviction": ("Eviction", ["create"], "policy", "v1"),
    "log": ("Pod", ["get"], "", ""),
}


def subresources(kind: Kind) -> list[tuple[str, str, list[str], str, str]]:
    """Name, kind, verbs, and the group and version of the kind where it is another's."""
    found = []
    if kind.status:
        found.append(("status", kind.name, ["get", "patch", "update"], "", ""))
    if kind.scale:
        found.append(("scale", "Scale", ["get", "patch", "update"], "autoscaling", "v1"))
    if kind.collection == "pods":
        found += [(name, *rest) for name, rest in _POD_VERBS.items()]
    if kind.collection == "namespaces":
        found.append(("finalize", "Namespace", ["update"], "", ""))
    return found


def versions_list() -> Object:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
    }


def _group(name: str, versions: list[str]) -> Object:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def group_list(registry: Registry) -> Object:
    groups = [_group(name, versions) for name, versions in registry.versions().items() if name]
    if not any(group["name"] == "autoscaling" for group in groups):
        groups.append(_group("autoscaling", ["v2"]))
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Object | None:
    versions = registry.versions().get(name) if name else None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None


def resource_list(registry: Registry, name: str, version: str) -> Object | None:
    """The resources of a group and version; None for one that is not served."""
    resources: list[Object] = []
    for kind in registry.served(name, version):
        entry: Object = {
            "name": kind.plural,
            "singularName": kind.singular or kind.name.lower(),
            "namespaced": kind.namespaced,
            "kind": kind.name,
            "verbs": [
                verb for verb in _VERBS if verb != "deletecollection" or kind.plural not in ("namespaces", "services")
            ],
        }
        if kind.short_names:
            entry["shortNames"] = list(kind.short_names)
        if kind.categories:
            entry["categories"] = list(kind.categories)
        resources.append(entry)
        for sub, sub_kind, verbs, sub_group, sub_version in subresources(kind):
            entry = {
                "name": f"{kind.plural}/{sub}",
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": sub_kind,
                "verbs": verbs,
            }
            if sub_group:
                entry |= {"group": sub_group, "version": sub_version}
            resources.append(entry)
    resources += [
        {
            "name": review.plural,
            "singularName": review.name.lower(),
            "namespaced": review.namespaced,
            "kind": review.name,
            "verbs": ["create"],
        }
        for review in REVIEWS
        if (review.group, review.version) == (name, version)
    ]
    if (name, version) == ("", "v1"):
        resources.append(
            {"name": "bindings", "singularName": "binding", "namespaced": True, "kind": "Binding", "verbs": ["create"]}
        )
    if not resources:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{name}/{version}" if name else version,
        "resources": resources,
    }


def aggregated(registry: Registry, *, core: bool) -> Object:
    """Everything of /api (core) or /apis in one document."""
    items = []
    for name, versions in registry.versions().items():
        if bool(name) == core:
            continue
        entries = []
        for version in versions:
            listed = resource_list(registry, name, version)
            assert listed is not None
            entries.append(
                {
                    "version": version,
                    "resources": _discovered(listed["resources"], name, version),
                    "freshness": "Current",
                }
            )
        metadata: Object = {"name": name, "creationTimestamp": None}
        items.append({"metadata": metadata, "versions": entries})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _discovered(resources: list[Object], group_name: str, version: str) -> list[Object]:
    found: dict[str, Object] = {}
    for resource in resources:
        response = {
            "group": resource.get("group", group_name),
            "version": resource.get("version", version),
            "kind": resource["kind"],
        }
        name, _, sub = resource["name"].partition("/")
        if sub:
            found[name].setdefault("subresources", []).append(
                {"subresource": sub, "responseKind": response, "verbs": resource["verbs"]}
            )
            continue
        entry: Object = {
            "resource": name,
            "responseKind": response,
            "scope": "Namespaced" if resource["namespaced"] else "Cluster",
            "singularResource": resource["singularName"],
            "verbs": resource["verbs"],
        }
        for key in ("shortNames", "categories"):
            if key in resource:
                entry[key] = resource[key]
        found[name] = entry
    return list(found.values())


def openapi_index(registry: Registry) -> Object:
    paths = {}
    for name, versions in registry.versions().items():
        for version in versions:
            path = f"apis/{name}/{version}" if name else f"api/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(registry, name, version)}"}
    return {"paths": paths}


def openapi_document(registry: Registry, name: str, version: str) -> Object | None:
    """Paths with what kubectl asks of them: group, version, kind, and that fields are validated. No schemas."""
    kinds = registry.served(name, version)
    if not kinds and not _posted(name, version):
        return None
    root = f"/apis/{name}/{version}" if name else f"/api/{version}"
    paths: dict[str, Any] = {}
    for kind in kinds:
        operation = _operation(kind.group, kind.version, kind.name)
        base = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
        paths[base] = dict.fromkeys(("get", "post", "delete"), operation)
        paths[f"{base}/{{name}}"] = dict.fromkeys(("get", "put", "patch", "delete"), operation)
    for plural, kind_name in _posted(name, version):
        paths[f"{root}/{plural}"] = {"post": _operation(name, version, kind_name)}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": {}},
    }


_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def _operation(group_name: str, version: str, kind: str) -> Object:
    return {
        "x-kubernetes-group-version-kind": {"group": group_name, "version": version, "kind": kind},
        "parameters": _PARAMETERS,
        "responses": {"200": {"description": "OK"}},
    }


def _posted(name: str, version: str) -> list[tuple[str, str]]:
    """Plural and kind of what can only be posted."""
    found = [(review.plural, review.name) for review in REVIEWS if (review.group, review.version) == (name, version)]
    if (name, version) == ("", "v1"):
        found.append(("namespaces/{namespace}/bindings", "Binding"))
    return found


def _hash(registry: Registry, name: str, version: str) -> str:
    """Names the content of a document, so that clients keep it while it is the same."""
    return hashlib.sha256(",".join(kind.name for kind in registry.served(name, version)).encode()).hexdigest()[:16]
