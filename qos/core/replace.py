"""`dataclasses.replace` for our own records, in a tenth of its time.

A message is replaced some five times on its way, and that was a third of all that it
cost at its sender.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

__all__ = ["replace"]

if TYPE_CHECKING:
    # So that names and types of what is replaced are checked.
    from dataclasses import replace
else:
    _T = TypeVar("_T")

    def replace(record: _T, /, **changes: object) -> _T:
        """The same record with other values.

        Args:
            record: a frozen dataclass with slots, more than one field, and without a
                `__post_init__`: values are copied, and nothing is called.
            changes: the new values, by field.

        Raises:
            TypeError: it has no such field.
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
    # The slots themselves: what makes the class frozen stands before them.
    setters = {each.name: of.__dict__[each.name].__set__ for each in fields(of)}
    return attrgetter(*setters), tuple(setters.values()), setters
