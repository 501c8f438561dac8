"""The files of a follower's next step: those of an interrupted one, as far as they hold.

And the files of earlier steps: for how long they are remembered.

A file of a plan may be gone when the step is repeated: somebody has joined it with
others, or has removed it. It may also have grown. Then the plan is made anew. A file
that is gone is a problem; if its lines are in another file, that file is new.

This module knows nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Final

from qos.audit.new_files import NewFile, is_without_time
from qos.audit.read import Problem

__all__ = ["perhaps_again", "plan_from", "remembered"]

_VANISHED: Final = "it was removed before it was read"


def plan_from(planned: Sequence[NewFile], new: Sequence[NewFile]) -> list[NewFile]:
    """The files of the next step.

    Args:
        planned: the files of an interrupted step; empty: there is none.
        new: the files that a listing has found, without those of complete steps.
    """
    current = {file.path: file for file in new}
    if planned and all(file.is_same(current.get(file.path)) for file in planned):
        # A step that is repeated with the same files has the same result.
        return list(planned)
    vanished = [_vanished(file) for file in planned if file.path not in current]
    return [*new, *vanished]


def remembered(files: Mapping[str, NewFile], first: date | None) -> dict[str, NewFile]:
    """The files of earlier steps that a listing may find again.

    Args:
        files: of earlier steps, by their paths.
        first: the first day that is listed, besides those of nodes without a time;
            None: all are.
    """
    return {
        path: file
        for path, file in files.items()
        if first is None or file.day >= str(first) or is_without_time(file.day)
    }


def perhaps_again(
    files: Iterable[NewFile], known: Mapping[str, NewFile]
) -> list[NewFile]:
    """The files of a step that an earlier one may have read.

    Former versions have forgotten those of nodes without a time, too.

    Args:
        files: of the step.
        known: the files that are remembered, by their paths.
    """
    return [file for file in files if file.path in known or is_without_time(file.day)]


def _vanished(file: NewFile) -> NewFile:
    """The problem. No file has this size: if the file comes back, it has changed."""
    problem = Problem.UNREAD_FILE.value
    return replace(file, problem=problem, size=-1, reason=_VANISHED)
