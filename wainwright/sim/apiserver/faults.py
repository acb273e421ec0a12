"""Fault switches: what a request meets before it is answered. For tests and drills, set over `/_wainwright/faults`."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from wainwright.sim.apiserver.errors import ApiError, too_many_requests
from wainwright.sim.apiserver.requests import Request


class FaultRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requests it is for, and what they meet.

    verbs: get, list, watch, create, update, patch, delete, deletecollection; empty: all. resources: plurals, with a
    sub-resource as `pods/binding`; empty: all. rate: share of these requests that fails with `status` (0 to 1).
    latency_seconds: added to each of them, failed or not. retry_after_seconds: sent along with 429 and 503.
    """

    verbs: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    rate: float = 0.0
    status: int = 500
    latency_seconds: float = 0.0
    retry_after_seconds: int | None = None

    def covers(self, verb: str, resource: str) -> bool:
        return (not self.verbs or verb in self.verbs) and (not self.resources or resource in self.resources)


class Faults:
    """The rules in force. Each request meets all rules that cover it; the first that fails it decides how."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self.rules: tuple[FaultRule, ...] = ()
        self._chance = chance or random.Random()

    def replace(self, body: bytes) -> None:
        """Put rules (a JSON list) in force, in place of those before. Raises msgspec.DecodeError naming the fault."""
        self.rules = msgspec.json.decode(body, type=tuple[FaultRule, ...])

    def encoded(self) -> bytes:
        return msgspec.json.encode(self.rules)

    def meet(self, request: Request) -> tuple[float, ApiError | None]:
        """Seconds to wait, and the failure to answer with, if any."""
        verb, resource = verb_and_resource(request)
        latency, failure = 0.0, None
        for rule in self.rules:
            if not rule.covers(verb, resource):
                continue
            latency += rule.latency_seconds
            if failure is None and rule.rate and self._chance.random() < rule.rate:
                failure = _failure(rule)
        return latency, failure


def _failure(rule: FaultRule) -> ApiError:
    if rule.status == 429:
        retry_after = 1 if rule.retry_after_seconds is None else rule.retry_after_seconds
        return too_many_requests("too many requests, please try again later (injected fault)", retry_after)
    reasons = {500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout", 409: "Conflict", 403: "Forbidden"}
    message = f"injected fault: status {rule.status}"
    return ApiError(
        rule.status, reasons.get(rule.status, "Unknown"), message, retry_after_seconds=rule.retry_after_seconds
    )


def verb_and_resource(request: Request) -> tuple[str, str]:
    """As RBAC names them: `list pods`, `create pods/binding`; (method, path) for what is no resource."""
    parts: list[Any] = request.path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] not in ("api", "apis") or not rest:
        return request.method.lower(), request.path
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        rest = rest[2:]
    named = len(rest) > 1
    resource = f"{rest[0]}/{rest[2]}" if len(rest) > 2 else rest[0]
    match request.method:
        case "GET" if not named:
            return ("watch" if request.flag("watch") else "list"), resource
        case "DELETE" if not named:
            return "deletecollection", resource
        case method:
            verbs = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
            return verbs.get(method, method.lower()), resource
