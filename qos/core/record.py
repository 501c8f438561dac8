"""Records: dataclasses that nobody changes, at the price of plain ones.

A frozen dataclass pays for each field of each instance: its `__init__` sets them through
`object.__setattr__`, and `dataclasses.replace` goes through `__init__` again. On the way
of one message some thirty records are made, and its own record is replaced seven times.
So a record is frozen for type checkers, and has plain slots at run time. Only what an
application gets is still frozen at run time too: no type checker may have read its code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["record", "replace"]

if TYPE_CHECKING:
    # Under these names type checkers know what they do: an assignment to a field is an
    # error, and so are changes with a wrong name or type.
    from dataclasses import dataclass as record
    from dataclasses import replace
else:
    _T = TypeVar("_T")

    def record(*, frozen: bool, slots: bool, **options: bool) -> Callable[[type], type]:
        """A class decorator: `dataclass`, but without the price of `frozen`.

        Args:
            frozen: True; for type checkers only.
            slots: True.
            options: others of `dataclass`.
        """
        assert frozen
        assert slots
        return dataclass(slots=True, unsafe_hash=options.get("eq", True), **options)

    def replace(record: _T, /, **changes: object) -> _T:
        """The same record with other values.

        Args:
            record: a dataclass with slots and without `__post_init__`: the values are
                copied, and nothing is called.
            changes: the new values, by field.

        Raises:
            TypeError: the record has no such field.
        """
        of = type(record)
        copy = _COPIES.get(of)
        if copy is None:
            copy = _COPIES[of] = _copy_of(of)
        new = copy(record)
        for name, value in changes.items():
            try:
                _set(new, name, value)
            except AttributeError:
                raise TypeError(f"{of.__name__} has no field {name!r}") from None
        return new


_COPIES: dict[type, Callable[[object], object]] = {}

# The class's own `__setattr__` refuses it if it is frozen.
_set = object.__setattr__


def _copy_of(of: type) -> Callable[[object], object]:
    """Compile a function that copies a record of this class, as `dataclass` does."""
    names = [each.name for each in fields(of)]
    lines = (f" put(new, {name!r}, old.{name})" for name in names)
    if "__setattr__" not in of.__dict__:
        lines = (f" new.{name} = old.{name}" for name in names)
    source = "\n".join(("def copy(old):", " new = make(of)", *lines, " return new"))
    made: dict[str, Any] = {"make": object.__new__, "of": of, "put": _set}
    exec(source, made)  # noqa: S102 - made of nothing but names of fields
    copy: Callable[[object], object] = made["copy"]
    return copy
