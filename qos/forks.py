"""Locks of files (flock) that end with the process that took them, not with its forks.

A fork has the open files of its parent, and a lock lasts until all of them are closed. A
fork that outlives its parent would keep a store locked that nobody uses. It could also
write into a file of its parent. So a fork gets another file in place of each: /dev/null.
"""

from __future__ import annotations

import os

__all__ = ["forget", "keep"]

#: The descriptors of locked files in this process.
_locked: set[int] = set()


def keep(file: int) -> None:
    """Keep this file from the forks of this process; it is or will be locked."""
    _locked.add(file)


def forget(file: int) -> None:
    """Call it before the file is closed: its number will be that of another one."""
    _locked.discard(file)


def _replace() -> None:
    if _locked:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for file in _locked:
            os.dup2(null, file, inheritable=False)
        os.close(null)
        _locked.clear()


os.register_at_fork(after_in_child=_replace)
