"""What reading a source answers, and how errors of one become "cannot tell"."""

from __future__ import annotations

from typing import Final, NamedTuple

from wainwright.podscaling.samples import believable

READ_SECONDS: Final = 3.0
"""Every attempt ends by then."""


class SourceError(Exception):
    """The source cannot be read, or lies; the message says how, for a condition."""


class Reading(NamedTuple):
    """value: load now. message: what it counts; the same words as long as it counts the same."""

    value: float
    message: str = ""


def load(value: float) -> float:
    """Raises SourceError unless it can be a load."""
    try:
        return believable(value)
    except ValueError as error:
        raise SourceError(str(error)) from error
