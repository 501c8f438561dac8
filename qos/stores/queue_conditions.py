"""Conditions on items in the database of a queue service, for its indices and counts."""

from __future__ import annotations

__all__ = ["HAS_DELAY", "IN_MEMORY", "LETTER", "PLAIN"]

#: The condition on an item that is plain (`Item.is_plain`), or was when it was locked: none
#: of these columns changes then.
PLAIN = (
    "ended_at IS NULL AND excluded = '[]'"
    """ AND ("order" > 0 OR history = '[]' OR available_at <= published_at)"""
)

#: The condition on a dead letter.
LETTER = "ended_at IS NULL AND origin <> ''"

#: The condition on a plain item that has a delay (`Item.has_delay`).
HAS_DELAY = '("order" > 0 OR available_at > published_at)'

#: The condition on an item that a queue keeps in memory always: it has not ended, and only
#: waiting is not all that there is to it.
IN_MEMORY = f"ended_at IS NULL AND (state = 'acquired' OR NOT ({PLAIN}))"
