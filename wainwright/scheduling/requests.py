"""What a pod asks for, as the scheduler counts it."""

from __future__ import annotations

from collections.abc import Mapping

from wainwright.api.pods import Container, Pod, PodSpec, Quantity, ResourceRequirements
from wainwright.api.quantities import QuantityError, parse_quantity

_POD_LEVEL = ("cpu", "memory", "hugepages-")
"""The resources that may be requested for a pod as a whole."""


def pod_requests(pod: Pod) -> dict[str, int]:
    """Requests of a pod: milli-CPU for `cpu`, whole units otherwise, and `pods: 1`.

    Containers and sidecars (init containers that restart always) run together; an ordinary init container runs beside
    the sidecars declared before it; the larger of the two phases counts, resource by resource. Limits stand in for
    missing requests, as the API server sets them. Pod-level requests take the place of the containers'. Overhead is
    added last. Raises QuantityError naming field and value.
    Source: Kubernetes, component-helpers resource.PodRequests.
    """
    return spec_requests(pod.spec)


def spec_requests(spec: PodSpec) -> dict[str, int]:
    """Like `pod_requests`, for a pod template's spec."""
    together: dict[str, int] = {}
    for index, container in enumerate(spec.containers):
        _add(together, _container_requests(container, "containers", index))
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for index, container in enumerate(spec.init_containers):
        wanted = _container_requests(container, "initContainers", index)
        if container.restart_policy == "Always":
            _add(sidecars, wanted)
            phase = sidecars
        else:
            phase = dict(sidecars)
            _add(phase, wanted)
        _raise_to(peak, phase)
    _add(together, sidecars)
    _raise_to(together, peak)
    if spec.resources is not None:
        _override(together, spec.resources)
    for name, quantity in spec.overhead.items():
        together[name] = together.get(name, 0) + _parsed(name, quantity, f"spec.overhead.{name}")
    together["pods"] = 1
    return together


def _container_requests(container: Container, field: str, index: int) -> dict[str, int]:
    resources = container.resources
    if not resources.requests and not resources.limits:
        return {}
    where = f"spec.{field}[{container.name or index}].resources"
    wanted = {
        name: _parsed(name, quantity, f"{where}.requests.{name}") for name, quantity in resources.requests.items()
    }
    for name, quantity in resources.limits.items():
        amount = _parsed(name, quantity, f"{where}.limits.{name}")
        wanted.setdefault(name, amount)
    return wanted


def _override(together: dict[str, int], resources: ResourceRequirements) -> None:
    for name, quantity in resources.requests.items():
        if name.startswith(_POD_LEVEL):
            together[name] = _parsed(name, quantity, f"spec.resources.requests.{name}")
    for name, quantity in resources.limits.items():
        if name.startswith(_POD_LEVEL) and name not in resources.requests:
            amount = _parsed(name, quantity, f"spec.resources.limits.{name}")
            together.setdefault(name, amount)


def _parsed(name: str, quantity: Quantity, where: str) -> int:
    if not name:
        raise QuantityError(
            f"{where.rstrip('.')}: a resource has no name; write for example cpu, memory, nvidia.com/gpu"
        )
    try:
        amount = parse_quantity(name, quantity)
    except QuantityError as error:
        raise QuantityError(f"{where}: {error}") from error
    except ArithmeticError as error:
        raise QuantityError(f"{where}: {quantity!r} is out of range") from error
    if amount < 0:
        raise QuantityError(f"{where}: {quantity!r} is negative")
    return amount


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for name, amount in least.items():
        if amount > total.get(name, 0):
            total[name] = amount
