"""Files, folders and standard input as YAML or JSON documents. One that cannot be read does not stop the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from workers.plan.findings import Fault, Findings

STDIN: Final = "-"
SUFFIXES: Final = (".yaml", ".yml", ".json")
_MARK: Final = re.compile(r"^(?:---(?=\s|$)|\.\.\.(?=\s|$))", re.MULTILINE)
_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")


class InputError(Exception):
    """Input that cannot be used at all; one line per fault."""


class Document(NamedTuple):
    """One mapping out of a file. number: its place there, from 1 (items of a List share their List's)."""

    file: str
    number: int
    content: dict[str, Any]

    @property
    def kind(self) -> str:
        found = self.content.get("kind")
        return found if isinstance(found, str) else ""

    @property
    def what(self) -> str:
        """Kind and name, as far as they can be made out."""
        metadata = self.content.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        return " ".join(part for part in (self.kind, name if isinstance(name, str) else "") if part)

    def fault(self, message: str, *, field: str = "", value: object = msgspec.UNSET) -> Fault:
        return Fault(file=self.file, document=self.number, what=self.what, field=field, value=value, message=message)


def read_sources(sources: Sequence[str], stdin: Callable[[], bytes], findings: Findings) -> list[Document]:
    """Every document of the sources, in order: files, folders (all below, by name), `-` for standard input.

    Raises InputError, naming every source that is not there or cannot be opened.
    """
    missing: list[str] = []
    documents: list[Document] = []
    for source in dict.fromkeys(sources):
        if source == STDIN:
            documents += parse(stdin(), "stdin", findings)
            continue
        path = Path(source)
        try:
            if not path.is_dir():
                documents += parse(path.read_bytes(), source, findings)
                continue
        except OSError as error:
            missing.append(f"{source}: {error.strerror or error}")
            continue
        files = list(_files(path, findings))
        if not files:
            findings.warn(f"{source}: there is no {', '.join(SUFFIXES)} file in this folder")
        for file in files:
            try:
                documents += parse(file.read_bytes(), str(file), findings)
            except OSError as error:
                findings.fault(Fault(file=str(file), message=f"cannot be read: {error.strerror or error}"))
    if missing:
        raise InputError("\n".join(missing))
    return documents


def _files(folder: Path, findings: Findings) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts) or not path.is_file():
            continue
        if path.name in _KUSTOMIZATIONS:
            findings.warn(
                f"{path}: ignored; nothing is built here, the files beside it are read as they stand "
                f"(kubectl kustomize {path.parent} | wainwright plan -f -)"
            )
        elif path.suffix in SUFFIXES:
            yield path


def parse(content: bytes, file: str, findings: Findings) -> list[Document]:
    """The documents of one text; items of Lists one by one. Faults go to `findings`."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        findings.fault(Fault(file=file, message=f"is not UTF-8 text (byte {error.start}); save it as UTF-8"))
        return []
    documents: list[Document] = []
    number = 0
    for line, part in _parts(text):
        if not _has_content(part):
            continue
        number += 1
        try:
            content_of_part = _loaded(part)
        except yaml.YAMLError as error:
            findings.fault(Fault(file=file, document=number, message=_yaml_text(error, line, part)))
            continue
        except (ValueError, RecursionError) as error:
            findings.fault(Fault(file=file, document=number, message=f"is not YAML: {error}"))
            continue
        if content_of_part is None:
            continue
        documents += _unpacked(file, number, content_of_part, findings)
    return documents


def _loaded(part: str) -> object:
    """JSON is read as such: YAML takes fifty times as long for what `kubectl get --output json` writes."""
    if part.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(part)
        except msgspec.DecodeError:
            pass  # a YAML mapping in braces
    return yaml.load(part, _Loader)  # noqa: S506 - a safe loader


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """Documents with the number of the line they begin in. A JSON text is one."""
    start, line = 0, 1
    for mark in _MARK.finditer(text):
        part = text[start : mark.start()]
        yield line, part
        line += part.count("\n")
        start = mark.end()
    yield line, text[start:]


def _has_content(part: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith(("#", "%")) for line in part.splitlines())


def _yaml_text(error: yaml.YAMLError, line: int, part: str) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = f"line {line + mark.line}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    hint = ""
    if "{{" in part:
        hint = "; it looks like a template, render it first (helm template … | wainwright plan -f -)"
    elif "\t" in part and "token" in problem:
        hint = "; YAML is indented with spaces, not tabs"
    return f"{where}is not YAML: {problem}{hint}"


def _unpacked(file: str, number: int, content: object, findings: Findings) -> Iterator[Document]:
    if not isinstance(content, dict):
        message = "must be an object with apiVersion, kind, metadata"
        findings.fault(Fault(file=file, document=number, value=_plain(content), message=message))
        return
    document = Document(file, number, content)
    items = content.get("items")
    if not (document.kind.endswith("List") and isinstance(items, list)):
        yield document
        return
    for index, item in enumerate(items):
        if isinstance(item, dict):
            item_kind = {"kind": document.kind.removesuffix("List"), "apiVersion": content.get("apiVersion")}
            yield from _unpacked(file, number, item if item.get("kind") else item_kind | item, findings)
        else:
            findings.fault(document.fault("must be an object", field=f"items[{index}]", value=_plain(item)))


def _plain(value: object) -> object:
    """The value, if it can be shown as JSON."""
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError):
        return str(value)
    return value


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """YAML as Kubernetes reads it: no dates, no base-60 numbers, and no key twice in a mapping."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        raise yaml.constructor.ConstructorError(
                            None, None, f"key {key.value!r} is there twice; remove one of them", key.start_mark
                        )
                    seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


_INT = re.compile(r"^[-+]?(?:0b[0-1_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$")
_FLOAT = re.compile(r"^[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?)$")
_REPLACED = ("timestamp", "value", "int", "float")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] not in _REPLACED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
