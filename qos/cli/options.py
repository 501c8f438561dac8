"""The options that commands share, and the config file.

What they come to, `account` says.
"""

from __future__ import annotations

import argparse
import math
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from qos.cli.status import UsageError
from qos.core.backoff import Backoff
from qos.core.message.model import NAMESPACES
from qos.core.quota import Quotas
from qos.stream.server import PORT_DIRECT, PORT_STARTTLS

__all__ = [
    "Parser",
    "add_connection",
    "add_journal",
    "add_login",
    "add_quotas",
    "add_store",
    "address",
    "jid",
    "parse",
    "seconds",
    "whole",
]

PASSWORD_VARIABLE = "XMPP_QOS_PASSWORD"  # noqa: S105 - the name, not the password

_QUOTAS, _BACKOFF = Quotas(), Backoff()


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError, and explains itself by example."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("allow_abbrev", False)
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**settings)
        # A subparser's replaces that of its parent.
        self.set_defaults(leaf=self)

    def error(self, message: str) -> NoReturn:
        """Called by argparse."""
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def parse_known_args(  # type: ignore[override]  # of the overloads, one is used
        self,
        args: Sequence[str] | None = None,
        namespace: argparse.Namespace | None = None,
    ) -> tuple[argparse.Namespace, list[str]]:
        """Called by argparse, which forgets some words of those it is given.

        Before Python 3.13 an argument that takes any number of words gets none of
        those that stand behind an option.
        """
        known, unknown = super().parse_known_args(args, namespace)
        actions = self._get_positional_actions()
        if not actions or actions[-1].nargs != "*":
            return known, unknown
        if any(word.startswith("-") for word in unknown):
            return known, unknown
        action = actions[-1]
        try:
            words = self._get_values(action, unknown) if unknown else []
        except argparse.ArgumentError as error:
            self.error(str(error))
        setattr(known, action.dest, [*getattr(known, action.dest), *words])
        return known, []

    def long_option(self, name: str) -> argparse.Action | None:
        """The option `--name`, if there is one."""
        return self._option_string_actions.get(f"--{name}")


def parse(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command's arguments, and the config file that they name.

    Raises:
        UsageError: of either.
    """
    arguments = parser.parse_args(argv)
    if getattr(arguments, "config", None) is None:
        return arguments
    # The file's options go before those of the command line: the last one wins.
    # A subparser's prog is that of its parent, and its own name.
    words = len(arguments.leaf.prog.split()) - len(parser.prog.split())
    given = _from_file(arguments.config, arguments.leaf)
    try:
        return parser.parse_args([*argv[:words], *given, *argv[words:]])
    except UsageError as error:
        raise UsageError(f"{arguments.config}: {error}") from None


def _from_file(path: Path, leaf: Parser) -> list[str]:
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    everywhere = Parser()
    add_connection(everywhere, receives=True)
    given = []
    for key, value in table.items():
        action = leaf.long_option(key)
        if action is None and everywhere.long_option(key) is not None:
            continue  # one file for all commands
        if action is None or key in {"config", "help"}:
            raise UsageError(f"{path}: `{leaf.prog}` has no option {key!r}")
        given += _as_argument(path, key, value, action)
    return given


def _as_argument(
    path: Path, key: str, value: Any, action: argparse.Action
) -> list[str]:
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise UsageError(f"{path}: {key!r} must be true or false")
        if value:
            return [f"--{key}"]
        return [f"--no-{key}"] if f"--no-{key}" in action.option_strings else []
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ",".join(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{path}: {key!r} must be a string or a number")
    return [f"--{key}={value}"]


# -- declaring -------------------------------------------------------------


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add what the commands for messages have: the store, by name or by account."""
    group = parser.add_argument_group("store")
    group.add_argument(
        "--store",
        metavar="URL",
        help="sqlite:PATH, files:DIR or memory: (default: a file for this --jid, "
        "sqlite:$XDG_STATE_HOME/xmpp-qos/JID.sqlite, or in ~/.local/state)",
    )
    add_journal(group)
    _add_general(group, jid_help=_JID_HELP)


def add_journal(group: _Group | argparse.ArgumentParser) -> None:
    """Add the option --journal."""
    group.add_argument(
        "--journal",
        type=Path,
        metavar="DIR",
        help="write what happens, without payloads, into this folder, for "
        "`xmpp-qos audit` (default: do not)",
    )


def add_connection(parser: argparse.ArgumentParser, *, receives: bool) -> None:
    """Add the options of the commands that connect for messages.

    Args:
        parser: of the command.
        receives: whether it takes messages. All commands have the same options, so
            that one set of them fits all.
    """
    add_store(parser)
    _add_server(parser)
    group = parser.add_argument_group("retry")
    _add_backoff(group, of="of a message or of a lost connection")
    _add_sending(group)
    _add_receiving(parser, receives=receives)


def add_login(parser: argparse.ArgumentParser, *, jid_help: str) -> _Group:
    """Add the options of the commands that connect, and have no messages.

    Args:
        parser: of the command.
        jid_help: what is logged in to.

    Returns:
        The group of those for the connection.
    """
    _add_general(parser.add_argument_group("account"), jid_help=jid_help)
    group = _add_server(parser)
    _add_backoff(group, of="of a lost connection")
    return group


#: What argparse makes of add_argument_group.
_Group: TypeAlias = "argparse._ArgumentGroup"

_JID_HELP = (
    "the own account; with a resource (a@example.org/meter) that one is "
    "asked for, without one that of last time"
)


def _add_general(group: _Group, *, jid_help: str) -> None:
    group.add_argument("--jid", type=jid, metavar="JID", help=jid_help)
    group.add_argument(
        "--config",
        type=Path,
        metavar="FILE.toml",
        help="a file with any of these options by their names, such as "
        'retry-first = 5 or trust = ["a@example.org"]; the command line wins',
    )
    group.add_argument(
        "--debug", action="store_true", help="say more, and show tracebacks"
    )


def _add_server(parser: argparse.ArgumentParser) -> _Group:
    group = parser.add_argument_group(
        "connection",
        f"The password comes from the variable {PASSWORD_VARIABLE} or a file.",
    )
    group.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="a file whose first line is the password; before the variable",
    )
    group.add_argument(
        "--host", metavar="HOST", help="the server (default: as DNS says for the JID)"
    )
    group.add_argument(
        "--port",
        type=_port,
        metavar="PORT",
        help=f"its port (default: as DNS says, or {PORT_STARTTLS}; {PORT_DIRECT} for "
        "--tls direct)",
    )
    group.add_argument(
        "--tls",
        choices=("starttls", "direct", "off"),
        default="starttls",
        help="the server's certificate must be valid for the JID's domain; off: no "
        "encryption, to a loopback address only (default: %(default)s)",
    )
    group.add_argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="trust the certificates in this PEM file (default: those of the system)",
    )
    group.add_argument(
        "--connect-timeout",
        type=seconds,
        default=30.0,
        metavar="S",
        help="give up if there is no first connection after this time; one that is "
        "lost later is always tried again (default: %(default)g)",
    )
    return group


def _add_backoff(group: _Group, *, of: str) -> None:
    group.add_argument(
        "--retry-first",
        type=seconds,
        default=_BACKOFF.first_s,
        metavar="S",
        help=f"seconds before the first repetition, {of} (default: %(default)g)",
    )
    group.add_argument(
        "--retry-max",
        type=seconds,
        default=_BACKOFF.max_s,
        metavar="S",
        help="the delay doubles from one to the next, up to this (default: "
        "%(default)g)",
    )


def _add_sending(group: _Group) -> None:
    group.add_argument(
        "--deadline",
        type=seconds,
        metavar="S",
        help="give a message up after this time (default: never)",
    )
    group.add_argument(
        "--ordered",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="deliver in the order of sending (default: in any order)",
    )
    group.add_argument(
        "--namespaces",
        type=_names,
        default=NAMESPACES,
        metavar="LIST",
        help="the QoS namespaces to use, the preferred first (default: "
        f"{','.join(NAMESPACES)})",
    )


def _add_receiving(parser: argparse.ArgumentParser, *, receives: bool) -> None:
    text = "Bytes are those of the stored message in UTF-8."
    if not receives:
        text = "Taken as by `xmpp-qos listen`. This command receives nothing itself."
    group = parser.add_argument_group("receiving", text)
    group.add_argument(
        "--trust",
        default="roster",
        metavar="roster|all|nobody|JID,JID…",
        help="whose assured messages are accepted: of those with a subscription in "
        "the roster, of everyone, of nobody, or of these; acknowledged ones are accepted of "
        "everyone (default: %(default)s)",
    )
    add_quotas(group, _QUOTAS)


def add_quotas(group: _Group, quotas: Quotas) -> None:
    """Add the options of how many messages are held; the defaults are given."""
    for name, of in (
        ("messages", "of one account"),
        ("bytes", "of one account"),
        ("domain-messages", "of all accounts of one foreign domain"),
        ("domain-bytes", "of all accounts of one foreign domain"),
        ("total-messages", "of all"),
        ("total-bytes", "of all"),
    ):
        unit = name.rpartition("-")[2]
        group.add_argument(
            f"--quota-{name}",
            type=_amount,
            default=getattr(quotas, name.replace("-", "_")),
            metavar="N",
            help=f"{unit} held {of}, at most (default: %(default)s)",
        )


# -- values ----------------------------------------------------------------


def address(text: str) -> str:
    """A JID, as it is written."""
    jid(text)
    return text


def jid(text: str) -> str:
    """A JID in its normal form."""
    # Only the commands that meet a JID pay for the import.
    from qos.jids import normal_jid

    try:
        return normal_jid(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def seconds(text: str) -> float:
    """A length of time."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in seconds")
    return value


def whole(least: int, most: int = sys.maxsize) -> Callable[[str], int]:
    """A whole number of these."""
    wanted = f"from {least}" if most == sys.maxsize else f"from {least} to {most}"

    def value(text: str) -> int:
        number = int(text) if text.isdecimal() else -1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {wanted}")
        return number

    return value


def _amount(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _port(text: str) -> int:
    value = _amount(text)
    if not 0 < value < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return value


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
