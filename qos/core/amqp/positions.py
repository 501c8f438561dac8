"""Positions in a message of which only a part has come (messaging §3.4.1)."""

from __future__ import annotations

from qos.core.amqp.resuming import Position
from qos.core.amqp.values import DecodeError, descriptor, end_of

__all__ = ["cut_at", "position_of"]


def _starts(content: bytes) -> list[int]:
    """Where the sections of a part of a message begin, and where the next one would."""
    starts = [0]
    at = 0
    while True:
        try:
            _, at = descriptor(content, at)
            at = end_of(content, at)
        except DecodeError:
            return starts
        starts.append(at)


def position_of(content: bytes) -> Position:
    """The first position behind this part of a message."""
    starts = _starts(content)
    return Position(len(starts) - 1, len(content) - starts[-1])


def cut_at(content: bytes, position: Position | None) -> bytes | None:
    """The part before a position; None: the position is behind the part.

    Args:
        content: the part of a message that has come.
        position: None: its beginning.
    """
    at = Position(0, 0) if position is None else position
    starts = _starts(content)
    if at.section >= len(starts):
        return None
    cut = starts[at.section] + at.offset
    # An offset is within its section.
    ends = (*starts[1:], len(content))
    return content[:cut] if cut <= ends[at.section] else None
