"""The evaluation of a selector: its tree as one function, after a check of its types.

A condition is True, False or None (unknown). AND, OR and NOT follow the tables of SQL
for three values; every other operation with NULL is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from qos.core.queue.selector.like import like
from qos.core.queue.selector.tokens import SelectorError
from qos.core.queue.selector.tree import (
    All,
    AnyOf,
    Arithmetic,
    Between,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Name,
    Not,
    Tree,
)
from qos.core.queue.selector.values import (
    ARITHMETIC,
    COMPARISONS,
    Number,
    Value,
    boolean_of,
    number_of,
)

__all__ = ["Evaluate", "Names", "compiled"]


class Names(Protocol):
    """The names of an item: any mapping."""

    def get(self, name: str, /) -> Value | None:
        """The value of a name; None: NULL."""


Evaluate: TypeAlias = Callable[[Names], Value | None]
_Condition: TypeAlias = Callable[[Names], bool | None]
_Calculation: TypeAlias = Callable[[Names], Number | None]


def compiled(tree: Tree) -> Evaluate:
    """The condition as a function.

    Raises:
        SelectorError: it is no condition, or some of its constants can never fit.
    """
    return _condition(tree)


# -- types -----------------------------------------------------------------

_KINDS: dict[type, str] = {str: "a string", int: "a number", float: "a number"}


def _kind(tree: Tree) -> str:
    """The type that a value is known to have; '': only its name tells."""
    if isinstance(tree, Name):
        return ""
    if isinstance(tree, Constant):
        return _KINDS.get(type(tree.value), "a condition")
    return "a number" if isinstance(tree, Arithmetic) else "a condition"


def _need(tree: Tree, kind: str) -> None:
    actual = _kind(tree)
    if actual not in {"", kind}:
        raise SelectorError(f"this is {actual}, where {kind} is needed", tree.position)


# -- values ----------------------------------------------------------------


def _value(tree: Tree) -> Evaluate:
    """A value of any type."""
    if isinstance(tree, Name):
        name = tree.name
        return lambda names: names.get(name)
    if isinstance(tree, Constant):
        constant = tree.value
        return lambda _names: constant
    return _calculation(tree) if isinstance(tree, Arithmetic) else _condition(tree)


def _number(tree: Tree) -> _Calculation:
    """A value that is a number, or NULL."""
    _need(tree, "a number")
    if isinstance(tree, Arithmetic):
        return _calculation(tree)
    value = _value(tree)
    return lambda names: number_of(value(names))


def _calculation(tree: Arithmetic) -> _Calculation:
    first = _number(tree.first)
    steps = [(ARITHMETIC[sign], _number(operand)) for sign, operand in tree.rest]

    def calculate(names: Names) -> Number | None:
        total = first(names)
        for operation, operand in steps:
            number = operand(names)
            if total is None or number is None:
                return None
            total = operation(total, number)
        return total

    return calculate


# -- conditions ------------------------------------------------------------


def _condition(tree: Tree) -> _Condition:
    make = _CONDITIONS.get(type(tree))
    if make is not None:
        return make(tree)
    _need(tree, "a condition")
    value = _value(tree)
    return lambda names: boolean_of(value(names))


def _all(tree: All) -> _Condition:
    return _first_of(tree.operands, False)


def _any(tree: AnyOf) -> _Condition:
    return _first_of(tree.operands, True)


def _first_of(operands: Sequence[Tree], decisive: bool) -> _Condition:
    """AND and OR: the first FALSE or TRUE decides; else one unknown does."""
    conditions = [_condition(operand) for operand in operands]

    def evaluate(names: Names) -> bool | None:
        result: bool | None = not decisive
        for condition in conditions:
            truth = condition(names)
            if truth is decisive:
                return decisive
            if truth is None:
                result = None
        return result

    return evaluate


def _not(tree: Not) -> _Condition:
    condition = _condition(tree.operand)

    def evaluate(names: Names) -> bool | None:
        truth = condition(names)
        return None if truth is None else not truth

    return evaluate


def _comparison(tree: Comparison) -> _Condition:
    if tree.sign in {"=", "<>"}:
        if kind := _kind(tree.left):
            _need(tree.right, kind)
    else:
        _need(tree.left, "a number")
        _need(tree.right, "a number")
    compare = COMPARISONS[tree.sign]
    left, right = _value(tree.left), _value(tree.right)
    return lambda names: compare(left(names), right(names))


def _is_null(tree: IsNull) -> _Condition:
    value = _value(tree.operand)
    return lambda names: value(names) is None


def _between(tree: Between) -> _Condition:
    operand, least, most = map(_number, (tree.operand, tree.least, tree.most))

    def evaluate(names: Names) -> bool | None:
        number, low, high = operand(names), least(names), most(names)
        if number is None:
            return None
        above = None if low is None else low <= number
        below = None if high is None else number <= high
        if above is False or below is False:
            return False
        return None if above is None or below is None else True

    return evaluate


def _in(tree: In) -> _Condition:
    return _on_string(tree.operand, tree.strings.__contains__)


def _like(tree: Like) -> _Condition:
    return _on_string(tree.operand, like(tree.pattern, tree.escape))


def _on_string(operand: Tree, test: Callable[[str], bool]) -> _Condition:
    """A test of a string: unknown for NULL, FALSE for a value of another type."""
    _need(operand, "a string")
    value = _value(operand)

    def evaluate(names: Names) -> bool | None:
        operand_value = value(names)
        if operand_value is None:
            return None
        return isinstance(operand_value, str) and test(operand_value)

    return evaluate


_CONDITIONS: dict[type, Callable[..., _Condition]] = {
    All: _all,
    AnyOf: _any,
    Between: _between,
    Comparison: _comparison,
    In: _in,
    IsNull: _is_null,
    Like: _like,
    Not: _not,
}
