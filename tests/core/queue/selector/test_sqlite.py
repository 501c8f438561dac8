"""Oracle: SQLite calculates the same conditions with the same values.

It differs, and so is not asked, where types are mixed (`'1' = 1` is its own business),
where whole numbers are over 64 bits (they become floats there), where floats are over
their range (infinite there), and where numbers are ordered beside strings. It has no type for booleans: TRUE is 1 there.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qos.core.queue.selector import parse
from qos.core.queue.selector.evaluation import compiled
from qos.core.queue.selector.parser import tree_of

_NUMBERS = ("i", "j", "x")
_STRINGS = ("s", "t")


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        # By default LIKE ignores the case of ASCII letters.
        connection.execute("PRAGMA case_sensitive_like = ON")
        yield connection


class _Conditions:
    """Conditions whose types fit."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def names(self) -> dict[str, int | float | str | None]:
        one = self._random.choice
        numbers = (None, 0, 1, -1, 2, 3, -7)
        strings = (None, "", "a", "b", "ab", "aab", "a%b", "A", "ä😀", "aaabaab")
        return {
            "i": one(numbers),
            "j": one(numbers),
            "x": one((None, 0.0, 0.5, -2.5, 3.0, 1e15)),
            "s": one(strings),
            "t": one(strings),
        }

    def condition(self, depth: int) -> str:
        one, kind = self._random.choice, self._random.randrange(7 if depth else 5)
        negated = one(("", "NOT "))
        if kind == 0:
            sign = one(("=", "<>", "<", "<=", ">", ">="))
            return f"{self._number(2)} {sign} {self._number(2)}"
        if kind == 1:
            return f"{self._string()} {one(('=', '<>'))} {self._string()}"
        if kind == 2:
            numbers = [self._number(1) for _ in range(3)]
            return "{} {}BETWEEN {} AND {}".format(numbers[0], negated, *numbers[1:])
        if kind == 3:
            strings = ", ".join(f"'{each}'" for each in self._random.sample("abAx", 2))
            return one(
                (
                    f"{one(_STRINGS)} {negated}IN ({strings}, '')",
                    f"{one((*_STRINGS, *_NUMBERS))} IS {negated}NULL",
                )
            )
        if kind == 4:
            pattern = "".join(one("ab%_%ä") for _ in range(self._random.randrange(6)))
            escape = one(("", " ESCAPE '!'"))
            pattern += one(("", "!%", "!_", "!!")) if escape else ""
            return f"{one(_STRINGS)} {negated}LIKE '{pattern}'{escape}"
        if kind == 5:
            return f"NOT ({self.condition(depth - 1)})"
        word = one(("AND", "OR"))
        return f"({self.condition(depth - 1)}) {word} ({self.condition(depth - 1)})"

    def _number(self, depth: int) -> str:
        one = self._random.choice
        if not depth or self._random.randrange(2):
            return one((*_NUMBERS, "0", "1", "-2", "2.5"))
        return f"({self._number(depth - 1)} {one('+-*/')} {self._number(depth - 1)})"

    def _string(self) -> str:
        return self._random.choice((*_STRINGS, "''", "'a'", "'ab'"))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**64))
def test_sqlite_calculates_the_same(database: sqlite3.Connection, seed: int) -> None:
    """20 conditions each."""
    conditions = _Conditions(seed)
    for _ in range(20):
        text, names = conditions.condition(3), conditions.names()
        columns = ", ".join(f"? AS {name}" for name in names)
        ((wanted,),) = database.execute(
            f"SELECT ({text}) FROM (SELECT {columns})",  # noqa: S608 - it is ours
            tuple(names.values()),
        )
        there = {name: each for name, each in names.items() if each is not None}
        assert compiled(tree_of(text)[0])(there) == (
            None if wanted is None else bool(wanted)
        ), (text, names)
        assert parse(text).matches(there) is (wanted == 1)
