"""Selectors: the conditions of the JMS message selector (Jakarta Messaging §3.8.1).

`parse` reads a text from a stranger: its length, its depth and the number of its names
are limited, and no text makes it slow. The result is a pure function of the names that
an item has. What the names of an item mean is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from qos.core.queue.selector.evaluation import Evaluate, Names, compiled
from qos.core.queue.selector.parser import tree_of
from qos.core.queue.selector.tokens import SelectorError
from qos.core.queue.selector.values import Number, Untyped, Value

__all__ = [
    "Names",
    "Number",
    "Selector",
    "SelectorError",
    "Untyped",
    "Value",
    "parse",
]


@dataclass(frozen=True, slots=True)
class Selector:
    """A condition on the names of an item.

    Attributes:
        text: as it was written, without blanks around it; equal texts are equal
            selectors.
        names: the names that it reads.
    """

    text: str
    names: frozenset[str] = field(compare=False)
    _evaluate: Evaluate = field(compare=False, repr=False)

    def matches(self, names: Names) -> bool:
        """Whether the condition is TRUE: neither FALSE nor unknown.

        Args:
            names: the values by name; a missing one is NULL. Whole numbers have 64
                bits, the others are finite.
        """
        return self._evaluate(names) is True


def parse(text: str) -> Selector:
    """The selector with this text.

    Raises:
        SelectorError: it is no selector, is over a limit, or has constants of types
            that can never fit, as in `1 = 'a'`.
    """
    tree, names = tree_of(text)
    return Selector(text.strip(" \t\r\n"), names, compiled(tree))
