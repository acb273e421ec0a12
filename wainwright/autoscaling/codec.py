"""State as JSON text, for a store that people read: encode, then decode, is identity."""

from __future__ import annotations

from typing import Final

import msgspec

from wainwright.autoscaling.decider import DeciderState
from wainwright.autoscaling.windows import Windows

_ENCODER: Final = msgspec.json.Encoder()
_STATE: Final = msgspec.json.Decoder(DeciderState)
_WINDOWS: Final = msgspec.json.Decoder(Windows)


class StateUnreadable(ValueError):
    """The text is not such a state: treat it as lost, and start anew."""


def encode_state(state: DeciderState) -> bytes:
    return _ENCODER.encode(state)


def decode_state(text: bytes | str) -> DeciderState:
    """Raises StateUnreadable."""
    try:
        return _STATE.decode(text)
    except msgspec.MsgspecError as error:
        raise StateUnreadable(str(error)) from error


def encode_windows(windows: Windows) -> bytes:
    return _ENCODER.encode(windows)


def decode_windows(text: bytes | str) -> Windows:
    """Raises StateUnreadable."""
    try:
        return _WINDOWS.decode(text)
    except msgspec.MsgspecError as error:
        raise StateUnreadable(str(error)) from error
