"""Samples of load on their way from a source into an autoscaler's windows: one JSON text per collection and shard."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

MOST_LOAD: Final = 1e9
"""A source that claims more is not believed."""
NAME_SEPARATOR: Final = "|"
"""Between a source's name and whoever reports through it: `push|web-7f`. In no source's name."""


class Sample(NamedTuple):
    """What a source said. key: the autoscaler's `namespace/name`. source: its name, with `|reporter` where several
    report through it. second: unix time of the measurement. value: summed over pods; None: it could not be read.
    message: what the value counts, or why there is none.
    """

    key: str
    source: str
    second: int
    value: float | None
    message: str = ""


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(list[Sample])


class LoadRefused(ValueError):
    """A value that is no load: not a number, negative, infinite, or absurdly large."""


def believable(value: float) -> float:
    """The value, if it can be a load. Raises LoadRefused, naming it."""
    if not math.isfinite(value):
        raise LoadRefused(f"{value} is not a finite number")
    if value < 0:
        raise LoadRefused(f"{value:g} is negative")
    if value > MOST_LOAD:
        raise LoadRefused(f"{value:g} is more than {MOST_LOAD:g}")
    return value


def encode_samples(samples: Sequence[Sample]) -> bytes:
    return _ENCODER.encode(samples)


def decode_samples(text: bytes | str) -> list[Sample]:
    """Raises msgspec.MsgspecError for what this program did not write."""
    return _DECODER.decode(text)


def loaded_keys(samples: Iterable[Sample]) -> list[str]:
    """Autoscalers that have load at all, each once."""
    return sorted({sample.key for sample in samples if sample.value})
