"""`--scenario FILE`: a packing scenario, plain or gzipped, as the plan's input."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from pathlib import Path

from wainwright.scheduling.instance_types import Catalog
from wainwright.scheduling.scenario import ScenarioError, catalog_named_in, read_catalog, read_scenario
from workers.plan.documents import InputError
from workers.plan.inputs import PlanInput

GZIP_MAGIC = b"\x1f\x8b"


def load_scenario(path: Path, catalog: Catalog | None = None) -> PlanInput:
    """catalog: takes the place of the one that the scenario names or brings. Raises InputError, naming file and place.

    A catalog's path in the scenario is relative to the scenario's file.
    """
    text = plain_bytes(path)
    warnings: tuple[str, ...] = ()
    try:
        named = catalog_named_in(text)
        if catalog is not None and not named:
            warnings = (f"{path}: brings its own catalog; --catalog is not used",)
        if catalog is None and named:
            catalog = read_catalog(plain_bytes(path.parent / named))
        scenario = read_scenario(text, catalog)
    except (ScenarioError, ValueError, ArithmeticError) as error:
        raise InputError(f"{path}: {error}") from error
    twice = sorted(name for name, count in Counter(pod.key for pod in scenario.pods).items() if count > 1)
    if twice:
        raise InputError(f"{path}: pods: {', '.join(twice[:5])}: there is more than one pod of that name; rename them")
    return PlanInput(name=scenario.name, snapshot=scenario.snapshot, pods=scenario.pods, warnings=warnings)


def plain_bytes(path: Path) -> bytes:
    """What a file holds, unpacked if it is gzipped. Raises InputError."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
