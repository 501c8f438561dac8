"""The options of `queue serve` for its gateways, and the verbs that write their users."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias

from qos.cli import queue_help, queue_values
from qos.core.connection_shares import ConnectionLimits
from qos.options.parser import Parser, sentence, whole

__all__ = ["add_options", "add_users"]

_Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_options(serve: Parser) -> None:
    """Declare the options of all gateways."""
    _add_amqp(serve)
    _add_http(serve)
    _add_connections(serve)


def add_users(verbs: _Verbs) -> None:
    """Declare the verbs for users."""
    amqp = _add_user(verbs, "amqp-user", "AMQP", queue_help.AMQP_USER)
    amqp.add_argument(
        "--certificate", action="store_true", help="without a password: by certificate"
    )
    http = _add_user(verbs, "http-user", "HTTP", queue_help.HTTP_USER)
    http.add_argument(
        "--token",
        action="store_true",
        help="with a new random token instead of a password; it is printed, and only its "
        "hash is kept",
    )


def _add_amqp(serve: Parser) -> None:
    group = serve.add_argument_group(
        "AMQP 1.0",
        "Clients of AMQP 1.0 attach to the same queues (extra [amqp]).",
    )
    _add_listening(
        group,
        "amqp",
        address_help="listen for AMQP 1.0 here; the usual ports are 5672, and 5671 with TLS",
        users_help="the users and their hashed passwords, written by `xmpp-qos queue "
        "amqp-user`; a change counts at once, and within a second for what is open",
    )
    group.add_argument(
        "--amqp-client-ca",
        type=Path,
        metavar="FILE",
        help="a user of the file may also log in by a certificate that one of these "
        "authorities has signed: its common name is the name of the user",
    )
    group.add_argument(
        "--amqp-anonymous",
        type=queue_values.account,
        metavar="JID",
        help="let everybody who can connect work as this account, without a password",
    )


def _add_http(serve: Parser) -> None:
    group = serve.add_argument_group(
        "HTTP",
        "Clients of HTTP post to the same queues and take from them (extra [rest]).",
    )
    _add_listening(
        group,
        "http",
        address_help="listen for HTTP here",
        users_help="the users and the hashes of their passwords and tokens, written by "
        "`xmpp-qos queue http-user`; may be that of --amqp-users; a change "
        "counts at once, and within a second for what waits",
    )
    _add_dialect(group)
    group.add_argument(
        "--http-base",
        type=queue_values.base,
        metavar="URL",
        help="what clients call this service, if a proxy is between, such as "
        "https://queue.example.org or https://example.org/mq: links begin with it",
    )
    group.add_argument(
        "--http-send",
        type=Path,
        metavar="FILE",
        help="let users send assured messages: lines USER: JID …, with the JIDs, full or "
        "bare, or @DOMAINs that each may send to; USER * is all; a change counts at once",
    )
    group.add_argument(
        "--http-push",
        action="append",
        metavar="TARGET",
        help="messages may be pushed here too: HOST or HOST:PORT (by http as well, at any "
        "address), or NETWORK/BITS; may be repeated. Without it, only to public "
        "addresses, by https",
    )
    group.add_argument(
        "--http-requests-per-second",
        type=queue_values.rate,
        metavar="N",
        help="the most of one user, on average (default 500); 0: no limit",
    )
    group.add_argument(
        "--http-bytes-per-second",
        type=queue_values.rate,
        metavar="N",
        help="the most in the bodies of one user, on average (default 16777216); 0: no "
        "limit",
    )


def _add_dialect(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--http-link-headers",
        action="store_true",
        default=None,
        help="in the dialect of HornetQ, below /hornetq/, show links in the header Link, "
        "and not each in a header msg-…",
    )
    group.add_argument(
        "--http-property-header",
        type=queue_values.property_header,
        action="append",
        metavar="NAME",
        help="in the dialect of HornetQ, let the header Foo-Bar of a message be its property "
        "http_foo$bar, which selectors and all consumers can read; can be repeated "
        "(default: only Link and Content-Type, -Encoding and -Language)",
    )


def _add_connections(serve: Parser) -> None:
    group = serve.add_argument_group(
        "Connections", "The shares of the connections of AMQP and HTTP together."
    )
    usual = ConnectionLimits()
    group.add_argument(
        "--connections-per-address",
        type=whole(1),
        metavar="N",
        help="the most of one IP address (IPv6: of one /64) that are not logged in "
        f"(default {usual.address}); more, if all clients come through one proxy",
    )
    group.add_argument(
        "--connections-per-account",
        type=whole(1),
        metavar="N",
        help=f"the most of one account that are logged in (default {usual.account})",
    )


def _add_listening(
    group: argparse._ArgumentGroup, name: str, *, address_help: str, users_help: str
) -> None:
    """Declare the options that every gateway has; see `qos.cli.listening`."""
    group.add_argument(
        f"--{name}",
        type=queue_values.host_and_port,
        metavar="HOST:PORT",
        help=address_help,
    )
    group.add_argument(
        f"--{name}-tls",
        type=Path,
        nargs=2,
        metavar=("CERT", "KEY"),
        help="files with the certificate chain and its key; needed for any address that "
        "other machines can reach",
    )
    group.add_argument(f"--{name}-users", type=Path, metavar="FILE", help=users_help)


def _add_user(
    verbs: _Verbs, name: str, protocol: str, epilog: str
) -> argparse._MutuallyExclusiveGroup:
    text = (
        f"write a user of the {protocol} gateway, with a hashed password, into its file"
    )
    verb = verbs.add_parser(name, help=text, description=sentence(text), epilog=epilog)
    verb.add_argument(
        "file", type=Path, metavar="FILE", help=f"of --{protocol.lower()}-users"
    )
    verb.add_argument(
        "name",
        metavar="NAME",
        help="the name to log in with: NAME@SERVICE is then the account; or the bare JID "
        "of an account",
    )
    how = verb.add_mutually_exclusive_group()
    how.add_argument("--remove", action="store_true", help="remove the user")
    return how
