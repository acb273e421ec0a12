"""The state of a cluster as a file of JSON lines: the resource version first, then every object."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from wainwright.sim.apiserver.core import ApiServer


def save(server: ApiServer, path: Path) -> None:
    """Write the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(lines(server))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def lines(server: ApiServer) -> list[bytes]:
    """Definitions of custom resources come first: what they define is read back with them."""
    found = [msgspec.json.encode({"resourceVersion": server.store.version}) + b"\n"]
    definitions = "customresourcedefinitions.apiextensions.k8s.io"
    collections = sorted(server.store.collections(), key=lambda collection: collection.kind.collection != definitions)
    for collection in collections:
        found += [collection.kind.opening + record.tail + b"\n" for record in collection.select("")]
    return found


def restore(server: ApiServer, data: bytes) -> None:
    """Fill an empty server. Watches from before the snapshot's version will be told 410. Raises ValueError."""
    header, *rest = data.splitlines()
    version = int(msgspec.json.decode(header)["resourceVersion"])
    server.store.version = version
    kinds = {(kind.api_version, kind.name): kind for kind in server.registry.all()}
    for line in rest:
        obj: dict[str, Any] = msgspec.json.decode(line)
        kind = kinds.get((obj["apiVersion"], obj["kind"]))
        if kind is None:
            raise ValueError(f"the snapshot holds a {obj['kind']} of {obj['apiVersion']}, which nothing defines")
        server.store.restore(server.store.collection(kind), obj)
        if kind.name == "CustomResourceDefinition":
            server.writer.define(obj)
            kinds = {(kind.api_version, kind.name): kind for kind in server.registry.all()}
    server.store.forget_history()
