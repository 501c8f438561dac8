"""`xmpp-qos outbox`: messages that were sent and have not ended."""

from __future__ import annotations

import argparse
import asyncio
import time
from operator import attrgetter

from qos.cli.account import account_from, store_url
from qos.cli.connection import Connection
from qos.cli.listing import add_json, listing
from qos.cli.options import add_connection, add_store
from qos.cli.outcomes import Results, attended
from qos.cli.output import note, print_json
from qos.cli.status import Status
from qos.cli.store_records import in_full, opened, recorder_for, summary, write
from qos.core.backoff import Backoff
from qos.core.message import sender
from qos.core.message.effects import End
from qos.core.message.model import Ended, Outgoing
from qos.core.message.sender_table import At, SenderInput
from qos.engine import Delivery, Outcome
from qos.errors import UnknownMessage
from qos.journal.recorder import Recorder
from qos.options.parser import Parser, sentence
from qos.stores.base import Store

__all__ = ["parser", "run"]

_EPILOG = """\
examples:
  xmpp-qos outbox list --jid controller@example.org
  xmpp-qos outbox show ID --store sqlite:controller.db
  xmpp-qos outbox withdraw ID --store sqlite:controller.db
  xmpp-qos outbox resend --jid controller@example.org

Only resend connects. list and show read the store, even while another process has it
open. withdraw and resend change it, so that process must be stopped first.
"""

_LIST = """\
example:
  xmpp-qos outbox list --jid controller@example.org

A table on a terminal, else one JSON object a line, oldest first. state: queued (never
sent), offered (sent, not answered), releasing (the receiver holds the message and may have
acted on it); with --ended: delivered, not delivered, in doubt. The outcome of a message is
kept for a day, and only for the last 10,000 messages.
"""

_SHOW = """\
example:
  xmpp-qos outbox show 3f2c… --store sqlite:controller.db

For a message that has ended: its outcome, as long as that is kept. See list --ended.
"""

_WITHDRAW = """\
example:
  xmpp-qos outbox withdraw 3f2c… --store sqlite:controller.db

Prints the outcome, not delivered, in the form that send uses. A message that may have
been delivered is not withdrawn: exit status 1.
"""

_RESEND = """\
example:
  xmpp-qos outbox resend --jid controller@example.org

Continues with the messages that an interrupted send has left, and ends when all of them
have ended. Output and exit status are those of send. With IDs the command waits for these
messages only, though others may go out too.
"""


_EMPTY = "the outbox is empty"


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="Show or change messages that were sent and have not ended yet.",
        epilog=_EPILOG,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text, epilog, ids in (
        ("list", "list the messages, without their content", _LIST, None),
        ("show", "show all that is known of a message", _SHOW, 1),
        ("withdraw", "withdraw a message", _WITHDRAW, 1),
        ("resend", "connect, and finish the outstanding messages", _RESEND, "*"),
    ):
        action = actions.add_parser(
            name, help=text, description=sentence(text), epilog=epilog
        )
        if ids is not None:
            action.add_argument(
                "ids", nargs=ids, metavar="ID", help="a msg_id, as list shows it"
            )
        if name == "list":
            action.add_argument(
                "--ended",
                action="store_true",
                help="list messages that have ended, with their outcomes",
            )
            add_json(action)
        if name == "resend":
            add_connection(action, receives=False)
        else:
            add_store(action)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    if arguments.action == "resend":
        return await _resend(arguments)
    to_read = arguments.action in {"list", "show"}
    async with opened(store_url(arguments), to_read=to_read) as store:
        if arguments.action == "list":
            messages = store.ended() if arguments.ended else store.outgoing()
            empty = "no message that has ended is kept" if arguments.ended else _EMPTY
            async with listing(arguments, empty=empty) as show:
                for message in messages:
                    await show(summary(message))
            return Status.DONE
        msg_id = arguments.ids[0]
        if arguments.action == "show" and store.find_outgoing(msg_id) is None:
            await print_json(summary(_find_ended(store, msg_id)))
            return Status.DONE
        record = _find(store, msg_id)
        if arguments.action == "show":
            await print_json(in_full(record))
        else:
            async with recorder_for(arguments, store) as recorder:
                await _withdraw(store, record, recorder)
    return Status.DONE


def _find(store: Store, msg_id: str) -> Outgoing:
    record = store.find_outgoing(msg_id)
    if record is None or record.state.ended:
        raise UnknownMessage(msg_id)
    return record


def _find_ended(store: Store, msg_id: str) -> Ended:
    """The ended message with this id; of several, the one that was accepted last."""
    ends = list(store.ended(msg_id))
    if not ends:
        raise UnknownMessage(msg_id)
    return ends[-1]


async def _withdraw(store: Store, record: Outgoing, recorder: Recorder) -> None:
    """Withdraw a message by the rules of the sender.

    The message is withdrawn only if it is certainly not delivered.
    """
    now = time.time()
    at = At(now=now, jitter=0.0, backoff=Backoff(), new_id=str, remember=True)
    withdraw = SenderInput.WITHDRAW
    result, effects = sender.step(sender.resumed(record, now), withdraw, at)
    recorder.sent(result, withdraw, effects)
    for effect in effects:
        if isinstance(effect, End):
            await write(store, effect)
    await Results().add(Outcome.of(result, now - result.created_at), why="withdrawn")


async def _resend(arguments: argparse.Namespace) -> int:
    account = account_from(arguments)
    async with Connection(account, receives=False) as connection:
        qos = connection.qos
        msg_ids = arguments.ids or map(attrgetter("msg_id"), qos.store.outgoing())
        # All of them are asked for now: one that ends earlier would be unknown later.
        deliveries = [qos.delivery(msg_id) for msg_id in dict.fromkeys(msg_ids)]
        if not deliveries:
            note(_EMPTY)
            return Status.DONE
        results = Results()
        await attended(connection, _wait_for(deliveries, results))
        return results.status


async def _wait_for(deliveries: list[Delivery], results: Results) -> None:
    async def one(delivery: Delivery) -> None:
        await results.add(await delivery.outcome())

    await asyncio.gather(*map(one, deliveries))
