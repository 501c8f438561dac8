"""`xmpp-qos send`: accepts messages, and says how each has ended."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from slixmpp.stanza import Message

from qos.cli.account import account_from
from qos.cli.connection import Connection
from qos.cli.lines import stdin_lines
from qos.cli.options import Parser, add_connection, address
from qos.cli.output import ProgressBar, note, print_json
from qos.cli.status import CommandError, Status, UsageError
from qos.core.model import Level, OutgoingState
from qos.engine import Outcome
from qos.errors import LocalProtocolError, MessageTooLarge, OutboxFull, StoreError
from qos.xml import text as xml_text

__all__ = ["Results", "attended", "parser", "run"]

#: Messages accepted and not ended, at most, before the next line is read.
_UNENDED_MAX = 1000

#: A longer line is over every limit: it is read to its end, and not kept.
_LINE_BYTES_MAX = 1024 * 1024

_BAR_INTERVAL_S = 0.1

_CLIENT = "jabber:client"

_EPILOG = """\
examples:
  xmpp-qos send lamp@example.org/1 --jid controller@example.org --body on
  xmpp-qos send lamp@example.org --jid controller@example.org --xml set.xml
  seq 1000 | xmpp-qos send counter@example.org/1 --jid door@example.org --lines

Each message is in the outbox before it is sent. For each that has ended there is
one line on stdout:
  {"msg_id": "…", "to": "lamp@example.org/1", "level": "assured",
   "outcome": "delivered", "condition": null, "attempts": 2, "seconds": 0.041}
outcome is delivered, not delivered (certainly) or in doubt (it may have been);
at level unacknowledged it is sent, of which nothing more is known.
The worst outcome makes the exit status, see `xmpp-qos --help`.
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="Send a message, or one for each line of stdin.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "to",
        type=address,
        metavar="TO",
        help="the receiver: a full JID, or a bare one to follow to whichever of its "
        "resources supports QoS",
    )
    parser.add_argument(
        "--level",
        choices=[level.value for level in Level],
        default=Level.ASSURED.value,
        metavar="L",
        help="unacknowledged (a plain message), acknowledged (at least once) or "
        "assured (exactly once) (default: %(default)s)",
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--body", metavar="TEXT", help="the text of the message")
    group.add_argument(
        "--xml",
        type=Path,
        metavar="FILE",
        help="a file with the message: <message>…</message>; its to and from do not "
        "count",
    )
    group.add_argument(
        "--lines",
        action="store_true",
        help="a message for each line of stdin, empty ones included; a progress bar "
        "where stderr is a terminal",
    )
    add_connection(parser, receives=False)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    if arguments.body is None and arguments.xml is None and not arguments.lines:
        raise UsageError("one of --body, --xml or --lines is needed")
    account = account_from(arguments)
    message = None
    if arguments.xml is not None:
        message = _message_from(arguments.xml)
    elif arguments.body is not None:
        try:
            message = _message_with(arguments.body)
        except ValueError as error:
            raise UsageError(f"--body: {error}") from None
    async with Connection(account, receives=False) as connection:
        sending = _Sending(connection, arguments.to, Level(arguments.level))
        work = sending.lines() if message is None else sending.one(message)
        await attended(connection, work, sending.where)
        return sending.results.status


async def attended(
    connection: Connection,
    work: Coroutine[Any, Any, None],
    where: Callable[[], str] = str,
) -> None:
    """Connect and do the work; if that fails, say what becomes of the rest.

    Args:
        connection: not started yet.
        work: what to do.
        where: says how far it got, or ''.
    """
    connection.start()
    try:
        await connection.work(work)
    except CommandError as error:
        text = f"{error}; {connection.what_stays}{where()}"
        raise CommandError(text, error.status) from None
    except StoreError as error:
        text = f"{error}; what was accepted before stays in the outbox{where()}"
        raise CommandError(text, Status.STORE) from None
    except asyncio.CancelledError:
        note(f"stopped; {connection.what_stays}{where()}")
        raise


class Results:
    """Prints how each message has ended, and keeps the worst of it."""

    def __init__(self) -> None:
        self.status = Status.DONE
        self.ended = 0
        self.trouble = 0

    def add(self, outcome: Outcome, *, to: str = "", why: str = "") -> None:
        """Print an outcome.

        Args:
            outcome: of a message that has ended.
            to: the receiver as the user gave it, if not as in the outcome.
            why: of an outcome that is not good, for people.
        """
        self.ended += 1
        bad = _BAD.get(outcome.status)
        if bad is not None:
            self.trouble += 1
            self.status = max(self.status, bad)
            by = f", said {outcome.by}" if outcome.by else ""
            reason = why or f"{outcome.condition or 'no answer in time'}{by}"
            note(f"{outcome.status.value} to {to or outcome.to}: {reason}")
        print_json(
            {
                "msg_id": outcome.msg_id,
                "to": to or outcome.to,
                "level": outcome.level.value,
                "outcome": outcome.status.value,
                "condition": outcome.condition,
                "attempts": outcome.attempts,
                "seconds": round(outcome.seconds, 3),
            }
        )


_BAD = {
    OutgoingState.NOT_DELIVERED: Status.NOT_DELIVERED,
    OutgoingState.IN_DOUBT: Status.IN_DOUBT,
}


class _Sending:
    """What one run of `send` has to do."""

    def __init__(self, connection: Connection, to: str, level: Level) -> None:
        self.results = Results()
        self._connection = connection
        self._to = to
        self._level = level
        self._read = 0
        self._more = True
        self._bar = ProgressBar()
        self._bar_due_at = 0.0

    def where(self) -> str:
        """How far it got, for a sentence that says so."""
        if self._read:
            return f"; stdin was read up to line {self._read}"
        plain = self._level is Level.UNACKNOWLEDGED
        return "; nothing was sent" if plain and not self.results.ended else ""

    async def one(self, message: ET.Element) -> None:
        """Send it."""
        await self._send(message, "")
        await self._written()

    async def lines(self) -> None:
        """Send a message for each line of stdin, many at a time."""
        slots = asyncio.Semaphore(_UNENDED_MAX)
        try:
            async with asyncio.TaskGroup() as group:
                async for line in stdin_lines(_LINE_BYTES_MAX):
                    await slots.acquire()
                    task = group.create_task(self._line(line))
                    task.add_done_callback(lambda _: slots.release())
                    # Let it be accepted: in this order, and before the next.
                    await asyncio.sleep(0)
                self._more = False
                self._show()
            await self._written()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            self._bar.close()

    async def _line(self, line: bytes | None) -> None:
        self._read += 1
        where = f"line {self._read}: "
        if line is None:
            why = f"{where}longer than {_LINE_BYTES_MAX} bytes"
            self._refused("policy-violation", why)
        else:
            try:
                message = _message_with(line.decode())
            except ValueError as error:
                self._refused("bad-request", f"{where}{error}")
            else:
                await self._send(message, where)
        self._show()

    async def _send(self, message: ET.Element, where: str) -> None:
        connection = self._connection
        if self._level is Level.UNACKNOWLEDGED:
            await connection.online.wait()
        stanza = Message(connection.client, xml=message)  # type: ignore[no-untyped-call]
        stanza["to"] = self._to
        try:
            delivery = await connection.qos.submit(stanza, level=self._level)
        except MessageTooLarge as error:
            self._refused("policy-violation", f"{where}{error}")
        except OutboxFull as error:
            self._refused("resource-constraint", f"{where}{error}")
        except LocalProtocolError as error:
            self._refused("bad-request", f"{where}{error}")
        else:
            if self._level is Level.UNACKNOWLEDGED:
                await connection.drained()
            self.results.add(await delivery.outcome(), to=self._to)

    def _refused(self, condition: str, why: str) -> None:
        """It was not even accepted."""
        outcome = Outcome(
            status=OutgoingState.NOT_DELIVERED,
            msg_id=None,
            to=self._to,
            level=self._level,
            attempts=0,
            seconds=0.0,
            condition=condition,
        )
        self.results.add(outcome, why=why)

    async def _written(self) -> None:
        """A plain message has no answer to wait for, and logging out cuts it off."""
        if self._level is Level.UNACKNOWLEDGED:
            await self._connection.drained(left=0)

    def _show(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._bar_due_at or self.results.ended == self._read:
            self._bar_due_at = now + _BAR_INTERVAL_S
            self._bar.show(
                ended=self.results.ended,
                read=self._read,
                more=self._more,
                trouble=self.results.trouble,
            )


def _message_with(body: str) -> ET.Element:
    """A message with this body, which may be empty.

    Raises:
        ValueError: XML cannot carry it.
    """
    xml_text(body)
    message = ET.Element(f"{{{_CLIENT}}}message")
    ET.SubElement(message, f"{{{_CLIENT}}}body").text = body
    return message


def _message_from(path: Path) -> ET.Element:
    """The message in a file; elements without a namespace are in jabber:client."""
    try:
        message = ET.fromstring(path.read_bytes())  # noqa: S314 - the user's own
    except OSError as error:
        raise UsageError(f"--xml {path}: {error.strerror}") from None
    except (ET.ParseError, ValueError, LookupError) as error:
        raise UsageError(f"--xml {path}: not well-formed: {error}") from None
    for element in message.iter():
        if not element.tag.startswith("{"):
            element.tag = f"{{{_CLIENT}}}{element.tag}"
    if message.tag != f"{{{_CLIENT}}}message":
        raise UsageError(f"--xml {path}: the outermost element must be <message>")
    return message
