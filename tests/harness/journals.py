"""A journal read back, for tests: small ones, in the order of time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from qos.journal.schema import Role, parse_line

__all__ = ["read_journal"]


def read_journal(
    folder: str | os.PathLike[str], *, hidden: bool = False, own: bool = False
) -> list[dict[str, Any]]:
    """All lines of a journal, ordered by boot, then by seq.

    Args:
        folder: of the journal.
        hidden: also whole lines of files that are being written, or were when the
            process died.
        own: also the journal's lines about itself (role `journal`).

    Raises:
        BadLine: one of them is not valid.
    """
    boots: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(Path(folder).glob("date=*/*.jsonl")):
        if path.name.startswith(".") and not hidden:
            continue
        whole = path.read_bytes().rpartition(b"\n")[0]
        for text in whole.splitlines():
            line: dict[str, Any] = parse_line(text)
            boots.setdefault(line["boot"], []).append(line)
    for lines in boots.values():
        lines.sort(key=lambda line: line["seq"])
    began = sorted(boots.values(), key=lambda lines: lines[0]["at"])
    return [
        line
        for lines in began
        for line in lines
        if own or line["role"] != Role.JOURNAL.value
    ]
