"""The operator of a receiver that does not run: `xmpp-qos inbox drop --force`."""

from __future__ import annotations

from collections.abc import Callable

from qos.core.message import receiver
from qos.core.message.effects import Save
from qos.core.message.model import Incoming, IncomingState
from qos.core.message.receiver_table import At, ReceiverInput
from simulation.disks import MessageDisk

__all__ = ["drop_by_force"]


def drop_by_force(
    disk: MessageDisk, now: float, dropped: Callable[[Incoming], None]
) -> bool:
    """Drop all that was in hand, of senders that know our marks.

    Any other sender may use a msgId again, so that nothing could be said of what comes.

    Args:
        disk: of the receiver; no process has it open.
        now: the time of its machine.
        dropped: called with each message.

    Returns:
        Whether there was any.
    """
    disk.recover()
    in_hand = [
        record
        for record in disk.kept.incoming()
        if record.state is IncomingState.RELEASING and record.mark
    ]
    for record in in_hand:
        _, effects = receiver.step(record, ReceiverInput.DROP_FORCED, At(now))
        disk.apply([each for each in effects if isinstance(each, Save)])
        dropped(record)
    return bool(in_hand)
