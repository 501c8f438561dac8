"""Calls a public function with wrong values for each of its parameters.

The wrong values follow from the annotation of a parameter, so a new parameter is tested
without a new line here. Only limits, words and JIDs, which an annotation cannot
express, are given by the test.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import get_args, get_type_hints

from waiting import limit

#: A value of each kind that callers confuse.
_VALUES: tuple[object, ...] = (
    *(None, True, False, 0, 1, 1.5, math.nan, math.inf, -math.inf, 10**400),
    *("text", b"bytes", ["list"], {"a": "dict"}, object()),
)

#: The values that each annotation allows; for any other annotation: none.
_ALLOWED: Mapping[str, Callable[[object], bool]] = {
    "None": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e300
    ),
    "Sequence": lambda value: isinstance(value, list),
    "Collection": lambda value: isinstance(value, list),
    "Mapping": lambda value: isinstance(value, dict),
    "Json": lambda value: True,  # only the test knows what JSON cannot carry
    # These are words or URLs; the test gives wrong ones.
    "Literal": lambda value: isinstance(value, str),
}

#: Wrong as a JID.
NO_JIDS = ("", "a b@example.org", "@example.org", "a@", "a@b@c", "\ud800@example.org")

#: Wrong as a length of time.
NO_SECONDS = (-1, -0.5)


def wrong_for(parameter: inspect.Parameter) -> list[object]:
    """The values that the annotation of a parameter does not allow."""
    annotation = parameter.annotation
    if not isinstance(annotation, str):
        annotation = inspect.formatannotation(annotation)
    names = re.split(r" \| (?![^\[]*\])", annotation)
    allowed = [
        _ALLOWED.get(name.partition("[")[0].rpartition(".")[2], _nothing)
        for name in names
    ]
    return [value for value in _VALUES if not any(each(value) for each in allowed)]


def parameters_of(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """The parameters that an application passes; those of a TypedDict among them."""
    parameters = dict(inspect.signature(function).parameters)
    parameters.pop("self", None)
    for name, parameter in tuple(parameters.items()):
        if parameter.kind is parameter.VAR_KEYWORD:
            options = get_args(get_type_hints(function)[name])
            if options:
                del parameters[name]
                parameters |= {
                    each: inspect.Parameter(
                        each, parameter.KEYWORD_ONLY, annotation=_written(annotation)
                    )
                    for each, annotation in options[0].__annotations__.items()
                }
    return parameters


def _written(annotation: object) -> object:
    """As in the source, where annotations are not evaluated."""
    return getattr(annotation, "__forward_arg__", annotation)


async def accepted(
    function: Callable[..., object],
    valid: Mapping[str, object],
    wrong: Mapping[str, Sequence[object]] | None = None,
    *,
    without: Sequence[str] = (),
) -> list[str]:
    """Pass each wrong value for each parameter; returns those not refused by name.

    Args:
        function: the function to test.
        valid: arguments with which it does something.
        wrong: further wrong values, by parameter.
        without: parameters for which any value is right.
    """
    parameters = parameters_of(function)
    unknown = {*valid, *(wrong or {}), *without} - set(parameters)
    assert not unknown, f"no parameters: {unknown}"
    problems = []
    for name, parameter in parameters.items():
        if name in without:
            continue
        for value in (*wrong_for(parameter), *(wrong or {}).get(name, ())):
            problem = await _problem(function, {**valid, name: value}, name)
            if problem:
                problems.append(f"{name}={value!r:.60}: {problem}")
    return problems


async def _problem(
    function: Callable[..., object], arguments: Mapping[str, object], name: str
) -> str:
    positional = [
        arguments[each]
        for each, parameter in parameters_of(function).items()
        if parameter.kind is parameter.VAR_POSITIONAL and each in arguments
    ]
    try:
        # A call that is accepted may wait for ever.
        async with limit():
            result = function(*positional, **arguments)
            if isinstance(result, AbstractAsyncContextManager):
                async with result:
                    pass
            elif isinstance(result, AsyncIterator):
                await anext(result)
            elif isinstance(result, Awaitable):
                await result
    except ValueError as error:
        named = re.search(rf"\b{name}\b", str(error), re.IGNORECASE)
        return "" if named else f"the error does not name it: {error}"
    except Exception as error:  # noqa: BLE001 - what is tested
        return f"{type(error).__name__}: {error}"
    return "accepted"


def _nothing(_value: object) -> bool:
    return False
