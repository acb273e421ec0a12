"""The base of every resource struct."""

from __future__ import annotations

from typing import NewType, dataclass_transform

import msgspec

PodUid = NewType("PodUid", str)
"""metadata.uid of a Pod: the only identity that survives re-creation under the same name."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Resource(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Immutable part of an API object: camelCase on the wire, unknown fields skipped, defaults left out."""
