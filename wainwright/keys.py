"""Every key in Redis: its name, type, fields, writer, and the command that reads it.

docs/redis.md is made from `KEY_SPECS`; a test walks a live stack and fails on a key that no entry here describes.
Values are text or JSON. Times are milliseconds since 1970 by the Redis server's clock and end in `_ms`.
The prefix (default `wainwright:`) is a setting, so that one Redis can serve several clusters.
"""

from __future__ import annotations

from typing import NamedTuple

STREAM_VERSION = "1"
"""Field `v` of every stream entry; a reader sets entries of another version aside in `dead`."""


class KeySpec(NamedTuple):
    """pattern: the key without prefix, `<…>` for what varies. command: how to read it (prefix added)."""

    pattern: str
    type: str
    writer: str
    tells: str
    command: str


KEY_SPECS: tuple[KeySpec, ...] = (
    KeySpec(
        "nodepools",
        "hash",
        "watcher (Controller.apply, delete)",
        "NodePools in use: name → UID. Another UID under a name is another NodePool",
        "HGETALL {}nodepools",
    ),
    KeySpec(
        "pending:<nodepool>",
        "stream",
        "watcher (Batcher.add), requeue",
        "Pods waiting in the open window. Entry: v, uid, pod (namespace/name)",
        "XRANGE {}pending:general - + COUNT 5",
    ),
    KeySpec(
        "seen",
        "hash",
        "add, flush, requeue",
        "Queued or in a batch: pod UID → `<nodepool>/<entry id>`. A gate is open when its id is not here any more; "
        "with `!` behind it the NodePool was deleted: the gate is open, the pod's batch goes on",
        "HLEN {}seen",
    ),
    KeySpec(
        "window:<nodepool>",
        "hash",
        "add, close",
        "The open window: nodepool_uid, opened_ms, due_ms (closes then), limit_ms (never later), items",
        "HGETALL {}window:general",
    ),
    KeySpec(
        "windows",
        "sorted set",
        "add, close",
        "Open windows by deadline: nodepool, score due_ms",
        "ZRANGE {}windows 0 -1 WITHSCORES",
    ),
    KeySpec(
        "opened",
        "stream",
        "add, requeue",
        "Wakes the holders of window shards when a window opened or filled up: v, nodepool, due_ms; 100 entries",
        "XREVRANGE {}opened + - COUNT 5",
    ),
    KeySpec(
        "lock:<name>",
        "hash",
        "holder",
        "Who holds `window:<shard>` or `solve`: holder, fence, since_ms; expires with the lease",
        "HGETALL {}lock:solve",
    ),
    KeySpec(
        "fence:<name>", "string", "lock", "Last fence given out: max(old + 1, server time in ms)", "GET {}fence:solve"
    ),
    KeySpec(
        "batch:<id>",
        "hash",
        "close, record, flush",
        "A closed window: state (closed, planned, done), nodepool, nodepool_uid, kind (fresh, retry), opened_ms, "
        "due_ms, closed_ms, window_ms, size, items (JSON [[uid, pod, entry id], …]), solver, deaths, plan, planned_ms, "
        "hinted_ms (nominations), done_ms, outcome",
        "HGETALL {}batch:<id>",
    ),
    KeySpec(
        "batch:<id>:effects",
        "set",
        "record, launch",
        "What the batch still waits for: claim names, `nominate`",
        "SMEMBERS {}batch:<id>:effects",
    ),
    KeySpec(
        "batches:<state>",
        "sorted set",
        "close, record, flush",
        "Batch ids by state (closed, planned, done) and time; retries score behind all fresh ones while closed",
        "ZRANGE {}batches:closed 0 -1",
    ),
    KeySpec(
        "gates",
        "stream",
        "flush, requeue",
        "Wakes waiters: batch, outcome. Only a wake-up; the truth is in seen",
        "XREVRANGE {}gates + - COUNT 5",
    ),
    KeySpec(
        "planned",
        "hash",
        "record, view, requeue",
        "Pods in a live plan that the view does not show bound yet: UID → `claim/<name> <plan>` or "
        "`node/<name> <plan>`",
        "HGETALL {}planned",
    ),
    KeySpec(
        "nominated",
        "sorted set",
        "launch, upkeep",
        "Pods left to kube-scheduler: UID, score until when their room is kept",
        "ZRANGE {}nominated 0 -1 WITHSCORES",
    ),
    KeySpec(
        "retry",
        "sorted set",
        "record, upkeep",
        "Pods that could not be placed: UID, score next try",
        "ZRANGE {}retry 0 -1 WITHSCORES",
    ),
    KeySpec(
        "retry:woken",
        "hash",
        "wake_retries, upkeep",
        "Last change that could help a pod that was not placed: at_ms, reason; applied_ms: up to here it was acted on",
        "HGETALL {}retry:woken",
    ),
    KeySpec(
        "retries",
        "hash",
        "record, upkeep",
        "The same pods, and those being tried again: UID → JSON {pod, pool, attempts, first_ms, last_ms (time of the "
        "view it was tried with), reasons, plan}",
        "HGETALL {}retries",
    ),
    KeySpec(
        "dead",
        "hash",
        "all",
        "What cannot be parsed or kills its worker: `<kind>/<id>` → JSON {reason, at_ms, what}",
        "HGETALL {}dead",
    ),
    KeySpec(
        "plan:<id>",
        "hash",
        "record",
        "A plan: created_ms, batches, plan (JSON), input (key of its input), price, worst_price, lower_bound, pods, "
        "claims, unplaced, take_ms, read_ms, decode_ms, prepare_ms, solve_ms, fence, catalogs. Kept a day",
        "HGETALL {}plan:<id>",
    ),
    KeySpec(
        "plan:<id>:input",
        "string",
        "record",
        "What the plan was computed from: JSON {snapshot, pods, now, …}; kept a day, or until newer ones need the room",
        "GET {}plan:<id>:input",
    ),
    KeySpec("plans", "sorted set", "record", "Plan ids by time", "ZREVRANGE {}plans 0 9 WITHSCORES"),
    KeySpec(
        "catalog:<version>",
        "string",
        "record",
        "An instance type catalog that plans name; kept a day",
        "STRLEN {}catalog:<version>",
    ),
    KeySpec(
        "claim:<name>",
        "hash",
        "record, launch, upkeep",
        "A claim: state (planned, created, launched, done, failing, failed), plan, nodepool, nodepool_uid, uid (of its "
        "NodeClaim), options, requests, capacity, allocatable, labels, annotations, taints, startup_taints, "
        "requirements, node_class, expire_after, termination_grace_period, attempts (JSON where not text), price, "
        "instance_type, zone, capacity_type, provider_id, node, reason, message (what holds it up), holder, "
        "lease_until_ms, deaths (of holders, in a row), next_ms, hinted (by the sweep, unheard), deadline_ms, "
        "allowed_until_ms and others_until_ms (the last request, and those before it, may arrive until then), rivals "
        "(JSON: claims that share pods since an adoption), created_ms, launched_ms, bound_ms, opened_ms (our taint "
        "came off), done_ms. Lives as long as the NodeClaim; failed ones an hour longer",
        "HGETALL {}claim:<name>",
    ),
    KeySpec(
        "claim:<name>:pods",
        "hash",
        "record, launch",
        "Pods planned for it: UID → `role|namespace/name|nodepool|batch|entry id`; role bind, nominate or rest",
        "HGETALL {}claim:<name>:pods",
    ),
    KeySpec("claims", "sorted set", "record, launch", "Every claim with a record, by creation", "ZCARD {}claims"),
    KeySpec(
        "claims:due",
        "sorted set",
        "record, launch, upkeep",
        "Claims not over yet: name, score when to look at it next; the sweep hints those overdue and unheld",
        "ZRANGE {}claims:due 0 -1 WITHSCORES",
    ),
    KeySpec(
        "adopted", "string", "watcher", "Epoch in which this data adopted the claims that existed", "GET {}adopted"
    ),
    KeySpec(
        "view:meta",
        "hash",
        "watcher",
        "The cluster view: epoch, complete (1 when every kind was listed), holder, fence, version (grows with each "
        "write), began_ms, completed_ms; per kind `listed:<kind>`, `progress:<kind>` (ms of the last sign of life) and "
        "`rv:<kind>` (resourceVersion it is at)",
        "HGETALL {}view:meta",
    ),
    KeySpec(
        "view:<kind>",
        "hash",
        "watcher",
        "Objects as last seen, trimmed: pods, nodes, nodeclaims, nodepools, daemonsets, persistentvolumeclaims, "
        "persistentvolumes, storageclasses, csinodes, namespaces, podautoscalers, deployments, "
        "statefulsets; `namespace/name` or `name` → JSON",
        "HGET {}view:pods default/web-0",
    ),
    KeySpec(
        "view:pending", "hash", "watcher", "Provisionable pods in the view: UID → namespace/name", "HLEN {}view:pending"
    ),
    KeySpec(
        "unavailable",
        "sorted set",
        "launch",
        "Offerings without capacity: `capacity type/instance type/zone`, score until when",
        "ZRANGE {}unavailable 0 -1 WITHSCORES",
    ),
    KeySpec(
        "refused",
        "hash",
        "launch",
        "NodePools whose launches the cloud refused for good: UID → JSON {reason, message, until_ms}; until then "
        "nothing is planned for them",
        "HGETALL {}refused",
    ),
    KeySpec(
        "pod:<namespace>/<name>",
        "stream",
        "record, launch, upkeep",
        "What was decided for the pod, newest last: uid, what, why, plan, claim, node (kept a day, 50 entries)",
        "XREVRANGE {}pod:default/web-0 + - COUNT 5",
    ),
    KeySpec(
        "decisions",
        "stream",
        "all",
        "Decision log: what, about (claim, pod, nodepool, batch), why, by; 10,000 entries",
        "XREVRANGE {}decisions + - COUNT 10",
    ),
    KeySpec(
        "kpa:state:<namespace>/<name>",
        "string",
        "decide",
        "An autoscaler between decisions: JSON {decided_ms, uid, folded (inbox entry up to which samples are in it), "
        "state (wish, panic, delay), last (newest decision), sources (load windows of each)}",
        "GET {}kpa:state:default/web",
    ),
    KeySpec(
        "kpa:specs",
        "hash",
        "decide",
        "Parameters of each autoscaler, derived from ConfigMap and annotations: namespace/name → JSON",
        "HGET {}kpa:specs default/web",
    ),
    KeySpec(
        "kpa:inbox:<shard>",
        "stream",
        "collect, pushes",
        "Samples on their way into windows: v, samples (JSON [[autoscaler, source, second, value or null, message], "
        "…]). Entries leave when they are in the windows, after two minutes at the latest",
        "XREVRANGE {}kpa:inbox:0 + - COUNT 3",
    ),
    KeySpec(
        "kpa:push",
        "stream",
        "applications, push endpoint",
        "Load that applications report: pa (namespace/name), value; optionally source, reporter, at_ms",
        "XREVRANGE {}kpa:push + - COUNT 5",
    ),
    KeySpec(
        "kpa:push:read", "string", "pushes", "Entry of kpa:push up to which load was taken over", "GET {}kpa:push:read"
    ),
    KeySpec(
        "kpa:zero",
        "set",
        "decide",
        "Autoscalers whose wish is 0: load on one of them is decided on at once",
        "SCARD {}kpa:zero",
    ),
    KeySpec(
        "kpa:wishes",
        "stream",
        "decide",
        "Wishes that changed: v, pa, desired; about 20,000 entries. Who watches begins where it is",
        "XREVRANGE {}kpa:wishes + - COUNT 5",
    ),
    KeySpec(
        "kpa:config",
        "string",
        "autoscaler_config",
        "The ConfigMap config-autoscaler: JSON {seen (its version), data (last valid), faults (why the one seen is not "
        "in force)}",
        "GET {}kpa:config",
    ),
    KeySpec(
        "kpa:log:<namespace>/<name>",
        "stream",
        "scale",
        "Scaling acts of an autoscaler, newest last: v, from, to, reason, why, target (kept a day, 50 entries)",
        "XREVRANGE {}kpa:log:default/web + - COUNT 5",
    ),
    KeySpec(
        "tick:<task>",
        "hash",
        "beat tasks",
        "Last tick that ran: slot, at_ms, took_ms, by, outcome",
        "HGETALL {}tick:sweep",
    ),
    KeySpec("slot:<task>:<slot>", "string", "beat tasks", "Guard: this slot was taken (expires)", "KEYS {}slot:*"),
    KeySpec(
        "worker:<name>",
        "string",
        "every process",
        "Sign of life: JSON {role, pid, host, since_ms}; expires after 15 s",
        "KEYS {}worker:*",
    ),
    KeySpec(
        "celery:<queue>",
        "list",
        "Celery (hints, beat)",
        "Messages not taken yet, newest first: window, solve, launch, collect, tick. Each is only a hint: the sweep "
        "replaces lost ones. On the broker, where that is another Redis",
        "LLEN {}celery:launch",
    ),
    KeySpec(
        "celery:_kombu.binding.<exchange>",
        "set",
        "Celery (workers)",
        "Where the exchange (named as the default queue) delivers; written anew when a worker connects",
        "SMEMBERS {}celery:_kombu.binding.tick",
    ),
    KeySpec(
        "celery:_kombu.binding_permanent.<exchange>",
        "set",
        "Celery (workers)",
        "Those bindings that do not expire",
        "SMEMBERS {}celery:_kombu.binding_permanent.tick",
    ),
    KeySpec(
        "celery:unacked",
        "hash",
        "Celery (workers)",
        "Messages handed to a worker and not acknowledged yet (for a moment only: we acknowledge early)",
        "HLEN {}celery:unacked",
    ),
    KeySpec(
        "celery:unacked_index",
        "sorted set",
        "Celery (workers)",
        "The same by the time they were handed out; Celery delivers those older than the visibility timeout again",
        "ZRANGE {}celery:unacked_index 0 -1 WITHSCORES",
    ),
    KeySpec(
        "celery:unacked_mutex",
        "string",
        "Celery (workers)",
        "Held by the worker that looks for those; expires after five minutes",
        "TTL {}celery:unacked_mutex",
    ),
)


class Keys:
    """Key names under one prefix."""

    def __init__(self, prefix: str = "wainwright:") -> None:
        self.prefix = prefix
        self.nodepools = prefix + "nodepools"
        self.seen = prefix + "seen"
        self.windows = prefix + "windows"
        self.opened = prefix + "opened"
        self.gates = prefix + "gates"
        self.planned = prefix + "planned"
        self.nominated = prefix + "nominated"
        self.retry = prefix + "retry"
        self.retries = prefix + "retries"
        self.retry_woken = prefix + "retry:woken"
        self.dead = prefix + "dead"
        self.plans = prefix + "plans"
        self.claims = prefix + "claims"
        self.claims_due = prefix + "claims:due"
        self.adopted = prefix + "adopted"
        self.view_meta = prefix + "view:meta"
        self.view_pending = prefix + "view:pending"
        self.unavailable = prefix + "unavailable"
        self.refused = prefix + "refused"
        self.decisions = prefix + "decisions"
        self.kpa_specs = prefix + "kpa:specs"
        self.kpa_push = prefix + "kpa:push"
        self.kpa_push_read = prefix + "kpa:push:read"
        self.kpa_zero = prefix + "kpa:zero"
        self.kpa_wishes = prefix + "kpa:wishes"
        self.kpa_config = prefix + "kpa:config"

    def pending(self, node_pool: str) -> str:
        return f"{self.prefix}pending:{node_pool}"

    def window(self, node_pool: str) -> str:
        return f"{self.prefix}window:{node_pool}"

    def lock(self, name: str) -> str:
        return f"{self.prefix}lock:{name}"

    def fence(self, name: str) -> str:
        return f"{self.prefix}fence:{name}"

    def batch(self, batch: str) -> str:
        return f"{self.prefix}batch:{batch}"

    def batch_effects(self, batch: str) -> str:
        return f"{self.prefix}batch:{batch}:effects"

    def batches(self, state: str) -> str:
        return f"{self.prefix}batches:{state}"

    def plan(self, plan: str) -> str:
        return f"{self.prefix}plan:{plan}"

    def plan_input(self, plan: str) -> str:
        return f"{self.prefix}plan:{plan}:input"

    def catalog(self, version: str) -> str:
        return f"{self.prefix}catalog:{version}"

    def claim(self, name: str) -> str:
        return f"{self.prefix}claim:{name}"

    def claim_pods(self, name: str) -> str:
        return f"{self.prefix}claim:{name}:pods"

    def view(self, kind: str) -> str:
        return f"{self.prefix}view:{kind}"

    def pod(self, key: str) -> str:
        return f"{self.prefix}pod:{key}"

    def kpa_state(self, autoscaler: str) -> str:
        return f"{self.prefix}kpa:state:{autoscaler}"

    def kpa_inbox(self, shard: int) -> str:
        return f"{self.prefix}kpa:inbox:{shard}"

    def kpa_log(self, autoscaler: str) -> str:
        return f"{self.prefix}kpa:log:{autoscaler}"

    def tick(self, task: str) -> str:
        return f"{self.prefix}tick:{task}"

    def slot(self, task: str, slot: int) -> str:
        return f"{self.prefix}slot:{task}:{slot}"

    def worker(self, name: str) -> str:
        return f"{self.prefix}worker:{name}"
