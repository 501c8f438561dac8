"""The progress of a query, by Spark's own checkpoint.

Spark tells a source only of the batch before the one that begins, and nothing of the
last one. But its progress is on disk: `offsets/N` is the plan of batch N, and
`commits/N` exists when the batch is done. This module knows these files, and nothing of
queues.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

__all__ = ["Checkpoint", "CheckpointError"]

#: The keys of our offsets: the landing, and the number of the next file.
LANDING: Final = "landing"
NEXT: Final = "next"


class CheckpointError(Exception):
    """The checkpoint is missing, or belongs to another query.

    One line that names it.
    """

    def __init__(self, folder: Path, text: str) -> None:
        super().__init__(f"checkpoint {folder}: {text}")


class Checkpoint:
    """The checkpoint of the query that reads the source."""

    def __init__(self, location: str, landing: str) -> None:
        """Check that the checkpoint exists.

        Args:
            location: the `checkpointLocation` of the query: a folder.
            landing: the id of the landing of our offsets.

        Raises:
            CheckpointError: it does not exist.
        """
        self.folder = Path(location.removeprefix("file://").removeprefix("file:"))
        self._landing = landing
        if not (self.folder / "metadata").is_file():
            # Spark writes it before it first calls a source.
            raise CheckpointError(
                self.folder,
                "there is none; the option must be the checkpointLocation of the "
                "query, in a file system that the driver has mounted",
            )

    def done(self) -> int:
        """The number of the file after the last one that is done; 0: none is done."""
        for batch in reversed(self._batches("commits")):
            next_file = self._next_of(batch)
            if next_file is not None:
                return next_file
        return 0

    def check(self, start: int) -> None:
        """Check that Spark has planned everything before this file.

        Raises:
            CheckpointError: it has not: this is the checkpoint of another query.
        """
        if not start:
            return
        for batch in reversed(self._batches("offsets")):
            if (self._next_of(batch) or 0) >= start:
                return
        raise CheckpointError(
            self.folder, "the query that reads this landing has another one"
        )

    def _batches(self, kind: str) -> list[int]:
        try:
            names = os.listdir(self.folder / kind)
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdigit())

    def _next_of(self, batch: int) -> int | None:
        try:
            text = (self.folder / "offsets" / str(batch)).read_text("utf-8")
        except FileNotFoundError:
            return None  # Spark keeps the last hundred
        numbers = [_find(_json(line), self._landing) for line in text.splitlines()]
        return max((number for number in numbers if number is not None), default=None)


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None  # the version, in the first line


def _find(value: Any, landing: str) -> int | None:
    """Our offset, at any depth: its wrapping differs between versions."""
    if isinstance(value, str) and landing in value:
        return _find(_json(value), landing)
    if not isinstance(value, dict):
        return None
    if value.get(LANDING) == landing and isinstance(value.get(NEXT), int):
        return int(value[NEXT])
    numbers = [_find(inner, landing) for inner in value.values()]
    return max((number for number in numbers if number is not None), default=None)
