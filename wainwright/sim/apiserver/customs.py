"""CustomResourceDefinitions: what is wrong with one, and the kinds that it defines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wainwright.sim.apiserver.errors import Fault, invalid, required
from wainwright.sim.apiserver.kinds import Column, Kind, Object, ScalePaths
from wainwright.sim.apiserver.rules import has_rules, unchecked

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def _path(text: str) -> tuple[str, ...]:
    return tuple(text.strip(".").split("."))


def custom_kinds(definition: Object) -> list[Kind]:
    """One kind per served version. All versions are views of the same objects (conversion strategy None)."""
    spec = definition["spec"]
    names = spec["names"]
    return [_kind(spec, names, version) for version in spec["versions"] if version.get("served", True)]


def _kind(spec: Object, names: Object, version: Object) -> Kind:
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    selectable = version.get("selectableFields") or ()
    schema = version["schema"]["openAPIV3Schema"]
    return Kind(
        spec["group"],
        version["name"],
        names["kind"],
        names["plural"],
        namespaced=spec["scope"] == "Namespaced",
        singular=names.get("singular") or names["kind"].lower(),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in subresources,
        scale=ScalePaths(
            _path(scale["specReplicasPath"]),
            _path(scale["statusReplicasPath"]),
            _path(scale["labelSelectorPath"]) if scale.get("labelSelectorPath") else None,
        )
        if scale
        else None,
        unconditional_update=False,
        fields={field["jsonPath"].strip("."): _path(field["jsonPath"]) for field in selectable},
        columns=tuple(_column(column) for column in version.get("additionalPrinterColumns") or ()),
        schema=schema,
        has_rules=has_rules(schema),
        custom=True,
    )


def _column(column: Object) -> Column:
    return Column(
        column["name"],
        column["jsonPath"],
        column.get("type", "string"),
        column.get("format", ""),
        column.get("description", ""),
        column.get("priority", 0),
    )


def validate_definition(definition: Object) -> Iterator[Fault]:
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    for path, value in (
        ("spec.group", spec.get("group")),
        ("spec.scope", spec.get("scope")),
        ("spec.versions", spec.get("versions")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
    ):
        if not value:
            yield required(path)
    name, expected = definition["metadata"]["name"], f"{names.get('plural')}.{spec.get('group')}"
    if name != expected:
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    versions = spec.get("versions") or ()
    if versions and sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid(
            "spec.versions",
            [v.get("name") for v in versions],
            "must have exactly one version marked as storage version",
        )
    for index, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield required(f"spec.versions[{index}].schema.openAPIV3Schema")


def defined_status(definition: Object, at: str) -> Object:
    """Status of a definition that is served from now on."""
    spec: dict[str, Any] = definition["spec"]
    names = {"singular": spec["names"]["kind"].lower(), "listKind": f"{spec['names']['kind']}List", **spec["names"]}
    definition["spec"]["names"] = names
    spec.setdefault("conversion", {"strategy": "None"})
    return {
        "conditions": [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", at),
            _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", at),
        ],
        "acceptedNames": names,
        "storedVersions": [version["name"] for version in spec["versions"] if version.get("storage")],
    }


def _condition(type_: str, reason: str, message: str, at: str) -> dict[str, str]:
    return {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at}


def unchecked_rules(definition: Object) -> list[str]:
    """One warning per version and path with CEL rules that this server does not evaluate."""
    warnings = []
    for version in definition["spec"]["versions"]:
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        counts: dict[str, int] = {}
        for path, _ in unchecked(schema):
            counts[path] = counts.get(path, 0) + 1
        warnings += [
            f"{count} x-kubernetes-validations of {version['name']} {path or 'the object'} are not checked"
            for path, count in counts.items()
        ]
    return warnings
