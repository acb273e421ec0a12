"""Every setting, in groups; the environment is read here and nowhere else.

`WAINWRIGHT_<GROUP>_<FIELD>`: `WAINWRIGHT_BATCHING_IDLE_SECONDS=0.5` sets `settings.batching.idle_seconds`. A misspelt
name or a bad value stops the process and says which, with the likely right name. docs/settings.md is made from here.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

PREFIX = "WAINWRIGHT_"


class SettingsError(Exception):
    """One line per fault: variable, value, what is wrong, and the likely right name."""


class Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class RedisSettings(Group):
    url: str = Field("redis://127.0.0.1:6379/0", pattern=r"^(rediss?|unix)://")
    """Where streams, records and the view live: `redis://`, `rediss://` or `unix://`. Wants append-only, noeviction."""

    broker_url: str = ""
    """Celery's broker; empty: the same Redis. It carries hints only, and may lose them."""

    visibility_seconds: float = Field(3600.0, ge=1)
    """Celery's visibility timeout: messages that no worker acknowledged within it are delivered again. Ours are
    acknowledged when they are taken, and doing one twice changes nothing, so no value can do harm."""

    prefix: str = Field("wainwright:", pattern=r"^[a-zA-Z0-9._-]+:$")
    """Every key starts with it; several clusters can share one Redis under different prefixes."""


class KubeSettings(Group):
    kubeconfig: str = ""
    """Path of a kubeconfig. Empty: the pod's service account, else $KUBECONFIG, else ~/.kube/config."""

    context: str = ""
    """Context of the kubeconfig; empty: its current one."""

    karpenter: Literal["refuse", "ignore"] = "refuse"
    """What to do when Karpenter's leader Lease is fresh. Both at work on the same NodePools buy every node twice, so
    the default is to refuse to start; `ignore` when Karpenter looks after other NodePools only."""


class BatchingSettings(Group):
    idle_seconds: float = Field(1.0, gt=0, le=60)
    """A window closes this long after its last new pod. Karpenter's BATCH_IDLE_DURATION."""

    max_seconds: float = Field(10.0, gt=0, le=600)
    """A window never stays open longer than this after its first pod. Karpenter's BATCH_MAX_DURATION."""

    max_items: int = Field(2000, ge=1, le=20_000)
    """A window closes at once when it holds this many; the rest waits for the next one."""

    shards: int = Field(4, ge=1, le=256)
    """NodePools are divided into so many shards; each is served by one window worker at a time. All processes must
    agree on it."""

    @model_validator(mode="after")
    def _idle_within_max(self) -> BatchingSettings:
        if self.idle_seconds > self.max_seconds:
            raise ValueError(f"idle_seconds {self.idle_seconds:g} must not exceed max_seconds {self.max_seconds:g}")
        return self


class SolveSettings(Group):
    max_pods: int = Field(20_000, ge=1)
    """Pods solved together at most; further closed batches wait for the next solve."""

    work_units: int = Field(500_000_000, ge=1000)
    """Upper bound on the solver's candidate checks in one solve."""

    improvement_units: int = Field(2_000_000, ge=0)
    """How many of these may go into making a complete plan cheaper; 0: the first plan found is taken."""

    seconds: float = Field(30.0, gt=0, le=600)
    """A solve is stopped after this long and keeps what it has; the pods it did not reach are tried again."""

    preferences: Literal["Respect", "Ignore"] = "Respect"
    """Karpenter's PREFERENCE_POLICY: keep preferred affinities and spreads where possible, or ignore them."""

    min_values: Literal["Strict", "BestEffort"] = "Strict"
    """Karpenter's MIN_VALUES_POLICY."""

    keep_inputs_hours: float = Field(24.0, gt=0)
    """How long plans, and the input each was computed from, stay readable in Redis."""

    keep_inputs_mb: float = Field(256.0, ge=0)
    """So much of these inputs is kept at most; the oldest go first. One is 6 MB in a cluster of 10,000 pods."""


class LaunchSettings(Group):
    binding: Literal["direct", "scheduler"] = "direct"
    """`direct` binds pods to their new nodes through the Binding sub-resource; `scheduler` leaves it to
    kube-scheduler and only nominates."""

    deadline_seconds: float = Field(300.0, gt=0)
    """A claim without an instance after this long fails; its pods are queued anew. Karpenter's 5 minutes."""

    ready_deadline_seconds: float = Field(900.0, gt=0)
    """A node that is not Ready this long after its launch is removed. Karpenter's 15 minutes."""

    unavailable_seconds: float = Field(180.0, gt=0)
    """How long an offering without capacity is not asked for again."""

    nomination_seconds: float = Field(20.0, gt=0)
    """How long room on a ready node is kept for pods that kube-scheduler is to bind."""


class CloudSettings(Group):
    provider: Literal["simulated"] = "simulated"
    """Which CloudProvider makes the nodes."""

    url: str = Field("http://127.0.0.1:8182", pattern=r"^https?://")
    """Address of the simulated cloud."""

    cluster: str = Field("wainwright", pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$")
    """This cluster's name; instances are tagged with it, and only those are ours."""


class WatcherSettings(Group):
    lease_seconds: float = Field(6.0, ge=2)
    """Length of the Kubernetes Lease that makes one watcher the active one; a standby takes over after it."""

    namespace: str = "kube-system"
    """Where that Lease lives."""

    watch_seconds: float = Field(10.0, ge=1, le=300)
    """Watches end and resume after this long, so that progress is known in a quiet cluster too."""

    stale_seconds: float = Field(15.0, ge=2)
    """A watch without a sign of life for this long is cut and resumed."""

    resync_seconds: float = Field(30.0, ge=1)
    """How often all pending pods are compared with what is queued, planned or set aside."""


class AutoscalingSettings(Group):
    shards: int = Field(4, ge=1, le=256)
    """PodAutoscalers are divided into so many shards, each with ticks of its own. All processes must agree on it; 16
    suit 10,000 of them."""

    namespace: str = "kube-system"
    """Where the ConfigMap config-autoscaler is."""

    connections: str = ""
    """Folder with one file per Redis connection that a PodAutoscaler may name: file name is the connection's, content
    the URL (a mounted Secret looks so). Empty: there are none."""

    push_listen: str = "127.0.0.1"
    """Address that the push endpoint binds."""

    push_port: int = Field(8183, ge=0, le=65535)
    """Port of the push endpoint (`python -m workers.push`)."""

    push_token: str = ""
    """Who pushes must send `Authorization: Bearer TOKEN` with it. Empty: anyone who reaches the port may push."""


class BeatSettings(Group):
    """Periods of the periodic tasks, in seconds. Two beats may run; each slot is taken once."""

    sweep_seconds: float = Field(1.0, ge=0.1)
    """Finds every record that nobody has held for a second, and hints again."""

    retries_seconds: float = Field(1.0, ge=0.1)
    """Brings pods that could not be placed back into a batch when they are due."""

    lifecycle_seconds: float = Field(1.0, ge=0.1)
    """Moves claims along: nodes registered, ready, being deleted, gone; nominations that ran out."""

    pools_seconds: float = Field(5.0, ge=0.5)
    """Validates NodePools, writes their conditions and counts their resources."""

    garbage_seconds: float = Field(30.0, ge=1)
    """Compares the cloud's instances with the claims, and terminates what belongs to none."""

    collect_seconds: float = Field(1.0, ge=0.5, le=8)
    """Reads the load of pod autoscalers. Seconds between two readings count as the earlier one."""

    decide_seconds: float = Field(2.0, ge=0.5, le=30)
    """Decides how many pods there should be. Knative's tick."""

    pushes_seconds: float = Field(1.0, ge=0.1, le=10)
    """Takes over load that applications pushed."""

    autoscaler_config_seconds: float = Field(2.0, ge=0.5)
    """Looks at the ConfigMap config-autoscaler."""

    slot_seconds: float = Field(60.0, ge=5)
    """How long the guard of a slot is kept; longer than any message can be late."""


class StackSettings(Group):
    boot_delay_seconds: float = Field(3.0, ge=0)
    """How long a simulated instance takes to boot."""

    launch_delay_seconds: float = Field(0.2, ge=0)
    """How long the simulated cloud takes to launch one."""

    catalog: str = ""
    """A `packing-catalog/v1` file to use as the simulated cloud's catalog; empty: a generated one."""

    window_threads: int = Field(4, ge=1)
    """Threads of a window worker; one serves one shard at a time."""

    launch_threads: int = Field(16, ge=1)
    """Threads of a launch worker; one carries out one claim at a time."""


class LogSettings(Group):
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least severity written."""

    format: Literal["text", "json"] = "text"
    """One line per record either way."""


class Settings(Group):
    """All of it. Frozen: changing a setting means starting the process anew."""

    redis: RedisSettings = RedisSettings()
    kube: KubeSettings = KubeSettings()
    batching: BatchingSettings = BatchingSettings()
    solve: SolveSettings = SolveSettings()
    launch: LaunchSettings = LaunchSettings()
    cloud: CloudSettings = CloudSettings()
    watcher: WatcherSettings = WatcherSettings()
    autoscaling: AutoscalingSettings = AutoscalingSettings()
    beat: BeatSettings = BeatSettings()
    stack: StackSettings = StackSettings()
    log: LogSettings = LogSettings()

    @property
    def broker_url(self) -> str:
        return self.redis.broker_url or self.redis.url


def variables() -> dict[str, tuple[str, str]]:
    """Every environment variable: name → (group, field)."""
    names: dict[str, tuple[str, str]] = {}
    for group, description in Settings.model_fields.items():
        kind = description.annotation
        assert isinstance(kind, type), group
        assert issubclass(kind, Group), group
        for field in kind.model_fields:
            names[f"{PREFIX}{group}_{field}".upper()] = (group, field)
    return names


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Settings from `environ`. Raises SettingsError with every fault at once."""
    known = variables()
    faults: list[str] = []
    values: dict[str, dict[str, str]] = {}
    for name, value in sorted(environ.items()):
        if not name.startswith(PREFIX) or name.startswith(f"{PREFIX}TEST_"):
            continue
        if place := known.get(name):
            values.setdefault(place[0], {})[place[1]] = value
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else "`wainwright settings` lists them all"
        faults.append(f"{name}={value}: there is no such setting; {hint}")
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        by_place = {where: name for name, where in known.items()}
        for fault in error.errors():
            where = tuple(str(part) for part in fault["loc"])
            group = where[0] if where else ""
            given = values.get(group, {})
            concerned = [where[1]] if len(where) > 1 else sorted(given)
            shown = ", ".join(f"{by_place[group, field]}={given.get(field, '')}" for field in concerned)
            faults.append(f"{shown}: {fault['msg'].removeprefix('Value error, ')}")
        raise SettingsError("\n".join(faults)) from error
    if faults:
        raise SettingsError("\n".join(faults))
    return settings


def environment(settings: Settings) -> dict[str, str]:
    """The variables that make another process load the same settings; defaults left out."""
    changed: dict[str, str] = {}
    default = Settings()
    for name, (group, field) in variables().items():
        value = getattr(getattr(settings, group), field)
        if value != getattr(getattr(default, group), field):
            changed[name] = str(value)
    return changed


def documentation() -> str:
    """docs/settings.md: every variable with default and meaning."""
    lines = [
        "# Settings",
        "",
        "Made from `config/settings.py` by `wainwright settings --markdown`; a test compares them.",
        "",
    ]
    for group, description in Settings.model_fields.items():
        kind = description.annotation
        assert isinstance(kind, type), group
        assert issubclass(kind, Group), group
        lines += [f"## {group}", ""]
        if kind.__doc__ and kind.__doc__ != Group.__doc__:
            lines += [kind.__doc__.strip(), ""]
        lines += ["| variable | default | meaning |", "|---|---|---|"]
        for field, info in kind.model_fields.items():
            meaning = " ".join((info.description or "").split()).replace("|", "\\|")
            default = f"`{info.default}`" if info.default != "" else "(empty)"
            lines.append(f"| `{PREFIX}{group.upper()}_{field.upper()}` | {default} | {meaning} |")
        lines.append("")
    return "\n".join(lines)
