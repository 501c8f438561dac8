"""The options that commands share, and the config file.

`qos.cli.account` makes settings from them.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qos.cli.folders import NO_HOME, xdg_folder
from qos.core.message.model import NAMESPACES
from qos.core.quota import Quotas
from qos.errors import UsageError
from qos.options.login import Group, add_backoff, add_general, add_server
from qos.options.parser import Parser, amount, seconds

__all__ = [
    "add_connection",
    "add_journal",
    "add_quotas",
    "add_store",
    "parse",
    "usual_config",
]

_QUOTAS = Quotas()


def parse(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command's arguments, and the config file that they name, or the usual one.

    Raises:
        UsageError: one of the two is wrong.
    """
    arguments = parser.parse_args(argv)
    path = _config_of(arguments)
    if path is None:
        return arguments
    # The options of the file go before those of the command line, since the last one
    # wins. The prog of a subparser is that of its parent plus its own name.
    words = len(arguments.leaf.prog.split()) - len(parser.prog.split())
    options = _from_file(path, arguments.context, arguments.leaf)
    try:
        return parser.parse_args([*argv[:words], *options, *argv[words:]])
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def usual_config() -> Path | None:
    """The file whose options all commands of a user have, if it is there.

    None: the user has no home.
    """
    folder = xdg_folder("XDG_CONFIG_HOME", ".config")
    return None if folder is None else folder / "config.toml"


def _config_of(arguments: argparse.Namespace) -> Path | None:
    """The file with further options of this command; None: there is none."""
    if not hasattr(arguments, "config"):
        return None
    path: Path | None = arguments.config
    if path is not None:
        return path
    # A component is a service of the machine, and not of the user who starts it.
    usual = usual_config()
    is_there = usual is not None and usual.exists()
    if is_there and getattr(arguments, "component", None) is None:
        return usual
    if arguments.context is not None:
        if usual is None:
            raise UsageError(f"--context {arguments.context}: {NO_HOME}: give --config")
        raise UsageError(f"--context {arguments.context}: there is no file {usual}")
    return None


def _table_of(path: Path, context: str | None) -> dict[str, Any]:
    """The options in a file, in force in this context."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    contexts = table.pop("contexts", {})
    if not isinstance(contexts, dict):
        raise UsageError(f"{path}: 'contexts' must be tables, such as [contexts.home]")
    default = table.pop("context", None)
    context = default if context is None else context
    if context is None:
        return table
    if not isinstance(contexts.get(context), dict):
        names = ", ".join(map(repr, contexts)) or "none"
        raise UsageError(f"{path}: no context {context!r}; there are: {names}")
    return {**table, **contexts[context]}


def _from_file(path: Path, context: str | None, leaf: Parser) -> list[str]:
    table = _table_of(path, context)
    everywhere = Parser()
    add_connection(everywhere, receives=True)
    options = []
    for key, value in table.items():
        action = leaf.long_option(key)
        if action is None and everywhere.long_option(key) is not None:
            continue  # the file serves all commands
        if action is None or key in {"config", "context", "help"}:
            raise UsageError(f"{path}: `{leaf.prog}` has no option {key!r}")
        options += _as_argument(path, key, value, action)
    return options


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
        if len(value) == action.nargs:
            return [f"--{key}", *value]
        value = ",".join(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{path}: {key!r} must be a string or a number")
    return [f"--{key}={value}"]


# -- declaring -------------------------------------------------------------


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the options for a store, named by --store or found by the account."""
    group = parser.add_argument_group("store")
    group.add_argument(
        "--store",
        metavar="URL",
        help="sqlite:PATH, files:DIR or memory: (default: a file for this --jid, "
        "sqlite:$XDG_STATE_HOME/xmpp-qos/JID.sqlite, or in ~/.local/state)",
    )
    add_journal(group)
    add_general(group, jid_help=_JID_HELP)


def add_journal(group: Group | argparse.ArgumentParser) -> None:
    """Add the option --journal."""
    group.add_argument(
        "--journal",
        type=Path,
        metavar="DIR",
        help="write each event, without payloads, into this folder, for `xmpp-qos "
        "audit` (default: no journal)",
    )


def add_connection(parser: argparse.ArgumentParser, *, receives: bool) -> None:
    """Add the options of the commands that connect and send or receive messages.

    Args:
        parser: of the command.
        receives: whether the command receives messages. All commands accept the same
            options, so that one set of them serves all.
    """
    add_store(parser)
    add_server(parser)
    group = parser.add_argument_group("retry")
    add_backoff(group, of="of a message or of a lost connection")
    _add_sending(group)
    _add_receiving(parser, receives=receives)


_JID_HELP = (
    "your account; with a resource (a@example.org/meter) the server is asked for it; "
    "without a resource the server is asked for the one used last"
)


def _add_sending(group: Group) -> None:
    group.add_argument(
        "--deadline",
        type=seconds,
        metavar="S",
        help="give up a message after this many seconds (default: never)",
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
        help="the QoS namespaces to use, preferred ones first (default: "
        f"{','.join(NAMESPACES)})",
    )


def _add_receiving(parser: argparse.ArgumentParser, *, receives: bool) -> None:
    text = "Bytes are those of the stored message in UTF-8."
    if not receives:
        text = (
            "The same as for `xmpp-qos listen`; this command itself receives nothing."
        )
    group = parser.add_argument_group("receiving", text)
    group.add_argument(
        "--trust",
        metavar="JID,@DOMAIN…|anyone",
        help="accept the messages of these accounts as well: accounts, full JIDs, all "
        "accounts of a domain (@example.net), or anyone (default: those of contacts)",
    )
    group.add_argument(
        "--contacts",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="accept the messages of contacts, the accounts with a subscription in the "
        "roster (default: --contacts)",
    )
    group.add_argument(
        "--accepts",
        choices=("trusted", "anyone"),
        default="trusted",
        help="accept plain and acknowledged messages of trusted accounts only, or of "
        "anyone; assured ones are held, and of trusted accounts only (default: "
        "%(default)s)",
    )
    add_quotas(group, _QUOTAS)


def add_quotas(group: Group, quotas: Quotas) -> None:
    """Add the options that limit held messages; the defaults are given."""
    for name, of in (
        ("messages", "of one account"),
        ("bytes", "of one account"),
        ("domain-messages", "of all accounts of one foreign domain"),
        ("domain-bytes", "of all accounts of one foreign domain"),
        ("total-messages", "of all accounts"),
        ("total-bytes", "of all accounts"),
    ):
        unit = name.rpartition("-")[2]
        group.add_argument(
            f"--quota-{name}",
            type=amount,
            default=getattr(quotas, name.replace("-", "_")),
            metavar="N",
            help=f"the most {unit} held {of} (default: %(default)s)",
        )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
