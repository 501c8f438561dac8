"""The facts about each message: hand-overs and outcomes, as applications see them.

It records them, and lets the invariants judge. It knows nothing of machines.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Set
from dataclasses import dataclass, field

from qos.core.message.model import Incoming, IncomingState, Level, OutgoingState
from qos.core.strings import bare
from simulation import invariants
from simulation.plan import PlannedMessage

__all__ = ["HandOver", "Ledger", "MessageFacts"]


@dataclass(frozen=True, slots=True)
class HandOver:
    """A message given to the application.

    Attributes:
        machine: of the receiver.
        process: the number of the process (1: the first).
        redelivered: with the mark.
        begun: its hand-over had begun when this process was started.
        hold: its token; '' if the sender knows none.
    """

    machine: str
    process: int
    redelivered: bool
    begun: bool
    hold: str = ""


@dataclass(slots=True)
class MessageFacts:
    """The facts about a message, as its applications see it.

    Attributes:
        planned: from the plan.
        msg_id: its id; '' until its sender knows it.
        order: its place in the order of submission.
        at: when it was given to its sender's endpoint.
        accepted: True: accepted; False: certainly not; None: nobody was told.
        unsure: it was not, but may be after a restart.
        handed: the hand-overs that have begun.
        taken: how many of them the application has reported as done.
        consumed: its receiver has a consumer for it.
        parked: a loop has had it parked.
        fails: how many times the consumer is still to fail.
        handovers: how many the consumer has begun since the message was released.
        taken_back: its sender has tried to withdraw it.
        withdrawn: and was told that it is withdrawn.
        rejected: how many of the hand-overs the application has rejected.
        dropped: the receivers where an operator has dropped it by force.
        turned_away: its receiver has refused it at level acknowledged.
        taken_again: the receivers that have taken it after a restart.
        told: the outcome that its sender was told.
        told_at: when.
        answered: the client that has posted it knows that it is accepted.
    """

    planned: PlannedMessage
    order: int
    at: float
    msg_id: str = ""
    accepted: bool | None = None
    unsure: bool = False
    handed: list[HandOver] = field(default_factory=list)
    taken: int = 0
    consumed: bool = False
    parked: bool = False
    fails: int = 0
    handovers: int = 0
    taken_back: bool = False
    withdrawn: bool = False
    rejected: int = 0
    turned_away: bool = False
    dropped: set[str] = field(default_factory=set)
    taken_again: set[str] = field(default_factory=set)
    told: OutgoingState | None = None
    told_at: float = 0.0
    answered: bool = False

    def __str__(self) -> str:
        return f"message {self.planned.number}"

    @property
    def flow(self) -> tuple[str, str]:
        """The sender and receiver within which its order counts."""
        return self.planned.sender, bare(self.planned.to)


class Ledger:
    """All facts about messages.

    Attributes:
        messages: by number.
        distrusted: the senders whom no receiver trusts.
        open_levels: the levels at which messages of everybody are accepted.
        wiped: a receiver has lost its disk.
        expired: the ids of messages that were held for the longest allowed time.
        repeated: machines whose stanzas the network has delivered more than once.
        moved: machines that came back under another resource.
        jumped: machines whose clock was set.
        aged: those of them whose clock was set forward, by a time that may have passed.
        hold_ttl_s: how long a receiver holds a message.
        io_errors: machines whose disk has failed with EIO.
        violations: in the order of their coming.
    """

    def __init__(self, now: Callable[[], float], repeated: Set[str]) -> None:
        self.now = now
        self.repeated = repeated
        self.messages: dict[int, MessageFacts] = {}
        self.distrusted: Set[str] = frozenset()
        self.open_levels: Set[Level] = frozenset()
        self.wiped = False
        self.expired: set[str] = set()
        self.moved: set[str] = set()
        self.jumped: set[str] = set()
        self.aged: set[str] = set()
        self.hold_ttl_s = 0.0
        self.io_errors: set[str] = set()
        self._holds: dict[str, tuple[str, ...]] = {}
        #: When it was decided to hold a message under each hold, by the true time.
        self._held_at: dict[str, float] = {}
        self._orders = itertools.count()
        self._released: set[tuple[str, str]] = set()
        self.violations: list[invariants.Violation] = []

    def check(self, invariant: Callable[..., str | None], *args: object) -> None:
        """Record a violation, if it is one."""
        detail = invariant(*args)
        if detail:
            self.violations.append(invariants.Violation.of(invariant, detail))

    # -- messages ----------------------------------------------------------

    def planned(self, planned: PlannedMessage) -> MessageFacts:
        """An application begins to send it."""
        facts = MessageFacts(
            planned, order=next(self._orders), at=self.now(), fails=planned.fails
        )
        self.messages[planned.number] = facts
        return facts

    def tries(self, facts: MessageFacts) -> None:
        """Note that it is submitted, perhaps not for the first time."""
        facts.order = next(self._orders)

    def accepted(self, facts: MessageFacts) -> None:
        """Its sender's endpoint has it."""
        facts.accepted = True
        facts.unsure = False

    def accepts(self, facts: MessageFacts) -> None:
        """Its sender's endpoint is about to accept what was posted."""
        self.check(invariants.accepted_once, facts)

    def refused(self, facts: MessageFacts) -> None:
        """Its sender's endpoint does not have it."""
        if facts.accepted is None:
            facts.accepted = False
            self.check(invariants.nothing_of_what_was_refused, facts)

    def unsure(self, facts: MessageFacts) -> None:
        """Its sender's endpoint does not have it, but may after a restart."""
        facts.unsure = True
        self.check(invariants.nothing_of_what_was_refused, facts)

    def held(self, hold: str, message: tuple[str, ...]) -> None:
        """A receiver has said that it holds this message under this token."""
        before = self._holds.setdefault(hold, message)
        self.check(invariants.a_hold_is_of_one, hold, before, message)

    def released(self, msg_id: str, hold: str) -> None:
        """A `deliver` has come to a receiver."""
        self._released.add((msg_id, hold))

    def handed(self, facts: MessageFacts, hand_over: HandOver) -> None:
        """Note that it is given to the receiving application."""
        facts.handed.append(hand_over)
        if hand_over.hold:
            released = (facts.msg_id, hand_over.hold) in self._released
            self.check(invariants.only_what_is_released, facts, released)
        self.check(invariants.once_without_the_mark, facts, self)
        self.check(invariants.again_only_after_a_restart, facts)
        if not (facts.consumed and self.wiped):
            # A message that waits for its consumer has a place, which is lost with the
            # disk.
            self.check(invariants.in_order, facts, list(self.messages.values()))
        self.check(invariants.nothing_of_what_was_refused, facts)
        self.check(invariants.nothing_of_a_stranger, facts, self)
        self.check(invariants.dropped_for_good, facts, self)
        self.check(invariants.never_what_is_not_delivered, facts, self)
        self.check(invariants.withdrawn_is_not_delivered, facts, self)

    def sent(self, payload: str) -> MessageFacts | None:
        """The message that is to be handed over; None: nobody has sent it."""
        known = any(f"<body>{number}</body>" in payload for number in self.messages)
        if not known:
            self.check(invariants.only_what_was_sent, payload)
        return self.of(payload) if known else None

    def of(self, payload: str) -> MessageFacts:
        """The facts about the message with this payload."""
        number = payload.partition("<body>")[2].partition("<")[0]
        return self.messages[int(number)]

    def written(self, sql: str) -> None:
        """The effect of a consumer is on disk; `sql` begins with its message's number."""
        number, *fails = sql.split()
        facts = self.messages[int(number)]
        facts.taken += 1
        if fails:
            self.check(invariants.undone_if_it_fails, facts)
        self.check(invariants.consumed_once, facts)

    def kept(self, record: Incoming, decided_s: float) -> None:
        """A receiver has written something of a message.

        Args:
            record: is on disk now.
            decided_s: how long ago the receiver has taken the message, by its own clock.
        """
        if record.payload and (facts := self.sent(record.payload)):
            self.check(invariants.nothing_kept_for_a_stranger, facts, self)
        # A write waits for a slow disk, or for a transaction of an application, and for a
        # stop of the process in between. A clock that was set back proves nothing.
        decided_at = self.now() - max(0.0, decided_s)
        held_at = self._held_at.setdefault(record.hold, decided_at)
        if record.state is IncomingState.EXPIRED:
            self.check(invariants.held_for_its_time, self, self.now() - held_at)

    def took(self, facts: MessageFacts) -> None:
        """The application has reported that it has it."""
        facts.taken += 1

    def dropped(self, record: Incoming, machine: str) -> None:
        """An operator has dropped it by force at a receiver that does not run."""
        self.of(record.payload).dropped.add(machine)

    def rejected(self, facts: MessageFacts, *, told: bool) -> None:
        """The application has rejected it.

        Args:
            facts: of the message.
            told: whether its sender can be told; if not, it is told that it was
                delivered.
        """
        facts.rejected += 1
        if not told:
            self.took(facts)

    def told(self, facts: MessageFacts, outcome: OutgoingState) -> None:
        """Its sender has been told its outcome."""
        before, facts.told = facts.told, outcome
        facts.told_at = self.now()
        if before not in {None, outcome}:
            self.check(invariants.one_outcome, facts, before)
        self.check(invariants.delivered_was_taken, facts, self)
        self.check(invariants.never_what_is_not_delivered, facts, self)
        self.check(invariants.withdrawn_is_not_delivered, facts, self)
        self.check(invariants.not_delivered_has_a_cause, facts, self)
        self.check(invariants.doubt_has_a_cause, facts, self)

    def withdrawn(self, facts: MessageFacts) -> None:
        """Its sender has been told that it is withdrawn."""
        facts.withdrawn = True
        self.check(invariants.withdrawn_is_not_delivered, facts, self)

    def forgotten(self, facts: MessageFacts) -> None:
        """Its sender asks for the outcome, and there is none."""
        self.check(invariants.an_outcome_is_kept, facts)

    def untold(self, sender: str) -> list[MessageFacts]:
        """The messages whose outcome a sender waits for."""
        return [
            each
            for each in self.messages.values()
            if each.planned.sender == sender
            and each.told is None
            and each.accepted is not False
            and each.planned.level is not Level.UNACKNOWLEDGED
        ]

    def number_for(self, sender: str) -> str:
        """The msgId of a device that counts from 1, and begins again.

        Never that of a message that somebody may still hold under it.
        """
        used = {
            each.msg_id
            for each in self.messages.values()
            if each.planned.sender == sender
            and (
                each.told is not OutgoingState.DELIVERED
                or sender in self.moved
                or "/" not in each.planned.to
            )
        }
        return next(str(n) for n in range(1, len(used) + 2) if str(n) not in used)

    def left(self) -> list[str]:
        """The messages that have not ended, in words."""
        found = []
        for facts in self.messages.values():
            if facts.planned.posted and not facts.answered:
                found.append(f"{facts} is posted, and there is no answer")
            if facts.told is None and facts.accepted:
                found.append(f"{facts} has no outcome")
            if (
                facts.told is OutgoingState.DELIVERED
                and not facts.taken
                and not self.wiped
            ):
                found.append(f"{facts} is delivered, and nobody has it")
        return found
