"""Records: dataclasses that nobody changes, at the price of plain ones.

A frozen dataclass pays for each field of each instance: its `__init__` sets them through
`object.__setattr__`, and `dataclasses.replace` goes through `__init__` again. On the way
of one message some thirty records are made, and its own record is replaced seven times.
So a record is frozen for type checkers, and has plain slots at run time. What an
application gets is frozen at run time too, or a copy: no type checker may have read its
code.
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
        key = type(record), *changes
        copy = _COPIES.get(key)
        if copy is None:
            copy = _COPIES[key] = _copy_of(*key)
        return copy(record, *changes.values())


#: By the class of the record, and the names of the changed fields.
_COPIES: dict[tuple[Any, ...], Callable[..., Any]] = {}

# The class's own `__setattr__` refuses it if it is frozen.
_set = object.__setattr__


def _copy_of(record_type: type, *changed: str) -> Callable[..., Any]:
    """Compile a function of a record and the changed values, as `dataclass` does."""
    names = [field.name for field in fields(record_type)]
    for name in changed:
        if name not in names:
            raise TypeError(f"{record_type.__name__} has no field {name!r}")
    parameters = {name: f"value{place}" for place, name in enumerate(changed)}
    values = {name: parameters.get(name, f"old.{name}") for name in names}
    lines = (f" put(new, {name!r}, {value})" for name, value in values.items())
    if "__setattr__" not in record_type.__dict__:
        lines = (f" new.{name} = {value}" for name, value in values.items())
    head = f"def copy({', '.join(('old', *parameters.values()))}):"
    namespace: dict[str, Any] = {"make": object.__new__, "of": record_type, "put": _set}
    # It is made of nothing but names of fields.
    exec("\n".join((head, " new = make(of)", *lines, " return new")), namespace)  # noqa: S102
    copy: Callable[..., Any] = namespace["copy"]
    return copy
