"""A model of a store: what is in it after these changes, if nothing ever fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from qos.core.message.effects import End, Save
from qos.core.message.model import Ended, Incoming, Outgoing, OutgoingState
from qos.stores.base import Change, ForgetEnded, Remember, stored

__all__ = ["Model", "State", "outcomes"]

#: The outbox, the inbox, the messages that have ended, and the remembered values.
State: TypeAlias = tuple[list[Outgoing], list[Incoming], list[Ended], dict[str, str]]


def outcomes(before: Sequence[Change], changes: Sequence[Change]) -> list[State]:
    """The two possible contents: before the changes, and after them."""
    model = Model()
    model.make(before)
    first = model.state()
    model.make(changes)
    return [first, model.state()]


class Model:
    """A store as it would be without disks."""

    def __init__(self) -> None:
        self.outgoing: dict[int, Outgoing] = {}
        self.ended: dict[int, Ended] = {}
        self.incoming: dict[str, Incoming] = {}
        self.remembered: dict[str, str] = {}

    def make(self, changes: Sequence[Change]) -> None:
        """Make these changes, in their order."""
        for change in changes:
            if isinstance(change, Remember):
                self.remembered[change.name] = change.value
            elif isinstance(change, ForgetEnded):
                for seq, end in list(self.ended.items()):
                    if end.ended_at <= change.before or seq < change.below:
                        del self.ended[seq]
            elif isinstance(change, End):
                self.outgoing.pop(change.ended.seq, None)
                self.ended[change.ended.seq] = change.ended
            elif isinstance(change.record, Incoming):
                self.incoming.pop(change.record.key, None)
                if isinstance(change, Save):
                    self.incoming[change.record.key] = stored(change.record)
            else:
                self.outgoing.pop(change.record.seq, None)
                if isinstance(change, Save):
                    self.outgoing[change.record.seq] = stored(change.record)

    def state(self) -> State:
        """All that there is, in the order of a store."""
        return (
            sorted(self.outgoing.values(), key=lambda record: record.seq),
            sorted(self.incoming.values(), key=lambda r: (r.changed_at, r.key)),
            sorted(self.ended.values(), key=lambda end: end.seq),
            dict(self.remembered),
        )

    def queued(self) -> list[Outgoing]:
        """The messages that are queued, by seq."""
        records, *_ = self.state()
        return [r for r in records if r.state is OutgoingState.QUEUED]

    def expiring(self, now: float) -> list[Outgoing]:
        """The queued messages that have expired, earliest first."""
        entries = [
            (record.expires_at, record.seq, record)
            for record in self.queued()
            if record.expires_at is not None and record.expires_at <= now
        ]
        return [record for _, _, record in sorted(entries, key=lambda item: item[:2])]
