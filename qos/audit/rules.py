"""The rules for the journals: what each demands, by the kind of problem that breaks it.

This module imports nothing, and knows neither files nor tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["RULES"]

#: What each rule demands, by the kind of problem that breaks it.
RULES: Final[Mapping[str, str]] = {
    "torn-line": "Each line is whole.",
    "bad-line": "Each line is a line of a journal, with times and numbers "
    "in their range.",
    "long-line": "No line is too long.",
    "newer-schema": "No line is of a newer version of this library.",
    "foreign-node": "A folder that is tied to a node has lines of that node only.",
    "foreign-word": "A node tells of its own messages only.",
    "broken-file": "Each compressed file can be read to its end.",
    "empty-file": "Each file has a line.",
    "foreign-file": "Each file is of a journal, by its name.",
    "open-file": "Each file is closed. A device that is running has one that is not.",
    "unread-file": "Each file can be read.",
    "unread-folder": "Each folder can be listed.",
    "empty-folder": "Each folder of a journal has a day.",
    "missing-journal": "The journals that an earlier audit of a day had are still there.",
    "clock-back": "No clock goes back between two lines.",
    "missing-lines": "Between two lines of a device none is missing.",
    "contradicting-counts": "Lines with the same number count a window alike.",
    "late-line": "No line comes after its day was closed (--follow only).",
}
