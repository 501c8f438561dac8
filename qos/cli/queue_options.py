"""The arguments that commands at a queue share: `queue`, `worker` and `bridge`."""

from __future__ import annotations

import argparse

from qos.cli.queue_values import node
from qos.options.login import add_login
from qos.options.parser import address, seconds

__all__ = ["add_drain", "add_own_login", "add_queue", "add_service"]


def add_queue(parser: argparse.ArgumentParser) -> None:
    """Add SERVICE and NODE."""
    add_service(parser)
    parser.add_argument("node", type=node, metavar="NODE", help="the name of the queue")


def add_service(parser: argparse.ArgumentParser) -> None:
    """Add SERVICE."""
    parser.add_argument(
        "service",
        type=address,
        metavar="SERVICE",
        help="the JID of the queue service; its full JID if it serves from an account",
    )


def add_drain(parser: argparse.ArgumentParser, *, without: str) -> None:
    """Add --drain; `without` says what does not come then."""
    parser.add_argument(
        "--drain",
        type=seconds,
        metavar="S",
        help=f"end after this many seconds without {without} (default: never)",
    )


def add_own_login(parser: argparse.ArgumentParser, *, several: str) -> None:
    """Add the options of a login with a resource of its own for each run.

    Args:
        parser: of the command.
        several: the processes of which several may run at once.
    """
    add_login(
        parser,
        jid_help="your account; with a resource the server is asked for it; without a "
        f"resource each run gets a new one, so that several {several} can run at once",
    )
