"""Random ids of 128 bits: unguessable, and never given twice."""

from __future__ import annotations

import os

__all__ = ["new_id"]

_BYTES = 16
#: The number of ids drawn at a time. One call into the kernel takes several times as
#: long as everything else here.
_DRAWN = 256

#: Ids are taken from the end: `pop()` is a single step, and so is safe in any thread.
_ids: list[str] = []

# Otherwise a child process would give the same ids as its parent.
os.register_at_fork(after_in_child=_ids.clear)


def new_id() -> str:
    """A new id, in hexadecimal."""
    try:
        return _ids.pop()
    except IndexError:
        bits = os.urandom(_DRAWN * _BYTES).hex()
        drawn = [bits[at : at + 2 * _BYTES] for at in range(0, len(bits), 2 * _BYTES)]
        given = drawn.pop()
        _ids.extend(drawn)
        return given
