"""Ids of 128 random bits: unguessable, and never given twice."""

from __future__ import annotations

import os

__all__ = ["new_id"]

_BYTES = 16
#: Drawn at a time: to ask the kernel takes several times as long as all the rest.
_DRAWN = 256

#: Taken from the end, which is one step for whatever thread does it.
_ids: list[str] = []

# Or parent and child would give the same.
os.register_at_fork(after_in_child=_ids.clear)


def new_id() -> str:
    """An id, in hexadecimal."""
    try:
        return _ids.pop()
    except IndexError:
        bits = os.urandom(_DRAWN * _BYTES).hex()
        drawn = [bits[at : at + 2 * _BYTES] for at in range(0, len(bits), 2 * _BYTES)]
        given = drawn.pop()
        _ids.extend(drawn)
        return given
