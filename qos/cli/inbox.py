"""`xmpp-qos inbox`: messages that wait for their release, or are parked."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from qos.cli.account import store_url
from qos.cli.listing import add_json, listing
from qos.cli.options import add_store
from qos.cli.output import note, print_json
from qos.cli.status import CommandError, Status
from qos.cli.store_records import in_full, opened, recorder_for, summary, write
from qos.core.message import receiver
from qos.core.message.effects import Save
from qos.core.message.model import Incoming, IncomingState, Level, only
from qos.core.message.receiver_table import At, ReceiverInput
from qos.errors import AmbiguousMessage
from qos.journal.recorder import Recorder
from qos.options.parser import Parser, address, sentence
from qos.stores.base import Store

__all__ = ["parser", "run"]

_EPILOG = """\
examples:
  xmpp-qos inbox list --jid lamp@example.org/1
  xmpp-qos inbox show ID --store sqlite:lamp.db
  xmpp-qos inbox drop ID --store sqlite:lamp.db --from controller@example.org
  xmpp-qos inbox list --parked --store sqlite:lamp.db
  xmpp-qos inbox release ID --store sqlite:lamp.db
  xmpp-qos inbox drop ID --force --store sqlite:lamp.db

None of these connects. list and show read the store, even while another process has it
open. release and drop change it, so that process must be stopped first.
"""

_LIST = """\
example:
  xmpp-qos inbox list --jid lamp@example.org/1

A table on a terminal, else one JSON object a line, ordered by changed_at. state: held (its
sender has not released it), releasing (released, and perhaps handed over to an application
or printed by a listen that was stopped then; it comes again at each start until it is
taken), parked (a consumer of the application has failed on it too often).
"""

_SHOW = """\
example:
  xmpp-qos inbox show 3f2c… --store sqlite:lamp.db
"""

_RELEASE = """\
example:
  xmpp-qos inbox release 3f2c… --store sqlite:lamp.db

The message is handed over again at the next start of the application, as often as a new
one. Only a parked message can be released by an operator; for others the exit status is 1.
"""

_DROP = """\
example:
  xmpp-qos inbox drop 3f2c… --store sqlite:lamp.db

The message will not be delivered. Its sender is told so when it tries to release the
message, or offers it again. (A sender that is not ours may use the ID again, for another
message.) A parked message was handed over, but its consumer failed: it is dropped.

A message that is being released may have been handed over, and the application may have
acted on it. It is only dropped with --force; without, the exit status is 1. It does not
come again. For its sender it is in doubt at level assured; at level acknowledged its sender
may have been told that it was delivered.
"""


#: The meaning of an action for a message in this state.
_INPUTS = {
    ("release", IncomingState.PARKED): ReceiverInput.RELEASE,
    ("drop", IncomingState.PARKED): ReceiverInput.DROP,
    ("drop", IncomingState.HELD): ReceiverInput.DROP,
}


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="Show messages that wait for their release by their sender, or that "
        "are parked.",
        epilog=_EPILOG,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text, epilog in (
        ("list", "list the messages, without their content", _LIST),
        ("show", "show all that is known of a message", _SHOW),
        ("release", "hand over a parked message again", _RELEASE),
        ("drop", "drop a held or parked message, or by force any", _DROP),
    ):
        action = actions.add_parser(
            name, help=text, description=sentence(text), epilog=epilog
        )
        if name == "list":
            action.add_argument(
                "--parked",
                action="store_true",
                help="list only messages on which a consumer has failed too often",
            )
            add_json(action)
        else:
            action.add_argument("id", metavar="ID", help="a msg_id, as list shows it")
            action.add_argument(
                "--from",
                dest="source",
                type=address,
                metavar="JID",
                help="its sender, if several senders have used this ID",
            )
        if name == "drop":
            action.add_argument(
                "--force",
                action="store_true",
                help="drop it even if the application may have acted on it",
            )
        add_store(action)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    to_read = arguments.action in {"list", "show"}
    async with opened(store_url(arguments), to_read=to_read) as store:
        if arguments.action == "list":
            empty = "no message is parked" if arguments.parked else "the inbox is empty"
            async with listing(arguments, empty=empty) as show:
                for record in _held(store):
                    if record.state is IncomingState.PARKED or not arguments.parked:
                        await show(summary(record))
            return Status.DONE
        record = _find(store, arguments.id, arguments.source)
        if arguments.action == "show":
            await print_json(in_full(record))
        else:
            async with recorder_for(arguments, store) as recorder:
                input_ = _input_for(record, arguments)
                await print_json(summary(await _take(store, record, input_, recorder)))
                if input_ is ReceiverInput.DROP_FORCED:
                    note(_consequences(record))
    return Status.DONE


def _held(store: Store) -> Iterator[Incoming]:
    """The messages, without the records of those that have ended."""
    for record in store.incoming():
        if not record.state.ended:
            yield record


def _find(store: Store, msg_id: str, source: str | None) -> Incoming:
    try:
        return only(_held(store), msg_id, source)
    except AmbiguousMessage as error:
        raise CommandError(
            f"{error}: choose with --from JID", Status.NOT_DELIVERED
        ) from None


def _input_for(record: Incoming, arguments: argparse.Namespace) -> ReceiverInput:
    action: str = arguments.action
    input_ = _INPUTS.get((action, record.state))
    if input_ is not None:
        return input_
    if getattr(arguments, "force", False) and record.state is IncomingState.RELEASING:
        return ReceiverInput.DROP_FORCED
    cannot = (
        "cannot be dropped: state is {}, and it may have been handed over; "
        "--force drops it all the same"
    )
    if action == "release":
        cannot = "cannot be released: state is {}, and only what is parked can"
    raise CommandError(
        f"{record.msg_id!r} {cannot.format(record.state.value)}", Status.NOT_DELIVERED
    )


def _consequences(record: Incoming) -> str:
    """The meaning of a drop by force, for the operator."""
    consequence = (
        "its sender hears that it is in doubt, or has heard that it was delivered"
    )
    if record.level is Level.ACKNOWLEDGED:
        consequence = "its sender may have heard that it was delivered"
    return (
        f"{record.msg_id!r} does not come again; the application may have acted on it, "
        f"and {consequence}"
    )


async def _take(
    store: Store,
    record: Incoming,
    input_: ReceiverInput,
    recorder: Recorder,
) -> Incoming:
    after, effects = receiver.step(record, input_, At(time.time()))
    assert after is not None
    recorder.received(after, input_, effects, None)
    for effect in effects:
        if isinstance(effect, Save):
            await write(store, effect)
    return after
