"""What Redis remembers of one autoscaler between decisions: one text value, read with the others in one MGET.

`decided_ms` comes first: the script that writes records compares it without decoding the rest.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wainwright.autoscaling.decider import DeciderState, Decision, Limit, Verdict
from wainwright.autoscaling.windows import Windows


class SourceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """windows: its load, None before the first sample. failed_s: second of its last failure, 0 while it can be read.
    message: what it counts, or why it cannot be read; since_s: since when it says so.
    """

    windows: Windows | None = None
    failed_s: int = 0
    message: str = ""
    since_s: int = 0

    @property
    def last_s(self) -> int:
        """Second of the newest sample; 0: none."""
        return self.windows.stable.last_s if self.windows is not None and self.windows.stable.values else 0


class LastDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What the newest decision found, as `Decision` has it; what it decided is in the state beside it."""

    verdict: Verdict = Verdict.DECIDED
    ready_pods: int | None = None
    stable_value: float | None = None
    panic_value: float | None = None
    limits: tuple[Limit, ...] = ()

    @classmethod
    def of(cls, decision: Decision) -> LastDecision:
        return cls(
            verdict=decision.verdict,
            ready_pods=decision.ready_pods,
            stable_value=decision.stable_value,
            panic_value=decision.panic_value,
            limits=decision.limits,
        )

    def with_state(self, state: DeciderState) -> Decision:
        """The whole decision; state: as it was left by it."""
        valid = self.verdict is Verdict.DECIDED
        return Decision(
            ready_pods=self.ready_pods,
            desired=state.desired if valid else None,
            excess_burst_capacity=state.excess_burst_capacity if valid else None,
            valid=valid,
            verdict=self.verdict,
            panic=state.panic_since_ms is not None,
            panic_since_ms=state.panic_since_ms,
            max_panic_pods=state.max_panic_pods,
            stable_value=self.stable_value,
            panic_value=self.panic_value,
            limits=self.limits,
        )


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """decided_ms: instant of the newest decision, by the Redis server's clock. uid: of the PodAutoscaler; another one
    under its name starts anew. folded: the inbox entry up to which samples are in the windows. state: what the next
    decision remembers. last: None before the first decision. sources: by name, `name|reporter` where several report
    through one.
    """

    decided_ms: int
    uid: str
    folded: str = "0-0"
    state: DeciderState
    last: LastDecision | None = None
    sources: dict[str, SourceRecord] = {}


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Record)


def encode_record(record: Record) -> bytes:
    return _ENCODER.encode(record)


def decode_record(text: bytes | str | None) -> Record | None:
    """None also for a text that is no record (another version's, or damaged): its autoscaler starts anew."""
    if text is None:
        return None
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return None
