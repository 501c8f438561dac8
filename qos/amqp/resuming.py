"""Resuming a link to a consumer: the deliveries that both ends have not settled (messaging §3.4.6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from qos.amqp.unsettled import Sent
from qos.core.amqp.delivery_states import (
    PeerOutcome,
    PeerState,
    state_of,
    write_unsettled,
)
from qos.core.amqp.frame_parts import Attach, AttachAnswer
from qos.core.amqp.resuming import ABSENT, Absent, Resumption, State, Step, resume
from qos.core.queue.item import Item, ItemOutcome

__all__ = ["Resuming"]

#: What becomes of a delivery that is settled without an outcome.
_FAILED = PeerOutcome(ItemOutcome.MODIFIED, delivery_failed=True)


@dataclass(slots=True)
class Resuming:
    """The unsettled deliveries of an earlier link, until each is resumed or ended.

    Attributes:
        attach: the attach of the peer.
        ready: it is answered.
        only: new deliveries have to wait for the next attach, since one of the maps is
            incomplete (transport §2.7.3).
        before: the deliveries that were not settled when the earlier link ended.
        again: those that are locked still: their items and payloads, by token.
    """

    attach: Attach | None
    ready: bool = True
    only: bool = False
    before: Sent = field(default_factory=dict)
    again: dict[str, tuple[Item, str]] = field(default_factory=dict)

    @property
    def default(self) -> PeerOutcome:
        """The outcome of a delivery that the consumer settles without one."""
        return self.asked_default or _FAILED

    @property
    def asked_default(self) -> PeerOutcome | None:
        """The default outcome that the consumer asks for."""
        return None if self.attach is None else self.attach.default_outcome

    @property
    def resumes(self) -> bool:
        """Whether the peer tells what it has not settled."""
        return self.attach is not None and self.attach.unsettled is not None

    def unsettled(self) -> Sent:
        """All these deliveries."""
        return {**self.before, **dict.fromkeys(self.again)}

    def states(self) -> dict[str, State]:
        """The state of each delivery here, by token."""
        # What is not locked any more, and was not settled by its consumer, has failed.
        failures: dict[str, State] = {
            token: outcome or ItemOutcome.MODIFIED
            for token, outcome in self.before.items()
            if token not in self.again
        }
        return {**dict.fromkeys(self.again), **failures}

    def answer(self, states: dict[str, State]) -> AttachAnswer:
        """Our map for the answering attach, if the peer has one."""
        if self.attach is None or not self.resumes:
            return AttachAnswer()
        entries = {token.encode(): state for token, state in states.items()}
        unsettled, incomplete = write_unsettled(entries, self.attach.room)
        self.only = incomplete or self.attach.incomplete
        return AttachAnswer(unsettled, incomplete)

    def state_at_peer(self, token: str) -> PeerState | Absent:
        """The entry of the peer."""
        theirs = None if self.attach is None else self.attach.unsettled
        return ABSENT if theirs is None else theirs.get(token.encode(), ABSENT)

    def step(self, token: str, state: State) -> Resumption | None:
        """The next step of a delivery; None: not known before the next attach."""
        peer_state = self.state_at_peer(token)
        if isinstance(peer_state, Absent):
            return None if self.only else resume(state, peer_state)
        step = resume(state, state_of(peer_state))
        # We hold whole messages, or none: nothing of ours begins in the middle.
        assert step.step is not Step.ABORT_AND_SEND
        return step
