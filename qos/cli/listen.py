"""`xmpp-qos listen`: prints what is delivered to an account."""

from __future__ import annotations

import argparse
import asyncio
import os

from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.cli.account import account_from
from qos.cli.connection import Connection
from qos.cli.options import Parser, add_connection
from qos.cli.output import note, print_json
from qos.cli.send import attended
from qos.cli.status import CommandError, Status
from qos.core.model import Level
from qos.xml import render

__all__ = ["parser", "run"]

_EPILOG = """\
examples:
  xmpp-qos listen --jid lamp@example.org/1
  xmpp-qos listen --jid lamp@example.org/1 --trust all --count 10

For each delivered message there is one line on stdout:
  {"from": "controller@example.org/x", "to": "lamp@example.org/1",
   "level": "assured", "msg_id": "…", "redelivered": false, "body": "on",
   "xml": "<message …>…</message>"}
A plain message is unacknowledged and has no msg_id. redelivered: it may have been
printed before this process started, and only its reader can tell.
Once others can be answered there is one line on stderr: ready FULL_JID.
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="Print the messages that are delivered to an account, "
        "until Ctrl-C.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--count",
        type=_positive,
        metavar="N",
        help="end after this many messages (default: go on)",
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="do not say when it is ready, nor when the connection is lost and found",
    )
    add_connection(parser, receives=True)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    account = account_from(arguments)
    connection = Connection(account, receives=True, quiet=arguments.quiet)
    async with connection:
        listening = _Listening(connection, arguments.count)
        # Not the event `message`: that is for messages with a body.
        connection.client.register_handler(
            Callback(
                "xmpp-qos listen",
                MatchXPath("{jabber:client}message"),
                listening.received,
            )
        )
        await attended(connection, listening.until_done(quiet=arguments.quiet))
    return Status.DONE


class _Listening:
    def __init__(self, connection: Connection, count: int | None) -> None:
        self._connection = connection
        self._left = count
        self._done = asyncio.Event()

    async def until_done(self, *, quiet: bool) -> None:
        """Say that we are ready, and return when there is enough."""
        ready = asyncio.get_running_loop().create_task(self._ready(quiet=quiet))
        try:
            await self._done.wait()
        finally:
            ready.cancel()

    async def _ready(self, *, quiet: bool) -> None:
        await self._connection.announced.wait()
        await self._connection.qos.roster_known()
        if not quiet:
            note(f"ready {self._connection.client.boundjid.full}", name="")

    def received(self, message: StanzaBase) -> None:
        """Print a message. When this returns it has been handed over."""
        if message["type"] == "error" or self._done.is_set():
            return
        info = self._connection.qos.incoming(message)
        level = info.level if info else Level.UNACKNOWLEDGED
        line = {
            "from": str(message["from"]),
            "to": str(message["to"]) or str(self._connection.client.boundjid),
            "level": level.value,
            "msg_id": info.msg_id if info else None,
            "redelivered": info.redelivered if info else False,
            "body": message.xml.findtext("{jabber:client}body"),
            "xml": render(message.xml),
        }
        try:
            print_json(line)
        except CommandError as error:
            # To go on, in whatever way, would tell the sender that the message has
            # arrived. A process that dies now gets it again.
            note(f"{error}; {'a message stays in the store' if info else 'stopped'}")
            os._exit(error.status)
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self._connection.qos.stop_receiving()
                self._done.set()


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of messages")
    return int(text)
