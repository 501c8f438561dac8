"""Enumerations for the keys of tables."""

from __future__ import annotations

import enum

__all__ = ["QuickEnum"]


class QuickEnum(enum.Enum):
    """An enumeration whose members are hashed like any other object.

    `Enum` hashes the name of a member, in Python code, at each look into a table: some
    fifty times on the way of one message. Members are equal only to themselves, so their
    identity serves as well.
    """

    __hash__ = object.__hash__
