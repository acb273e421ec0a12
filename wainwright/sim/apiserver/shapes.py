"""How values of a kind are put together: which lists are maps or sets, and what is replaced whole.

One view over the two places that know: the types of built-in kinds, and the schemas of custom resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wainwright.sim.apiserver.kinds import Kind
from wainwright.sim.apiserver.types import Field, fields_of, struct_of

KEY_DEFAULTS = {"protocol": "TCP"}
"""What a key of a list item is taken for when the item leaves it out."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one value. list_keys: the list's items are told apart by these; is_set: by their values; neither: the list is
    replaced whole. atomic: so is the map. A value of unknown shape merges maps and replaces lists.
    """

    list_keys: tuple[str, ...] = ()
    is_set: bool = False
    atomic: bool = False
    type: str = ""
    schema: Mapping[str, Any] | None = None

    def field(self, name: str) -> Shape:
        if self.schema is not None:
            inner = (self.schema.get("properties") or {}).get(name)
            if inner is None:
                extra = self.schema.get("additionalProperties")
                inner = extra if isinstance(extra, dict) else None
            return _of_schema(inner) if inner is not None else _UNKNOWN
        if self.type.startswith("{}"):
            return Shape(type=self.type[2:])
        fields = fields_of(self.type) if self.type else None
        found = fields.get(name) if fields else None
        return _of_field(found) if found is not None else _UNKNOWN

    def item(self) -> Shape:
        if self.schema is not None:
            inner = self.schema.get("items")
            return _of_schema(inner) if isinstance(inner, dict) else _UNKNOWN
        return Shape(type=self.type.removeprefix("[]"))


_UNKNOWN = Shape()


def _of_field(field: Field) -> Shape:
    return Shape(field.list_keys, field.is_set, field.atomic, field.type)


def _of_schema(schema: Mapping[str, Any]) -> Shape:
    list_type = schema.get("x-kubernetes-list-type")
    return Shape(
        tuple(schema.get("x-kubernetes-list-map-keys") or ()) if list_type == "map" else (),
        list_type == "set",
        schema.get("x-kubernetes-map-type") == "atomic",
        schema=schema,
    )


@dataclass(frozen=True, slots=True)
class _Whole(Shape):
    """The shape of a custom resource: its metadata are those of every object."""

    def field(self, name: str) -> Shape:
        return Shape(type="meta.ObjectMeta") if name == "metadata" else _of_schema(self.schema or {}).field(name)


def shape_of(kind: Kind) -> Shape:
    if kind.schema is not None:
        return _Whole(schema=kind.schema)
    return Shape(type=struct_of(kind.group, kind.name) or "")
