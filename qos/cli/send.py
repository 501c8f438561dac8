"""`xmpp-qos send`: accepts messages, and reports how each has ended."""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from xml.etree import ElementTree as ET

from slixmpp import JID
from slixmpp.stanza import Message

from qos.cli.account import account_from
from qos.cli.connection import Connection
from qos.cli.lines import stdin_lines
from qos.cli.options import add_connection
from qos.cli.outbox_notes import following_earlier, saying_what_is_awaited
from qos.cli.outcomes import Results, attended
from qos.cli.output import ProgressBar, note
from qos.core.message.model import Level, OutgoingState
from qos.core.strings import bare
from qos.engine import Delivery, Outcome
from qos.errors import (
    LocalProtocolError,
    MessageTooLarge,
    OutboxFull,
    UsageError,
)
from qos.jids import normal_jid
from qos.options.parser import Parser, address
from qos.xml_text import CLIENT
from qos.xml_text import text as xml_text
from xep_qos.content import message_with_json

__all__ = ["parser", "run"]

#: The most messages that are accepted and not ended, before the next line is read.
_UNENDED_MAX = 1000

#: A longer line is above every limit: it is read to its end, and not kept.
_LINE_BYTES_MAX = 1024 * 1024

_BAR_INTERVAL_S = 0.1


_EPILOG = """\
examples:
  xmpp-qos send lamp@example.org/1 --jid controller@example.org --body on
  xmpp-qos send lamp@example.org --jid controller@example.org --json '{"on": true}'
  xmpp-qos send lamp@example.org --jid controller@example.org --xml set.xml
  seq 1000 | xmpp-qos send counter@example.org/1 --jid door@example.org --lines

Each message is put into the outbox before it is sent, but nothing before the first login:
with a wrong password nothing is kept. --offline keeps it in any case, for a later run.
Messages of an earlier run that are still in the outbox go out too. For each message that
has ended there is one line on stdout:
  {"msg_id": "…", "to": "lamp@example.org/1", "level": "assured",
   "outcome": "delivered", "condition": null, "attempts": 2, "seconds": 0.041}
outcome is delivered, not delivered (certainly) or in doubt (perhaps delivered). At level
unacknowledged the outcome is sent, and nothing more is known.
The worst outcome decides the exit status, see `xmpp-qos --help`; messages of earlier runs
do not count.

--id names the message. If the command is run again with the same store and --id, it sends
nothing new: it waits for the message in the outbox, or prints how it was delivered.
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
        help="the receiver: a full JID, or a bare JID for one of its resources that "
        "supports QoS",
    )
    parser.add_argument(
        "--level",
        choices=[level.value for level in Level],
        default=Level.ASSURED.value,
        metavar="L",
        help="unacknowledged (a plain message), acknowledged (at least once) or "
        "assured (exactly once) (default: %(default)s)",
    )
    _add_content(parser)
    parser.add_argument(
        "--id",
        metavar="ID",
        help="the id of the message, never used for another message: running the command "
        "again does not deliver it twice (default: a random id)",
    )
    parser.add_argument(
        "--offline",
        action="store_true",
        help="put the messages into the outbox even if there is no connection or login; "
        "the next run sends them (default: nothing is accepted before the first login)",
    )
    add_connection(parser, receives=False)
    return parser


def _add_content(parser: Parser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--body", metavar="TEXT", help="the text of the message")
    group.add_argument(
        "--json", metavar="JSON", help="a value as JSON, sent as such (XEP-0335)"
    )
    group.add_argument(
        "--xml",
        type=Path,
        metavar="FILE",
        help="a file with the message, <message>…</message>; its to is ignored, "
        "and its from, if it has one, must be this account",
    )
    group.add_argument(
        "--lines",
        action="store_true",
        help="one message for each line of stdin, empty ones included; shows a progress "
        "bar if stderr is a terminal",
    )


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    contents = (arguments.body, arguments.json, arguments.xml)
    if not arguments.lines and all(content is None for content in contents):
        raise UsageError("one of --body, --json, --xml or --lines is needed")
    if arguments.id is not None and arguments.lines:
        raise UsageError("--id is for one message, and --lines makes one of each line")
    if arguments.id is not None and arguments.level == Level.UNACKNOWLEDGED.value:
        raise UsageError("--id: a message at level unacknowledged has no id")
    if arguments.offline and arguments.level == Level.UNACKNOWLEDGED.value:
        raise UsageError("--offline: a message at level unacknowledged is not kept")
    account = account_from(arguments)
    message = None
    if arguments.xml is not None:
        message = _message_from(arguments.xml, bare(account.jid))
    elif arguments.json is not None:
        message = _message_of_json(arguments.json)
    elif arguments.body is not None:
        try:
            message = _message_with(arguments.body)
        except ValueError as error:
            raise UsageError(f"--body: {error}") from None
    async with Connection(account, receives=False) as connection:
        sending = _Sending(connection, arguments)
        work = sending.lines() if message is None else sending.one(message)
        async with following_earlier(connection, _report, but=arguments.id):
            await attended(connection, work, sending.progress)
        return sending.results.status


async def _report(delivery: Delivery) -> None:
    """Print the outcome of an earlier message."""
    await Results().add(await delivery.outcome())


class _Sending:
    """One run of `send`."""

    def __init__(self, connection: Connection, arguments: argparse.Namespace) -> None:
        self.results = Results()
        self._connection = connection
        self._to: str = arguments.to
        self._account = bare(str(JID(arguments.to)))
        self._level = Level(arguments.level)
        self._msg_id: str | None = arguments.id
        self._waits_for_ever = arguments.deadline is None
        #: The ids of messages that were accepted and have not ended, in this order.
        self._awaited: dict[str, None] = {}
        self._offline: bool = arguments.offline
        #: Messages have been accepted, or might have been.
        self._begun = False
        self._read = 0
        self._more = True
        self._bar = ProgressBar()
        self._bar_due_at = 0.0
        connection.client.add_event_handler("message_error", self._answered)

    def progress(self) -> str:
        """A phrase that says how far the run got."""
        if self._read:
            return f"; stdin was read up to line {self._read}"
        if not self._begun:
            return "; nothing was sent"
        plain = self._level is Level.UNACKNOWLEDGED
        return "; nothing was sent" if plain and not self.results.ended else ""

    async def one(self, message: ET.Element) -> None:
        """Send the message."""
        await self._begin()
        async with self._saying_what_is_awaited():
            await self._send(message, "")
        await self._written()

    async def lines(self) -> None:
        """Send a message for each line of stdin, many at a time."""
        await self._begin()
        slots = asyncio.Semaphore(_UNENDED_MAX)
        try:
            async with self._saying_what_is_awaited(), asyncio.TaskGroup() as group:
                async for line in stdin_lines(_LINE_BYTES_MAX):
                    await slots.acquire()
                    task = group.create_task(self._line(line))
                    task.add_done_callback(lambda _: slots.release())
                    # Lets it be accepted, in this order, before the next one.
                    await asyncio.sleep(0)
                self._more = False
                self._show()
            await self._written()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            self._bar.close()

    async def _begin(self) -> None:
        """Wait for the first login: what is wrong with it may never become right."""
        if not self._offline:
            await self._connection.online.wait()
        self._begun = True

    def _saying_what_is_awaited(self) -> AbstractAsyncContextManager[None]:
        if not self._waits_for_ever:
            return nullcontext()
        return saying_what_is_awaited(self._connection, self._to, self._awaited)

    async def _line(self, line: bytes | None) -> None:
        self._read += 1
        place = f"line {self._read}: "
        if line is None:
            why = f"{place}longer than {_LINE_BYTES_MAX} bytes"
            await self._refused("policy-violation", why)
        else:
            try:
                message = _message_with(line.decode())
            except ValueError as error:
                await self._refused("bad-request", f"{place}{error}")
            else:
                await self._send(message, place)
        self._show()

    async def _send(self, message: ET.Element, place: str) -> None:
        connection = self._connection
        if self._level is Level.UNACKNOWLEDGED:
            await connection.online.wait()
        stanza = Message(connection.client, xml=message)  # type: ignore[no-untyped-call]
        stanza["to"] = self._to
        if self._msg_id is not None and await self._was_delivered(self._msg_id):
            return
        try:
            delivery = await connection.qos.submit(
                stanza, level=self._level, msg_id=self._msg_id
            )
        except MessageTooLarge as error:
            await self._refused("policy-violation", f"{place}{error}")
        except OutboxFull as error:
            await self._refused("resource-constraint", f"{place}{error}")
        except LocalProtocolError as error:
            await self._refused("bad-request", f"{place}{error}")
        else:
            if self._level is Level.UNACKNOWLEDGED:
                await connection.drained()
            msg_id = delivery.msg_id or ""
            self._awaited[msg_id] = None
            try:
                outcome = await delivery.outcome()
            finally:
                del self._awaited[msg_id]
            await self.results.add(outcome, to=self._to)

    def _answered(self, message: Message) -> None:
        """Report that the receiver answers a message with an error (RFC 6120 §8.3).

        A foreign queue service refuses a publish in this way. The message was delivered
        to the service, so the outcome does not show it.
        """
        if bare(str(message["from"])) == self._account:
            error = message["error"]
            text = f": {error['text']}" if error["text"] else ""
            source = message["from"]
            note(f"{source} answers with an error, {error['condition']}{text}")

    async def _was_delivered(self, msg_id: str) -> bool:
        """Whether an earlier run delivered the message; if so, print the outcome."""
        for end in self._connection.qos.store.ended(msg_id):
            if end.state is OutgoingState.DELIVERED:
                note(f"{msg_id!r} was delivered before: nothing is sent")
                seconds = end.ended_at - end.created_at
                await self.results.add(Outcome.of(end, seconds), to=self._to)
                return True
        return False

    async def _refused(self, condition: str, why: str) -> None:
        """Report a message that was not even accepted."""
        outcome = Outcome(
            status=OutgoingState.NOT_DELIVERED,
            msg_id=None,
            to=self._to,
            level=self._level,
            attempts=0,
            seconds=0.0,
            condition=condition,
        )
        await self.results.add(outcome, why=why)

    async def _written(self) -> None:
        """Wait until plain messages are written.

        They have no answer to wait for, and logging out cuts them off.
        """
        if self._level is Level.UNACKNOWLEDGED:
            await self._connection.drained(unwritten=0)

    def _show(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._bar_due_at or self.results.ended == self._read:
            self._bar_due_at = now + _BAR_INTERVAL_S
            self._bar.show(
                ended_count=self.results.ended,
                read_count=self._read,
                more=self._more,
                trouble=self.results.trouble,
            )


def _message_with(body: str) -> ET.Element:
    """A message with this body, which may be empty.

    Raises:
        ValueError: XML cannot carry it.
    """
    xml_text(body)
    message = ET.Element(f"{{{CLIENT}}}message")
    ET.SubElement(message, f"{{{CLIENT}}}body").text = body
    return message


def _message_of_json(text: str) -> ET.Element:
    try:
        payload = message_with_json(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--json: {error}") from None
    return ET.fromstring(payload)  # noqa: S314 - our own


def _message_from(path: Path, account: str) -> ET.Element:
    """The message in a file; elements without a namespace are in jabber:client.

    Raises:
        UsageError: there is no such message, or it is from another account.
    """
    try:
        message = ET.fromstring(path.read_bytes())  # noqa: S314 - the user's own
    except OSError as error:
        raise UsageError(f"--xml {path}: {error.strerror}") from None
    except (ET.ParseError, ValueError, LookupError) as error:
        raise UsageError(f"--xml {path}: not well-formed: {error}") from None
    for element in message.iter():
        if not element.tag.startswith("{"):
            element.tag = f"{{{CLIENT}}}{element.tag}"
    if message.tag != f"{{{CLIENT}}}message":
        raise UsageError(f"--xml {path}: the outermost element must be <message>")
    sender = message.attrib.pop("from", "")
    if sender and not _is_of(sender, account):
        raise UsageError(
            f"--xml {path}: the message is from {sender!r}, not from {account}: take "
            "`from` out"
        )
    return message


def _is_of(sender: str, account: str) -> bool:
    try:
        return bare(normal_jid(sender)) == account
    except ValueError:
        return False
