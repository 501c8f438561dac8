"""The values of names, and their three-valued comparison.

None is NULL for a value, and *unknown* for a condition.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import TypeAlias

__all__ = [
    "ARITHMETIC",
    "COMPARISONS",
    "INTEGERS",
    "NUMBER_CHARS_MAX",
    "Number",
    "Untyped",
    "Value",
    "boolean_of",
    "number_of",
]

Number: TypeAlias = int | float
Value: TypeAlias = str | int | float | bool

#: Whole numbers have 64 bits, as in AMQP and Java.
INTEGERS = range(-(2**63), 2**63)

#: The length of a text that is read as a number; a longer one is none.
NUMBER_CHARS_MAX = 40


class Untyped(str):
    """A text without a type, such as an attribute of an element.

    It is a number wherever a number is wanted, if it reads as one.
    """

    __slots__ = ()


def _number_in(text: str) -> Number | None:
    """The number that a text shows; None: it is none, or not in our range."""
    if len(text) > NUMBER_CHARS_MAX or text.strip("0123456789.eE+-"):
        return None
    try:
        return _in_range(int(text))
    except ValueError:
        pass
    try:
        return _in_range(float(text))
    except ValueError:
        return None


def number_of(value: Value | None) -> Number | None:
    """The value as a number; None: it is none."""
    kind = type(value)
    if kind is int or kind is float:
        return value  # type: ignore[return-value]  # the line above says so
    return _number_in(value) if isinstance(value, Untyped) else None


def boolean_of(value: Value | None) -> bool | None:
    """The value as a condition; None: unknown."""
    return value if isinstance(value, bool) else None


def _in_range(number: Number) -> Number | None:
    if isinstance(number, int):
        return number if number in INTEGERS else None
    return number if math.isfinite(number) else None


# -- comparison ------------------------------------------------------------


def _same(left: Value, right: Value, compare: Callable[..., bool]) -> bool:
    """`=` or `<>` of two values: FALSE for values of different types."""
    kind = type(left)
    if kind is type(right) and kind is not Untyped:
        return compare(left, right)
    ours, theirs = number_of(left), number_of(right)
    if ours is not None and theirs is not None:
        return compare(ours, theirs)
    if isinstance(left, str) and isinstance(right, str):
        return compare(str(left), str(right))
    return False


def _equal(left: Value | None, right: Value | None) -> bool | None:
    if left is None or right is None:
        return None
    return _same(left, right, operator.eq)


def _unequal(left: Value | None, right: Value | None) -> bool | None:
    if left is None or right is None:
        return None
    return _same(left, right, operator.ne)


_Comparison: TypeAlias = Callable[[Value | None, Value | None], bool | None]


def _ordered(order: Callable[[Number, Number], bool]) -> _Comparison:
    """An ordering of numbers: unknown for everything else."""

    def compare(left: Value | None, right: Value | None) -> bool | None:
        ours, theirs = number_of(left), number_of(right)
        if ours is None or theirs is None:
            return None
        return order(ours, theirs)

    return compare


COMPARISONS: Mapping[str, _Comparison] = {
    "=": _equal,
    "<>": _unequal,
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
}


# -- arithmetic ------------------------------------------------------------


def _divided(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int):
        # Toward zero, as in Java and SQL; Python's // cuts downwards.
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) is (right < 0) else -quotient
    return left / right


def _calculated(
    calculate: Callable[[Number, Number], Number],
) -> Callable[[Number, Number], Number | None]:
    """An operation whose result is unknown if it is not in our range."""

    def operation(left: Number, right: Number) -> Number | None:
        try:
            return _in_range(calculate(left, right))
        except ZeroDivisionError:
            return None

    return operation


ARITHMETIC: Mapping[str, Callable[[Number, Number], Number | None]] = {
    "+": _calculated(operator.add),
    "-": _calculated(operator.sub),
    "*": _calculated(operator.mul),
    "/": _calculated(_divided),
}
