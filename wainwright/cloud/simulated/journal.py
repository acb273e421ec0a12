"""The state file: one JSON line per event, appended before the event takes effect."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from wainwright.cloud.simulated.state import Event


class JournalError(Exception):
    """The state file cannot be used; the message says which line, or who holds it."""


class Journal:
    """Appends events to a file that it alone holds, and reads them back.

    A line is written by one system call, so that it is there or not, whenever the process is killed. It does not wait
    for the disk: the record outlives the process, not the machine. A last line without its end is cut off.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise JournalError(f"{path} is in use by another simulated cloud") from error

    def replay(self) -> Iterator[Event]:
        """Every event, oldest first. Raises JournalError at a line that cannot be read."""
        content = self._path.read_bytes()
        complete = content.rfind(b"\n") + 1
        if complete < len(content):
            os.ftruncate(self._file, complete)
        decoder = msgspec.json.Decoder(Event)
        for number, line in enumerate(content[:complete].splitlines(), start=1):
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError as error:
                raise JournalError(f"{self._path}, line {number}: {error}") from error

    def append(self, event: Event) -> None:
        """Write it down. Raises OSError when it could not be written whole; then nothing of it stays."""
        line = msgspec.json.encode(event) + b"\n"
        before = os.fstat(self._file).st_size
        if os.write(self._file, line) != len(line):
            os.ftruncate(self._file, before)
            raise OSError(f"{self._path}: no room for another event")

    def close(self) -> None:
        os.close(self._file)
