"""`xmpp-qos listen`: prints the messages that are delivered to an account."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass

from slixmpp.stanza import Message

from qos.cli.account import account_from
from qos.cli.connection import Connection
from qos.cli.options import add_connection
from qos.cli.outcomes import attended
from qos.cli.output import (
    begin_json,
    begin_on_new_line,
    is_file,
    sync_stdout,
    until_printed,
)
from qos.cli.ready import report_ready
from qos.cli.status import Status
from qos.client.arrivals import Arrivals
from qos.core.message.model import Level
from qos.errors import RemoteProtocolError, UsageError
from qos.options.parser import Parser
from qos.stream.turns import Turns
from qos.xml_text import render
from xep_qos import IncomingInfo, Json, json_of

__all__ = ["parser", "run"]

#: The most seconds, after the last message of --count, for the senders of redelivered
#: messages to ask whether they have arrived.
_CONFIRMED_S = 5.0

#: Above this many bytes of messages waiting for stdout, reading from the server pauses.
_WAITING_BYTES_MAX = 16 * 1024 * 1024

_EPILOG = """\
examples:
  xmpp-qos listen --jid lamp@example.org/1
  xmpp-qos listen --jid lamp@example.org/1 --trust @example.net --count 10

For each delivered message there is one line on stdout:
  {"from": "controller@example.org/x", "to": "lamp@example.org/1", "type": "normal",
   "level": "assured", "msg_id": "…", "redelivered": false, "body": "on",
   "xml": "<message …>…</message>"}
A message with JSON (XEP-0335) has its value as json. A plain message is unacknowledged and
has no msg_id; one of type error is not printed.
redelivered: an earlier process may have printed the message; only the reader of the
output can tell.
A message counts as delivered when its whole line is written. If a line cannot be written
(the disk is full, the reader has gone), the command ends and the message stays in the
store. A partly written line is ended by a line feed before the next line. A new process
cannot see the end of a pipe, so the first redelivered message may follow an empty line:
skip empty lines.
With --count the command ends when the senders of the printed messages have been told, or
after 5 seconds: a sender that is away when its message is redelivered is told by the next
`listen`.
When messages can be received there is one line on stderr: ready FULL_JID.
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
        help="end after this many messages (default: no limit)",
    )
    parser.add_argument(
        "--fsync",
        action="store_true",
        help="count a message as delivered only when its line is on disk, safe against a "
        "power cut; stdout must be a file (default: when the line is written)",
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="do not report when the session is ready, lost or made again",
    )
    add_connection(parser, receives=True)
    parser.set_defaults(until_stopped=True)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    if arguments.fsync and not is_file():
        raise UsageError("--fsync: stdout is not a file")
    account = account_from(arguments)
    connection = Connection(account, receives=True, quiet=arguments.quiet)
    async with connection:
        listening = _Listening(connection, arguments.count, fsync=arguments.fsync)
        client, qos = connection.client, connection.qos
        Arrivals(client, qos, "xmpp-qos listen", listening.received)
        printing = listening.until_done(quiet=arguments.quiet)
        await attended(connection, printing, listening.what_stays)
    return Status.DONE


@dataclass(frozen=True, slots=True)
class _Line:
    """A message that waits for its turn on stdout.

    Attributes:
        record: the JSON object.
        size: approximate bytes of the message.
        future: to end when the line is written; None for a plain message.
    """

    record: dict[str, object]
    size: int
    future: asyncio.Future[None] | None


class _Listening:
    def __init__(
        self, connection: Connection, count: int | None, *, fsync: bool
    ) -> None:
        self._connection = connection
        self._turns = Turns.of(connection.client)
        self._fsync = fsync
        #: How many messages are still to be received, and to be printed; None: no
        #: limit.
        self._to_receive = self._to_print = count
        self._lines: asyncio.Queue[_Line] = asyncio.Queue()
        self._waiting_bytes = 0
        #: How many messages with QoS have been received but not printed in full.
        self._unprinted = 0
        #: The next line is one that an earlier process may have printed in part.
        self._redelivers = False

    def what_stays(self) -> str:
        """A phrase that says what becomes of messages that were not printed, or ''."""
        if not self._unprinted:
            return ""
        store = self._connection.qos.store
        fate = "stay in the store" if store.durable else "are lost with the store"
        return f"; messages that were not printed {fate}: {self._unprinted}"

    async def until_done(self, *, quiet: bool) -> None:
        """Report that the session is ready, and print until there are enough messages.

        Raises:
            CommandError: stdout cannot be written. Messages that are not printed stay
                in the store.
        """
        ready = asyncio.get_running_loop().create_task(self._ready(quiet=quiet))
        try:
            while self._to_print is None or self._to_print > 0:
                await self._print()
            await self._connection.qos.confirmed(within_s=_CONFIRMED_S)
        finally:
            ready.cancel()
            self._turns.release()

    async def _ready(self, *, quiet: bool) -> None:
        await self._connection.announced.wait()
        await self._connection.qos.roster_known()
        report_ready(self._connection.client.boundjid.full, quiet=quiet)

    def received(self, message: Message, info: IncomingInfo | None) -> None:
        """Queue a message for printing; it counts as taken when its line is written."""
        if self._to_receive == 0:
            return
        level = info.level if info else Level.UNACKNOWLEDGED
        xml = render(message.xml)
        record: dict[str, object] = {
            "from": str(message["from"]),
            "to": str(message["to"]) or str(self._connection.client.boundjid),
            "type": message["type"],
            "level": level.value,
            "msg_id": info.msg_id if info else None,
            "redelivered": info.redelivered if info else False,
            "body": message.xml.findtext("{jabber:client}body"),
            **_json(message),
            "xml": xml,
        }
        future = None
        if info is not None:
            self._unprinted += 1
            future = asyncio.get_running_loop().create_future()
            self._connection.qos.take_until(message, future)
        self._lines.put_nowait(_Line(record, len(xml), future))
        self._waiting_bytes += len(xml)
        if self._waiting_bytes > _WAITING_BYTES_MAX:
            # stdout may have no reader, and plain messages are limited by no quota.
            self._turns.hold()
        if self._to_receive is not None:
            self._to_receive -= 1
            if self._to_receive == 0:
                self._connection.qos.stop_receiving()

    async def _print(self) -> None:
        """Print the messages that wait."""
        lines = [await self._lines.get()]
        while not self._lines.empty():
            lines.append(self._lines.get_nowait())
        printing = [self._begin(line) for line in lines]
        try:
            for line, its_printing in zip(lines, printing, strict=True):
                await until_printed(its_printing)
                if not self._fsync:
                    self._printed(line)
        finally:
            for its_printing in printing:
                its_printing.cancel()
                # An error is told once.
                its_printing.cancelled() or its_printing.exception()
        if self._fsync:
            await sync_stdout()
            for line in lines:
                self._printed(line)

    def _begin(self, line: _Line) -> asyncio.Future[None]:
        """Begin to write the line; it waits for stdout without blocking the loop."""
        if line.record["redelivered"] and not self._redelivers:
            self._redelivers = True
            begin_on_new_line()
        return begin_json(line.record)

    def _printed(self, line: _Line) -> None:
        if line.future is not None:
            line.future.set_result(None)
            self._unprinted -= 1
        self._waiting_bytes -= line.size
        if self._waiting_bytes == 0:
            self._turns.release()
        if self._to_print is not None:
            self._to_print -= 1


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of messages")
    return int(text)


def _json(message: Message) -> dict[str, Json]:
    """The value that the message has as JSON, under `json`; empty: it has none."""
    try:
        return {"json": json_of(message)}
    except RemoteProtocolError:
        return {}
