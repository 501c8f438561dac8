"""The syntax tree of a selector; each node knows the position of its first token."""

from __future__ import annotations

from typing import TypeAlias

from qos.core.queue.selector.values import Value
from qos.core.record import record

__all__ = [
    "All",
    "AnyOf",
    "Arithmetic",
    "Between",
    "Comparison",
    "Constant",
    "In",
    "IsNull",
    "Like",
    "Name",
    "Not",
    "Tree",
]


@record(frozen=True, slots=True)
class Constant:
    """A string, a number, TRUE or FALSE."""

    position: int
    value: Value


@record(frozen=True, slots=True)
class Name:
    """The value of a name."""

    position: int
    name: str


@record(frozen=True, slots=True)
class Arithmetic:
    """An operand, and what is added to it, or multiplied by it, from left to right."""

    position: int
    first: Tree
    rest: tuple[tuple[str, Tree], ...]


@record(frozen=True, slots=True)
class Comparison:
    """A comparison by `=`, `<>`, `<`, `<=`, `>` or `>=`."""

    position: int
    sign: str
    left: Tree
    right: Tree


@record(frozen=True, slots=True)
class IsNull:
    """Whether a value is NULL."""

    position: int
    operand: Tree


@record(frozen=True, slots=True)
class Between:
    """Whether a number is between two others or equal to one of them."""

    position: int
    operand: Tree
    least: Tree
    most: Tree


@record(frozen=True, slots=True)
class In:
    """Whether a string is among these."""

    position: int
    operand: Tree
    strings: frozenset[str]


@record(frozen=True, slots=True)
class Like:
    """Whether a string has this pattern; escape '': there is no escape character."""

    position: int
    operand: Tree
    pattern: str
    escape: str


@record(frozen=True, slots=True)
class Not:
    """The negation of a condition."""

    position: int
    operand: Tree


@record(frozen=True, slots=True)
class All:
    """Conditions joined by AND."""

    position: int
    operands: tuple[Tree, ...]


@record(frozen=True, slots=True)
class AnyOf:
    """Conditions joined by OR."""

    position: int
    operands: tuple[Tree, ...]


Tree: TypeAlias = (
    All
    | AnyOf
    | Arithmetic
    | Between
    | Comparison
    | Constant
    | In
    | IsNull
    | Like
    | Name
    | Not
)
