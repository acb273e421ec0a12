"""A Kubernetes API with its conflict rules, in memory; a clock that moves only when told; events as a list."""

from __future__ import annotations

import copy
import itertools
from datetime import UTC, datetime, timedelta

import msgspec

from wainwright.errors import AlreadyExists, Conflict, NotFound, Refused
from wainwright.kube.resources import PODS

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class FakeClock:
    def __init__(self):
        self.at = START

    def now(self):
        return self.at

    def monotonic_seconds(self):
        return (self.at - START).total_seconds()

    def sleep(self, seconds):
        self.advance(seconds)

    def advance(self, seconds):
        self.at += timedelta(seconds=seconds)

    def time(self):
        """Stands in for the `time` module in the fake Redis server."""
        return self.at.timestamp()


class FakeKube:
    """KubeApi over dicts. calls: every call made, as (method, plural, name). budgets: keys of pods that no eviction may
    touch.
    """

    def __init__(self, clock):
        self.clock = clock
        self.objects = {}
        self.versions = itertools.count(1)
        self.uids = itertools.count(1)
        self.calls = []
        self.protected = set()
        self.changed = True

    # reads

    def get(self, resource, name, namespace="", *, as_type):
        self.calls.append(("get", resource.plural, name))
        return msgspec.convert(self._stored(resource, name, namespace), as_type)

    def list(self, resource, as_type, *, label_selector="", field_selector=""):
        self.calls.append(("list", resource.plural, ""))
        found = [o for (plural, _), o in sorted(self.objects.items()) if plural == resource.plural]
        if field_selector:
            path, _, value = field_selector.partition("=")
            found = [o for o in found if _at(o, path) == value]
        return [msgspec.convert(copy.deepcopy(o), as_type) for o in found], str(next(self.versions))

    # writes

    def create(self, resource, body, namespace=""):
        meta = body["metadata"]
        self.calls.append(("create", resource.plural, meta["name"]))
        key = self._key(resource, meta["name"], meta.get("namespace", namespace))
        if key in self.objects:
            raise AlreadyExists(f"{resource.plural} {meta['name']}", status=409, reason="AlreadyExists")
        stored = copy.deepcopy(msgspec.to_builtins(body))
        stored["metadata"]["uid"] = stored["metadata"].get("uid") or f"uid-{next(self.uids)}"
        stored["metadata"]["creationTimestamp"] = _stamp(self.clock)
        stored.setdefault("status", {})
        return self._store(key, stored)

    def merge_patch(self, resource, name, body, namespace="", subresource=""):
        self.calls.append(("patch", resource.plural, name))
        key = self._key(resource, name, namespace)
        old = self._stored(resource, name, namespace)
        wanted = copy.deepcopy(msgspec.to_builtins(body))
        meta = wanted.get("metadata", {})
        for field in ("uid", "resourceVersion"):
            if field in meta and meta.pop(field) != old["metadata"][field]:
                raise Conflict(f"{resource.plural} {name}: {field}", status=409, reason="Conflict")
        if subresource == "status":
            wanted = {"status": wanted.get("status", {})}
        else:
            wanted.pop("status", None)
        new = _merged(old, wanted)
        if new == old:
            return new
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            return self._drop(key)
        return self._store(key, new)

    def delete(self, resource, name, namespace="", *, uid="", resource_version="", grace_seconds=None):
        self.calls.append(("delete", resource.plural, name))
        key = self._key(resource, name, namespace)
        old = self._stored(resource, name, namespace)
        meta = old["metadata"]
        if (uid and uid != meta["uid"]) or (resource_version and resource_version != meta["resourceVersion"]):
            raise Conflict(f"{resource.plural} {name}: precondition", status=409, reason="Conflict")
        bound = resource is PODS and old.get("spec", {}).get("nodeName")
        if not meta.get("finalizers") and not (bound and grace_seconds != 0):
            return self._drop(key)
        if not meta.get("deletionTimestamp"):
            meta["deletionTimestamp"] = _stamp(self.clock)
            return self._store(key, old)
        return old

    def bind(self, namespace, name, pod_uid, node):
        self.calls.append(("bind", "pods", name))
        pod = self._stored(PODS, name, namespace)
        meta = pod["metadata"]
        if meta["uid"] != pod_uid or pod["spec"].get("nodeName") or meta.get("deletionTimestamp"):
            raise Conflict(f"pod {name}", status=409, reason="Conflict")
        pod["spec"]["nodeName"] = node
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        self._store(self._key(PODS, name, namespace), pod)

    def evict(self, namespace, name, uid, grace_seconds=None):
        self.calls.append(("evict", "pods", name))
        if f"{namespace}/{name}" in self.protected:
            raise Refused(f"pod {name}", status=429, reason="TooManyRequests")
        self.calls.pop()
        self.delete(PODS, name, namespace, uid=uid)
        self.calls[-1] = ("evict", "pods", name)

    # for the world around it

    def of(self, resource):
        """Every object of a kind, by name, to be looked at."""
        return {
            o["metadata"]["name"]: o for (plural, _), o in sorted(self.objects.items()) if plural == resource.plural
        }

    def typed(self, resource, as_type):
        return [msgspec.convert(copy.deepcopy(o), as_type) for o in self.of(resource).values()]

    def change(self, resource, name, namespace="", **parts):
        """Sets parts of an object behind everybody's back."""
        key = self._key(resource, name, namespace)
        self._store(key, _merged(self._stored(resource, name, namespace), parts))

    def remove(self, resource, name, namespace=""):
        self._drop(self._key(resource, name, namespace))

    def _key(self, resource, name, namespace):
        return resource.plural, f"{namespace}/{name}" if resource.namespaced else name

    def _stored(self, resource, name, namespace):
        found = self.objects.get(self._key(resource, name, namespace))
        if found is None:
            raise NotFound(f"{resource.plural} {name}", status=404, reason="NotFound")
        return copy.deepcopy(found)

    def _drop(self, key):
        self.changed = True
        return self.objects.pop(key)

    def _store(self, key, stored):
        stored["metadata"]["resourceVersion"] = str(next(self.versions))
        self.changed = True
        self.objects[key] = stored
        return copy.deepcopy(stored)


def _merged(old, patch):
    new = copy.deepcopy(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict) and isinstance(new.get(key), dict):
            new[key] = _merged(new[key], value)
        else:
            new[key] = copy.deepcopy(value)
    return new


def _at(thing, path):
    for part in path.split("."):
        thing = thing.get(part, "") if isinstance(thing, dict) else ""
    return thing


def _stamp(clock):
    return clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


class RecordedEvents:
    """Events as they were told: (reason, name of the object, message)."""

    def __init__(self):
        self.told = []

    def event(self, about, reason, type, message):  # noqa: A002
        self.told.append((str(reason), about.name, message))

    def of(self, reason):
        return [event for event in self.told if event[0] == reason]


class NoKeeper:
    """Renews nothing: leases last as long as the clock stands."""

    def hold(self, lease):
        pass

    def drop(self, lease):
        pass
