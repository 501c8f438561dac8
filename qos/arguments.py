"""Checks of the arguments that an application passes to this library.

Each check returns the value to be used, or raises `InvalidArgument`. The text of the
error names the argument, what is allowed and what was given. The checks know nothing of
XMPP; `qos.jids` checks JIDs.
"""

from __future__ import annotations

import enum
import inspect
import math
import os
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

from qos.errors import InvalidArgument

__all__ = [
    "callable_of",
    "collection",
    "coroutine_function",
    "flag",
    "instance",
    "is_coroutine_function",
    "mapping",
    "member",
    "number",
    "path",
    "seconds",
    "sequence",
    "text",
    "text_by_text",
    "texts",
    "whole",
]

_E = TypeVar("_E", bound=enum.Enum)
_T = TypeVar("_T")
_C = TypeVar("_C", bound=Callable[..., object])


def text(name: str, value: object, *, empty: bool = True, private: bool = False) -> str:
    """A string.

    Args:
        name: of the argument.
        value: the value that was given.
        empty: '' is allowed.
        private: the error shows only the type of the value, which may be a payload.
    """
    if not isinstance(value, str):
        raise InvalidArgument(name, type(value) if private else value, "a string")
    if not value and not empty:
        raise InvalidArgument(name, value, "a string that is not empty")
    return value


def sequence(
    name: str, value: object, contents: str, *, empty: bool = True
) -> Sequence[object]:
    """A list or another sequence, but no string.

    `contents` describes its items in the error.
    """
    is_text = isinstance(value, str | bytes | bytearray)
    if is_text or not isinstance(value, Sequence) or not (empty or value):
        least = "" if empty else "at least one "
        raise InvalidArgument(name, type(value), f"a list of {least}{contents}")
    return value


def collection(name: str, value: object, contents: str) -> Collection[object]:
    """A list, a set or another collection, but no string and no dict."""
    is_other = isinstance(value, str | bytes | bytearray | Mapping)
    if is_other or not isinstance(value, Collection):
        raise InvalidArgument(name, value, f"a list or set of {contents}")
    return value


def texts(name: str, value: object) -> Sequence[str]:
    """A list or another sequence of non-empty strings."""
    return [text(name, item, empty=False) for item in sequence(name, value, "strings")]


def mapping(name: str, value: object) -> Mapping[object, object]:
    """A dict or another mapping."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(name, value, "a dict")
    return value


def text_by_text(name: str, value: object) -> None:
    """A mapping from strings to strings."""
    for pair in mapping(name, value).items():
        if not all(isinstance(part, str) for part in pair):
            raise InvalidArgument(name, pair, "a dict of strings")


def flag(name: str, value: object) -> bool:
    """True or False; other truthy or falsy values are refused."""
    if not isinstance(value, bool):
        raise InvalidArgument(name, value, "True or False")
    return value


def whole(name: str, value: object, *, least: int, most: float = math.inf) -> int:
    """A whole number between `least` and `most`."""
    if (
        not isinstance(value, bool)
        and isinstance(value, int)
        and least <= value <= most
    ):
        return value
    bounds = f"at least {least}" if most == math.inf else f"from {least} to {most}"
    raise InvalidArgument(name, value, f"a whole number, {bounds}")


def number(
    name: str, value: object, *, least: float = -math.inf, most: float = math.inf
) -> float:
    """A finite number between `least` and `most`."""
    bounds = "" if least == -math.inf else f", at least {least:g}"
    if most != math.inf:
        bounds = f", from {least:g} to {most:g}"
    if not _is_finite(value) or not least <= value <= most:
        raise InvalidArgument(name, value, f"a finite number{bounds}")
    return value


def seconds(name: str, value: object, *, zero: bool = False) -> float:
    """A length of time in seconds; `zero` says whether 0 is allowed."""
    if not _is_finite(value) or value < 0 or (value == 0 and not zero):
        least = "at least" if zero else "more than"
        raise InvalidArgument(name, value, f"a number of seconds, {least} 0")
    return value


def member(kind: type[_E], name: str, value: object) -> _E:
    """A member of an enum whose values are words; its word is accepted too."""
    if isinstance(value, kind):
        return value
    matches = [
        candidate
        for candidate in kind
        if isinstance(value, str) and candidate.value == value
    ]
    if not matches:
        words = ", ".join(repr(candidate.value) for candidate in kind)
        raise InvalidArgument(name, value, f"one of {words} ({kind.__name__})")
    return matches[0]


def instance(kind: type[_T], name: str, value: object, expected: str) -> _T:
    """An object of this class; `expected` describes it in the error."""
    if not isinstance(value, kind):
        raise InvalidArgument(name, value, expected)
    return value


def path(name: str, value: object) -> str:
    """The path of a file or folder, as a string or an `os.PathLike`."""
    string = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(string, str) or not string or "\0" in string:
        raise InvalidArgument(name, value, "a path")
    return string


def callable_of(name: str, value: _C) -> _C:
    """A function, or anything else that can be called; no generator, which would not run."""
    if not callable(value):
        raise InvalidArgument(name, value, "a function")
    for call in (value, inspect.getattr_static(type(value), "__call__", None)):
        if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
            raise InvalidArgument(name, value, "a function without `yield`, which runs")
    return value


def is_coroutine_function(value: object) -> TypeGuard[Callable[..., Awaitable[Any]]]:
    """Whether a call of it makes a coroutine: `async def`, also as `__call__`."""
    call = inspect.getattr_static(type(value), "__call__", None)
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call)


def coroutine_function(name: str, value: _C) -> _C:
    """A function made by `async def`."""
    is_one: bool = is_coroutine_function(value)
    if not is_one:
        raise InvalidArgument(name, value, "a function made by `async def`")
    return value


def _is_finite(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # An int larger than any float is no length of time either.
    return abs(value) <= sys.float_info.max
