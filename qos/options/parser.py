"""A parser of options, and the types of their values."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, NoReturn

from qos.errors import UsageError

__all__ = [
    "Parser",
    "address",
    "amount",
    "day",
    "jid",
    "port",
    "seconds",
    "sentence",
    "whole",
]


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError, and shows examples in its help."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("allow_abbrev", False)
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**settings)
        # The default of a subparser replaces that of its parent.
        self.set_defaults(leaf=self)

    def error(self, message: str) -> NoReturn:
        """Raise the error; called by argparse."""
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def parse_known_args(  # type: ignore[override]  # of the overloads, one is used
        self,
        args: Sequence[str] | None = None,
        namespace: argparse.Namespace | None = None,
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the words, working around a fault of argparse.

        Before Python 3.13 a positional argument that takes any number of words loses
        the words that follow an option.
        """
        options, unknown = super().parse_known_args(args, namespace)
        actions = self._get_positional_actions()
        if not actions or actions[-1].nargs != "*":
            return options, unknown
        if any(word.startswith("-") for word in unknown):
            return options, unknown
        action = actions[-1]
        try:
            words = self._get_values(action, unknown) if unknown else []
        except argparse.ArgumentError as error:
            self.error(str(error))
        setattr(options, action.dest, [*getattr(options, action.dest), *words])
        return options, []

    def long_option(self, name: str) -> argparse.Action | None:
        """The option `--name`, if there is one."""
        return self._option_string_actions.get(f"--{name}")


def address(text: str) -> str:
    """A JID as it was written."""
    jid(text)
    return text


def jid(text: str) -> str:
    """A JID in its normal form."""
    # Imported here, so that only commands with a JID pay for it.
    from qos.jids import normal_jid

    try:
        return normal_jid(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def sentence(text: str) -> str:
    """A help text as a sentence: `str.capitalize` would make Http of HTTP."""
    return f"{text[:1].upper()}{text[1:]}."


def seconds(text: str) -> float:
    """A length of time in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in seconds")
    return value


def day(text: str) -> date:
    """A date."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date") from None


def whole(least: int, most: int = sys.maxsize) -> Callable[[str], int]:
    """A type for a whole number between `least` and `most`."""
    bounds = f"from {least}" if most == sys.maxsize else f"from {least} to {most}"

    def value(text: str) -> int:
        number = int(text) if text.isdecimal() else -1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {bounds}")
        return number

    return value


def amount(text: str) -> int:
    """A whole number, not negative."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def port(text: str) -> int:
    """A TCP port."""
    value = amount(text)
    if not 0 < value < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return value
