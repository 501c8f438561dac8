"""The options of a login: their definitions, and the settings made from them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TypeAlias

from qos.core.backoff import Backoff
from qos.errors import UsageError
from qos.options.parser import jid, port, seconds
from qos.stream.server import PORT_DIRECT, PORT_STARTTLS, Login

__all__ = [
    "PASSWORD_VARIABLE",
    "Group",
    "add_backoff",
    "add_general",
    "add_login",
    "add_server",
    "backoff_from",
    "login_from",
    "password_from",
]

PASSWORD_VARIABLE = "XMPP_QOS_PASSWORD"  # noqa: S105 - the name, not the password

_BACKOFF = Backoff()

#: The type that `add_argument_group` of argparse returns.
Group: TypeAlias = "argparse._ArgumentGroup"


def add_login(parser: argparse.ArgumentParser, *, jid_help: str) -> Group:
    """Add the options of the commands that connect but send no messages.

    Args:
        parser: of the command.
        jid_help: what the JID logs in to.

    Returns:
        The group of the connection options.
    """
    add_general(parser.add_argument_group("account"), jid_help=jid_help)
    group = add_server(parser)
    add_backoff(group, of="of a lost connection")
    return group


def add_general(group: Group, *, jid_help: str) -> None:
    """Add --jid, --config, --context and --debug."""
    group.add_argument("--jid", type=jid, metavar="JID", help=jid_help)
    group.add_argument(
        "--config",
        type=Path,
        metavar="FILE.toml",
        help="a file with any of these options by name, such as retry-first = 5 or "
        'trust = ["a@example.org"]; the command line takes precedence (default: '
        "$XDG_CONFIG_HOME/xmpp-qos/config.toml, or in ~/.config, if it is there)",
    )
    group.add_argument(
        "--context",
        metavar="NAME",
        help="use the options below [contexts.NAME] of that file, too (default: the one "
        "that it names by context = NAME)",
    )
    group.add_argument(
        "--debug", action="store_true", help="report more, and show tracebacks"
    )


def add_server(parser: argparse.ArgumentParser) -> Group:
    """Add the options of a connection; returns their group."""
    group = parser.add_argument_group(
        "connection",
        f"The password comes from the variable {PASSWORD_VARIABLE} or a file.",
    )
    group.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="a file with the password in its first line; used before the variable",
    )
    group.add_argument(
        "--host", metavar="HOST", help="the server (default: by DNS, from the JID)"
    )
    group.add_argument(
        "--port",
        type=port,
        metavar="PORT",
        help=f"its port (default: by DNS, or {PORT_STARTTLS}; {PORT_DIRECT} with --tls "
        "direct)",
    )
    group.add_argument(
        "--tls",
        choices=("starttls", "direct", "off"),
        default="starttls",
        help="the kind of encryption; the server's certificate must be valid for the "
        "JID's domain; off: none, to a loopback address only (default: %(default)s)",
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
        help="seconds after which to give up the first connection; a connection that is "
        "lost later is always restored (default: %(default)g)",
    )
    return group


def add_backoff(group: Group, *, of: str) -> None:
    """Add the options for retry times; `of` says what is retried."""
    group.add_argument(
        "--retry-first",
        type=seconds,
        default=_BACKOFF.first_s,
        metavar="S",
        help=f"seconds before the first retry {of} (default: %(default)g)",
    )
    group.add_argument(
        "--retry-max",
        type=seconds,
        default=_BACKOFF.max_s,
        metavar="S",
        help="the delay doubles with each retry, up to this many seconds (default: "
        "%(default)g)",
    )


def login_from(arguments: argparse.Namespace, password: str | None = None) -> Login:
    """Check the options of a command that connects, and read the password.

    Args:
        arguments: parsed with the options of `add_login`.
        password: if it is known already; None: read it.

    Raises:
        UsageError: the options contradict each other, or there is no password.
    """
    if arguments.jid is None:
        raise UsageError("--jid is needed: the account to log in to")
    try:
        return Login.of(
            arguments.jid,
            password or password_from(arguments.password_file),
            host=arguments.host,
            port=arguments.port,
            tls=arguments.tls,
            ca_file=arguments.ca_file,
            connect_timeout_s=arguments.connect_timeout,
            backoff=backoff_from(arguments),
        )
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        option = name.replace("_", "-")
        text = f"--{option} {rest}" if hasattr(arguments, name) else str(error)
        raise UsageError(text) from None


def backoff_from(arguments: argparse.Namespace) -> Backoff:
    """The retry times from --retry-first and its companion options.

    Raises:
        UsageError: the times contradict each other.
    """
    try:
        return Backoff(first_s=arguments.retry_first, max_s=arguments.retry_max)
    except ValueError as error:
        raise UsageError(str(error)) from None


def password_from(
    path: Path | None,
    *,
    variable: str = PASSWORD_VARIABLE,
    option: str = "--password-file",
) -> str:
    """The first line of a file; None: the value of the environment variable.

    Args:
        path: of the file, or None.
        variable: the environment variable.
        option: that names the file.

    Raises:
        UsageError: there is no password.
    """
    if path is None:
        password = os.environ.get(variable, "")
        problem = f"{variable} is not set, and there is no {option}"
    else:
        source = f"{option} {path}"
        try:
            password = path.read_text("utf-8").partition("\n")[0].rstrip("\r")
        except OSError as error:
            raise UsageError(f"{source}: {error.strerror}") from None
        except UnicodeError:
            raise UsageError(f"{source}: the password is not UTF-8") from None
        problem = f"{source}: its first line is empty"
    if not password:
        raise UsageError(f"no password: {problem}")
    return password
