"""Attempts to get one instance for a claim: what was asked of the cloud, exactly, so that it can be asked again. Pure.

Only a received answer ends an attempt; until then whoever carries on sends the same request under the same token, and
the cloud answers with the same instance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from wainwright.cloud.port import LaunchRequest
from wainwright.scheduling.instance_types import OfferingKey
from wainwright.scheduling.snapshot import Option

LAUNCHED: Final = "Launched"
"""Outcome of the attempt that gave the instance."""
SOLD_OUT: Final = "InsufficientCapacity"


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt, as the NodeClaim's annotation `wainwright.dev/attempts` holds it.

    request: what is sent, but for token (it names the NodeClaim's UID), date and options, which are those that the
    claim keeps without `without`. An attempt that ended keeps only its number and its outcome (a CamelCase word).
    """

    number: int
    request: LaunchRequest | None = None
    without: tuple[str, ...] = ()
    outcome: str = ""

    @property
    def is_open(self) -> bool:
        return not self.outcome


def token(uid: str, number: int) -> str:
    """The cloud's idempotency token: NodeClaim UID and attempt."""
    return f"{uid}-{number}"


def uid_of(token: str) -> str:
    """UID of the NodeClaim that a token was made for."""
    return token.rpartition("-")[0]


def encode_attempts(attempts: Sequence[Attempt]) -> str:
    return msgspec.json.encode(attempts).decode()


def decode_attempts(text: str) -> tuple[Attempt, ...]:
    """No attempts where the text is missing or is none of ours (somebody edited the annotation)."""
    try:
        return msgspec.json.decode(text or "[]", type=tuple[Attempt, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()


def is_matched(option: OfferingKey, pattern: OfferingKey) -> bool:
    """Is the offering one of those that the pattern names? `*` in a field matches everything."""
    return (
        pattern.capacity_type in ("*", option.capacity_type)
        and pattern.instance_type in ("*", option.instance_type)
        and pattern.zone in ("*", option.zone)
    )


def without_any(options: Iterable[Option], sold_out: Collection[OfferingKey]) -> tuple[Option, ...]:
    """The options that no pattern of sold_out matches, in their order."""
    exact = {pattern for pattern in sold_out if "*" not in (pattern.capacity_type, pattern.instance_type, pattern.zone)}
    broad = [pattern for pattern in sold_out if pattern not in exact]
    return tuple(
        option
        for option in options
        if option.key not in exact and not any(is_matched(option.key, pattern) for pattern in broad)
    )


def first_attempt(request: LaunchRequest, options: Sequence[Option], unavailable: Collection[OfferingKey]) -> Attempt:
    """Attempt 1 with every option that is not known to be unavailable; with all of them where none would be left (the
    cloud has the last word).
    """
    left = without_any(options, unavailable) or tuple(options)
    return _attempt(1, request, options, left)


def next_attempt(
    attempts: Sequence[Attempt],
    options: Sequence[Option],
    unavailable: Collection[OfferingKey],
    sold_out: Collection[OfferingKey],
) -> tuple[Attempt, ...] | None:
    """The attempts with the open one ended (SOLD_OUT) and a new one with what is left; None: nothing is.

    sold_out: what the answer named. An answer that names nothing of the request counts against all of it.
    """
    *ended, last = attempts
    assert last.request is not None, last
    asked = options_of(last, options)
    left = without_any(asked, sold_out)
    if len(left) == len(asked):
        return None
    left = without_any(left, unavailable)
    if not left:
        return None
    over = Attempt(number=last.number, outcome=SOLD_OUT)
    return (*ended, over, _attempt(last.number + 1, last.request, options, left))


def ended(attempts: Sequence[Attempt], outcome: str) -> tuple[Attempt, ...]:
    """The attempts with the open one, if any, ended."""
    return tuple(Attempt(number=a.number, outcome=outcome) if a.is_open else a for a in attempts)


def options_of(attempt: Attempt, options: Iterable[Option]) -> tuple[Option, ...]:
    """What the attempt asks for, of all that the claim keeps."""
    without = set(attempt.without)
    return tuple(option for option in options if str(option.key) not in without)


def request_of(attempt: Attempt, uid: str, options: Sequence[Option], issued_at: datetime) -> LaunchRequest:
    """What is sent: the same each time, but for its date."""
    assert attempt.request is not None, attempt
    return msgspec.structs.replace(
        attempt.request,
        token=token(uid, attempt.number),
        issued_at=issued_at,
        options=options_of(attempt, options),
    )


def _attempt(number: int, request: LaunchRequest, options: Sequence[Option], left: Sequence[Option]) -> Attempt:
    kept = {option.key for option in left}
    without = tuple(dict.fromkeys(str(option.key) for option in options if option.key not in kept))
    bare = msgspec.structs.replace(request, token="", options=())
    return Attempt(number=number, request=bare, without=without)
