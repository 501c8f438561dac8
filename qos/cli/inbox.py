"""`xmpp-qos inbox`: what is held for its senders to release."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from qos.cli.account import store_url
from qos.cli.options import Parser, add_store, address
from qos.cli.output import print_json
from qos.cli.status import CommandError, Status
from qos.cli.stored import in_full, journal_of, opened, summary, write
from qos.core import receiver
from qos.core.effects import Save
from qos.core.model import Incoming, IncomingState, bare
from qos.core.receiver import At, ReceiverInput
from qos.errors import UnknownMessage
from qos.journal import messages as journaled
from qos.journal.writer import JournalWriter
from qos.stores.base import Store

__all__ = ["parser", "run"]

_EPILOG = """\
examples:
  xmpp-qos inbox list --jid lamp@example.org/1
  xmpp-qos inbox show ID --store sqlite:lamp.db
  xmpp-qos inbox drop ID --store sqlite:lamp.db --from controller@example.org

None of these connects. They open the store, so nobody else may have it open.
"""

_LIST = """\
example:
  xmpp-qos inbox list --jid lamp@example.org/1

One JSON object a line, by changed_at. state: held (its sender has not released it),
releasing (released, and perhaps printed by the listen that was stopped then).
"""

_SHOW = """\
example:
  xmpp-qos inbox show 3f2c… --store sqlite:lamp.db
"""

_DROP = """\
example:
  xmpp-qos inbox drop 3f2c… --store sqlite:lamp.db

It will not be delivered, and its sender learns that when it tries to release it.
One that is being released may have been handed over, and is not dropped: exit
status 1.
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="What is held until its sender releases it.",
        epilog=_EPILOG,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text, epilog in (
        ("list", "list the messages, without their content", _LIST),
        ("show", "show all that is known of a message", _SHOW),
        ("drop", "drop a message that is held", _DROP),
    ):
        action = actions.add_parser(
            name, help=text, description=text.capitalize() + ".", epilog=epilog
        )
        if name != "list":
            action.add_argument("id", metavar="ID", help="a msg_id, as list shows it")
            action.add_argument(
                "--from",
                dest="source",
                type=address,
                metavar="JID",
                help="its sender, where several have used the same ID",
            )
        add_store(action)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    async with opened(store_url(arguments)) as store:
        if arguments.action == "list":
            for record in _held(store):
                print_json(summary(record))
            return Status.DONE
        record = _find(store, arguments.id, arguments.source)
        if arguments.action == "show":
            print_json(in_full(record))
        else:
            async with journal_of(arguments, store) as journal:
                print_json(summary(await _drop(store, record, journal)))
    return Status.DONE


def _held(store: Store) -> Iterator[Incoming]:
    """The messages; what is remembered of those that have ended is not one."""
    for record in store.incoming():
        if record.state in {IncomingState.HELD, IncomingState.RELEASING}:
            yield record


def _find(store: Store, msg_id: str, source: str | None) -> Incoming:
    found = [
        record
        for record in _held(store)
        if record.msg_id == msg_id
        and source in {None, record.source, bare(record.source)}
    ]
    if not found:
        raise UnknownMessage(msg_id)
    if len(found) > 1:
        senders = ", ".join(sorted({record.source for record in found}))
        raise CommandError(
            f"{len(found)} messages have the id {msg_id!r}, from {senders}: "
            "choose with --from JID",
            Status.NOT_DELIVERED,
        )
    return found[0]


async def _drop(
    store: Store, record: Incoming, journal: JournalWriter | None
) -> Incoming:
    if record.state is not IncomingState.HELD:
        raise CommandError(
            f"{record.msg_id!r} cannot be dropped: state is {record.state.value}, and "
            "it may have been handed over",
            Status.NOT_DELIVERED,
        )
    at = At(time.time())
    expire = ReceiverInput.EXPIRE
    dropped, effects = receiver.step(record, expire, at)
    assert dropped is not None
    if journal is not None:
        journal.note(*journaled.received(dropped, expire, effects, None))
    for effect in effects:
        if isinstance(effect, Save):
            await write(store, effect)
    return dropped
