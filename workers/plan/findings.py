"""What is wrong with the input, and what was ignored, guessed or looks mistaken."""

from __future__ import annotations

import msgspec

_LONGEST = 120


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in a document that cannot be used, and what to write instead.

    document: its number in the file, from 1; 0 where the file as a whole is meant. what: kind and name, where known.
    field: as in YAML, `spec.replicas`; empty: the document as a whole.
    """

    file: str
    document: int = 0
    what: str = ""
    field: str = ""
    value: object = msgspec.UNSET
    message: str

    def __str__(self) -> str:
        place = self.file + (f", document {self.document}" if self.document else "")
        parts = [place + (f" ({self.what})" if self.what else "")]
        if self.field:
            parts.append(self.field)
        if self.value is not msgspec.UNSET:
            parts.append(shown(self.value))
        return ": ".join([*parts, self.message])


def shown(value: object) -> str:
    """A value as JSON, cut where it is long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


class Findings:
    """Collects faults (a document is left out) and warnings (it is used all the same), each once, in order."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.warnings: list[str] = []

    def fault(self, fault: Fault) -> None:
        if fault not in self.faults:
            self.faults.append(fault)

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def all_texts(self) -> tuple[str, ...]:
        """What the answer carries as `warnings`: everything that was left out first, then the rest."""
        return (*(f"left out: {fault}" for fault in self.faults), *self.warnings)
