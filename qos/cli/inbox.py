"""`xmpp-qos inbox`: messages that wait for their release, or are parked."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from qos.cli.account import store_url
from qos.cli.options import add_store
from qos.cli.output import print_json
from qos.cli.status import CommandError, Status
from qos.cli.stored import in_full, opened, recorder_for, summary, write
from qos.core.message import receiver
from qos.core.message.effects import Save
from qos.core.message.model import Incoming, IncomingState, only
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

None of these connects. list and show read the store, even while another process has it
open. release and drop change it, so that process must be stopped first.
"""

_LIST = """\
example:
  xmpp-qos inbox list --jid lamp@example.org/1

One JSON object a line, ordered by changed_at. state: held (its sender has not released
it), releasing (released, and perhaps printed by a listen that was stopped then), parked
(a consumer of the application has failed on it too often).
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
message.) A message that is being released may have been handed over, and is not dropped:
exit status 1. A parked message was handed over, but its consumer failed: it is dropped.
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
        ("drop", "drop a held or parked message", _DROP),
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
        else:
            action.add_argument("id", metavar="ID", help="a msg_id, as list shows it")
            action.add_argument(
                "--from",
                dest="source",
                type=address,
                metavar="JID",
                help="its sender, if several senders have used this ID",
            )
        add_store(action)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    to_read = arguments.action in {"list", "show"}
    async with opened(store_url(arguments), to_read=to_read) as store:
        if arguments.action == "list":
            for record in _held(store):
                if record.state is IncomingState.PARKED or not arguments.parked:
                    await print_json(summary(record))
            return Status.DONE
        record = _find(store, arguments.id, arguments.source)
        if arguments.action == "show":
            await print_json(in_full(record))
        else:
            async with recorder_for(arguments, store) as recorder:
                input_ = _input_for(record, arguments.action)
                await print_json(summary(await _take(store, record, input_, recorder)))
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


def _input_for(record: Incoming, action: str) -> ReceiverInput:
    input_ = _INPUTS.get((action, record.state))
    if input_ is not None:
        return input_
    cannot = "cannot be dropped: state is {}, and it may have been handed over"
    if action == "release":
        cannot = "cannot be released: state is {}, and only what is parked can"
    raise CommandError(
        f"{record.msg_id!r} {cannot.format(record.state.value)}", Status.NOT_DELIVERED
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
