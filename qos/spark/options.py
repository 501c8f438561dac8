"""The options of the formats `xmpp-queue` and `xmpp`, like those of the commands.

Their names are those of the commands' options without the leading dashes. An error has
one line that names the option. Spark hides the values of options with `password` in
their name wherever it shows options.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import NoReturn

from qos.errors import UsageError
from qos.options.login import add_login, login_from
from qos.options.parser import Parser, seconds
from qos.stream.server import Login

__all__ = ["BadOption", "address_in", "identity_in", "options_of", "seconds"]

#: Spark's own options, which a data source gets as well.
_SPARKS = frozenset({"checkpointlocation"})

_PASSWORD = "password"  # noqa: S105 - the name of an option


class BadOption(ValueError):
    """An option is missing, unknown, or has a value that it cannot have."""


class _Options(Parser):
    """A parser whose errors do not mention a command line."""

    def error(self, message: str) -> NoReturn:
        """Raise the error; called by argparse."""
        raise UsageError(message.removeprefix("argument "))


def options_of(
    name: str,
    options: Mapping[str, str],
    declare: Callable[[argparse.ArgumentParser], object],
) -> tuple[argparse.Namespace, Login]:
    """Check the options that a user gave to a format.

    Args:
        name: of the format.
        options: the options from Spark: names in any case, values as text.
        declare: adds the options of the format, besides those of a login.

    Returns:
        The values of the options, and the login.

    Raises:
        BadOption: in one line, without any password.
    """
    parser = _Options(prog=name, add_help=False)
    add_login(parser, jid_help="the account to log in to")
    declare(parser)
    words = []
    for key, value in options.items():
        option = key.lower()
        if option in _SPARKS or option == _PASSWORD:
            continue
        action = parser.long_option(option)
        if action is None or option in {"config", "debug"}:
            raise BadOption(f"{name}: there is no option {key!r}")
        words.append(f"--{option}={value}")
    try:
        arguments = parser.parse_args(words)
        del arguments.leaf  # the parser: it is not for the tasks
        return arguments, login_from(arguments, options.get(_PASSWORD))
    except UsageError as error:
        raise BadOption(f"{name}: option {_plain(error)}") from None


def _plain(error: UsageError) -> str:
    """An error about `--jid`, as one about the option `jid`."""
    text = str(error)
    required = "the following arguments are required: "
    if text.startswith(required):
        text = f"{text.removeprefix(required)}: it is missing"
    return text.replace("--", "")


def address_in(parser: argparse.ArgumentParser) -> None:
    """Declare the address of a queue."""
    parser.add_argument("--service", required=True, metavar="JID")
    parser.add_argument("--node", required=True)


def identity_in(parser: argparse.ArgumentParser) -> None:
    """Declare what identifies a row of a sink; see `qos.spark.identity`."""
    parser.add_argument("--id", metavar="COLUMNS")
    parser.add_argument("--repeats", choices=("allowed",))
    parser.add_argument("--run")
