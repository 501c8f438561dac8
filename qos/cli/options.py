"""The options that commands share, the config file, and what they come to."""

from __future__ import annotations

import argparse
import ipaddress
import math
import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from qos.cli.status import UsageError
from qos.core.backoff import Backoff
from qos.core.model import NAMESPACES
from qos.core.quota import Quotas
from qos.errors import StoreError

__all__ = [
    "Account",
    "Parser",
    "account_from",
    "add_connection",
    "add_store",
    "address",
    "jid",
    "parse",
    "store_url",
]

PASSWORD_VARIABLE = "XMPP_QOS_PASSWORD"  # noqa: S105 - the name, not the password

#: RFC 6120 §3.2 and XEP-0368: where a server listens when DNS says nothing.
PORT_STARTTLS = 5222
PORT_DIRECT = 5223

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
    words = 1 if hasattr(arguments, "action") else 0
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
    """Add what every command has: the store, by name or by account."""
    group = parser.add_argument_group("store")
    group.add_argument(
        "--store",
        metavar="URL",
        help="sqlite:PATH, files:DIR or memory: (default: a file for this --jid, "
        "sqlite:$XDG_STATE_HOME/xmpp-qos/JID.sqlite, or in ~/.local/state)",
    )
    group.add_argument(
        "--jid",
        type=jid,
        metavar="JID",
        help="the own account; with a resource (a@example.org/meter) that one is "
        "asked for, without one that of last time",
    )
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


def add_connection(parser: argparse.ArgumentParser, *, receives: bool) -> None:
    """Add the options of the commands that connect.

    Args:
        parser: of the command.
        receives: whether it takes messages. All commands have the same options, so
            that one set of them fits all.
    """
    add_store(parser)
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
        type=_seconds,
        default=30.0,
        metavar="S",
        help="give up if there is no first connection after this time; one that is "
        "lost later is always tried again (default: %(default)g)",
    )
    _add_retry(parser)
    _add_receiving(parser, receives=receives)


def _add_retry(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("retry")
    group.add_argument(
        "--retry-first",
        type=_seconds,
        default=_BACKOFF.first_s,
        metavar="S",
        help="seconds before the first repetition, of a message or of a lost "
        "connection (default: %(default)g)",
    )
    group.add_argument(
        "--retry-max",
        type=_seconds,
        default=_BACKOFF.max_s,
        metavar="S",
        help="the delay doubles from one to the next, up to this (default: "
        "%(default)g)",
    )
    group.add_argument(
        "--deadline",
        type=_seconds,
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
        metavar="roster|all|JID,JID…",
        help="whose assured messages are accepted: of those with a subscription in "
        "the roster, of everyone, or of these; acknowledged ones are accepted of "
        "everyone (default: %(default)s)",
    )
    for name, metavar, default, what in (
        ("messages", "N", _QUOTAS.messages, "messages held for one account"),
        ("bytes", "N", _QUOTAS.bytes, "bytes held for one account"),
        ("total-messages", "N", _QUOTAS.total_messages, "messages held for all"),
        ("total-bytes", "N", _QUOTAS.total_bytes, "bytes held for all"),
    ):
        group.add_argument(
            f"--quota-{name}",
            type=_amount,
            default=default,
            metavar=metavar,
            help=f"{what}, at most (default: %(default)s)",
        )


# -- values ----------------------------------------------------------------


def address(text: str) -> str:
    """A JID, as it is written."""
    jid(text)
    return text


def jid(text: str) -> str:
    """A JID in its normal form."""
    # Only the commands that meet a JID pay for the import.
    from slixmpp import JID, InvalidJID

    try:
        normal = JID(text).full
    except (InvalidJID, UnicodeError):
        normal = ""
    if not normal:
        raise argparse.ArgumentTypeError(f"{text!r} is not a JID")
    return normal


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in seconds")
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


# -- what they come to -----------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who to be, and how to get there.

    Attributes:
        jid: the own JID, with or without a resource.
        password: its password.
        host: the server; None: as DNS says.
        port: of the server.
        tls: starttls, direct or off.
        ca_file: the only certificates to trust; None: those of the system.
        connect_timeout_s: for the first connection, and for each attempt.
        backoff: delays between attempts to connect.
        plugin: the options of xep_qos.
    """

    jid: str
    password: str = field(repr=False)
    host: str | None
    port: int
    tls: str
    ca_file: Path | None
    connect_timeout_s: float
    backoff: Backoff
    plugin: dict[str, Any]


def account_from(arguments: argparse.Namespace) -> Account:
    """Check the options of a command that connects, and read the password.

    Raises:
        UsageError: they make no sense together.
    """
    if arguments.jid is None:
        raise UsageError("--jid is needed: the account to log in to")
    user, _, domain = arguments.jid.partition("/")[0].rpartition("@")
    if not user:
        raise UsageError(f"--jid {arguments.jid}: an account has the form user@domain")
    host = arguments.host
    if host is None and (arguments.port is not None or arguments.tls == "off"):
        host = domain
    if arguments.tls == "off" and not _is_loopback(host):
        raise UsageError(
            f"--tls off is for a loopback address only, and {host} is not known as one"
        )
    try:
        backoff = Backoff(first_s=arguments.retry_first, max_s=arguments.retry_max)
    except ValueError as error:
        raise UsageError(str(error)) from None
    usual = PORT_DIRECT if arguments.tls == "direct" else PORT_STARTTLS
    return Account(
        jid=arguments.jid,
        password=_password(arguments.password_file),
        host=host and host.strip("[]"),
        port=arguments.port or usual,
        tls=arguments.tls,
        ca_file=arguments.ca_file,
        connect_timeout_s=arguments.connect_timeout,
        backoff=backoff,
        plugin={
            "store": store_url(arguments, create=True),
            "retry_first_s": backoff.first_s,
            "retry_max_s": backoff.max_s,
            "deadline_s": arguments.deadline,
            "ordered": arguments.ordered,
            "namespaces": arguments.namespaces,
            "trust": arguments.trust,
            "quota_messages": arguments.quota_messages,
            "quota_bytes": arguments.quota_bytes,
            "quota_total_messages": arguments.quota_total_messages,
            "quota_total_bytes": arguments.quota_total_bytes,
        },
    )


def store_url(arguments: argparse.Namespace, *, create: bool = False) -> str:
    """The store that is meant: --store, or the one that belongs to --jid.

    Args:
        arguments: with the two.
        create: make the folder of the latter, if it is not there.

    Raises:
        UsageError: neither is given.
        StoreError: the folder cannot be made.
    """
    if arguments.store is not None:
        return str(arguments.store)
    if arguments.jid is None:
        raise UsageError("--store is needed, or --jid to find the store of an account")
    # The XDG Base Directory Specification: a relative path is to be ignored.
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        state = Path.home() / ".local" / "state"
    # One store a JID as given, resource included: two processes can be logged in
    # to one account, but they cannot share a store.
    folder = state / "xmpp-qos"
    url = f"sqlite:{folder / quote(arguments.jid, safe='@ ')}.sqlite"
    if create:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            text = f"{error.strerror} ({folder})"
            raise StoreError(url, text) from None
    return url


def _password(path: Path | None) -> str:
    if path is None:
        password = os.environ.get(PASSWORD_VARIABLE, "")
        where = f"{PASSWORD_VARIABLE} is not set, and there is no --password-file"
    else:
        where = f"--password-file {path}"
        try:
            password = path.read_text("utf-8").partition("\n")[0].rstrip("\r")
        except OSError as error:
            raise UsageError(f"{where}: {error.strerror}") from None
        except UnicodeError:
            raise UsageError(f"{where}: the password is not UTF-8") from None
        where = f"{where}: its first line is empty"
    if not password:
        raise UsageError(f"no password: {where}")
    return password


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"
