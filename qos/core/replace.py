"""`dataclasses.replace` for our own records, ten times as fast.

A message's record is replaced some five times on its way. With the standard function
that was a third of the sender's whole cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

__all__ = ["replace"]

if TYPE_CHECKING:
    # So that type checkers check the names and types of the changes.
    from dataclasses import replace
else:
    _T = TypeVar("_T")

    def replace(record: _T, /, **changes: object) -> _T:
        """The same record with other values.

        Args:
            record: a frozen dataclass with slots, with more than one field, and without
                `__post_init__`: the values are copied, and nothing is called.
            changes: the new values, by field.

        Raises:
            TypeError: the record has no such field.
        """
        of = type(record)
        slots = _SLOTS.get(of)
        if slots is None:
            slots = _SLOTS[of] = _slots_of(of)
        values, setters, by_name = slots
        new = _new(of)
        for put, value in zip(setters, values(record), strict=True):
            put(new, value)
        try:
            for name, value in changes.items():
                by_name[name](new, value)
        except KeyError as error:
            raise TypeError(f"{of.__name__} has no field {error}") from None
        return new


_new = object.__new__

_Setter: TypeAlias = Callable[[Any, object], None]
_Slots: TypeAlias = tuple[
    Callable[[Any], tuple[object, ...]], tuple[_Setter, ...], dict[str, _Setter]
]

_SLOTS: dict[type, _Slots] = {}


def _slots_of(of: type) -> _Slots:
    # The setters of the slots themselves, which the class's own `__setattr__` hides
    # because it is frozen.
    setters = {each.name: of.__dict__[each.name].__set__ for each in fields(of)}
    return attrgetter(*setters), tuple(setters.values()), setters
