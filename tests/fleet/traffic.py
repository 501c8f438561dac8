"""Messages of a made-up fleet: the lines of their senders and receivers.

Written only from the documented schema of the journal: it imports nothing of the
product.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from nodes import SECOND, Away, Node, account

__all__ = ["Message", "Traffic"]

HOUR = 3600 * SECOND

#: An answer that takes longer finds the node away: the request is repeated later.
ANSWER_MAX = 30 * SECOND


@dataclass(frozen=True, slots=True)
class Message:
    """A message and its two ends; `to` is as it was addressed."""

    number: int
    msg_id: str
    level: str
    sender: Node
    receiver: Node
    to: str
    size: int

    @property
    def account(self) -> str:
        return account(self.sender.address(self.number))

    def sends(self, time: int, event: str, **more: str | int) -> int:
        """Its sender notes this as soon as it runs; returns the time."""
        return self.sender.note(time, "sender", event, **self._common, **more)

    def gets(self, time: int, event: str, **more: str | int) -> int:
        """The same for its receiver."""
        return self.receiver.note(time, "receiver", event, **self._common, **more)

    @property
    def _common(self) -> dict[str, str | int]:
        return {
            "level": self.level,
            "msg_id": self.msg_id,
            "source": self.sender.address(self.number),
            "to": self.to,
        }


class Traffic:
    """Messages between nodes; strangers are nodes without a journal here."""

    def __init__(
        self,
        chance: random.Random,
        nodes: Sequence[Node],
        strangers: Sequence[Node],
        patient: Sequence[Node],
        shifts: Sequence[tuple[int, int]],
    ) -> None:
        self._chance = chance
        self._nodes = nodes
        self._strangers = strangers
        self._patient = patient
        self._shifts = shifts
        self._count = 0

    def normal(self) -> None:
        """A message that goes well, or is refused, withdrawn or still in flight."""
        draw = self._chance.random()
        message = self._message()
        # A node that is away at the end leaves the message in flight.
        with suppress(Away):
            if draw < 0.68:
                self._exchange(message, self._start())
            elif draw < 0.74:
                message = self._between_patient(message)
                self._exchange(message, self._start(last=False), wait_s=30 * 3600)
            elif draw < 0.80:
                self._acknowledged(replace(message, level="acknowledged"))
            elif draw < 0.84:
                self._withdrawn(message)
            elif draw < 0.87:
                self._not_delivered(message)
            elif draw < 0.90:
                self._refused(message)
            elif draw < 0.94:
                receiver = self._chance.choice(self._nodes)
                to = receiver.address(message.number)
                message = replace(message, receiver=receiver, to=to)
                self._reused_id(self._of_stranger(message))
            else:
                # It may be held for hours before the stranger releases it.
                message = self._of_stranger(self._between_patient(message))
                self._exchange(message, self._start(last=False), wait_s=10 * 3600)

    def faulty(self, kind: str) -> Message:
        """A message that goes wrong in this way."""
        message = self._message()
        if kind == "duplicated" and self._chance.random() < 0.3:
            message = self._of_stranger(self._between_patient(message))
        # Early enough to have time to see stuck messages.
        time = self._start(until=2 * HOUR)
        if kind == "stuck" and self._chance.random() < 0.7:
            # Nor is its node restarted after that.
            time = self._shifts[-1][0] + self._delay(2 * 3600)
        with suppress(Away):
            if kind == "lost":
                self._exchange(message, time, hand_overs=0)
            elif kind == "duplicated":
                self._exchange(message, time, hand_overs=2)
            elif kind == "orphaned":
                time = message.gets(time, "held", bytes=message.size)
                self._hand_over(message, time + self._delay())
            elif kind == "stuck":
                self._stuck(message, time)
            else:
                self._in_doubt(message, time)
        return message

    # -- what may happen to a message --------------------------------------

    def _exchange(
        self, message: Message, time: int, *, wait_s: float = 0, hand_overs: int = 1
    ) -> None:
        """Both ends of an assured message, including the repeats after restarts.

        Args:
            message: the message.
            time: when it begins.
            wait_s: the longest time until it is released.
            hand_overs: how often it is handed over without a mark.
        """
        time = message.sends(time, "accepted", bytes=message.size)
        attempt, time = self._hold(message, time)
        time += self._delay(wait_s or 1)
        handed_over = False
        answered = False
        while not answered:
            attempt += 1
            time = message.sends(time + self._delay(), "released", attempt=attempt)
            arrival = message.receiver.running(time + self._delay())
            if arrival - time < ANSWER_MAX and not handed_over:
                arrival = self._hand_over(message, arrival, hand_overs)
                handed_over = True
            time, answered = self._answer(message, time, arrival)
        message.sends(time, "delivered", attempt=attempt)

    def _hold(self, message: Message, time: int) -> tuple[int, int]:
        """Until the sender knows that it is held.

        The number of attempts, and the time.
        """
        attempt = 0
        held = answered = False
        while not answered:
            attempt += 1
            time = message.sends(time + self._delay(), "offered", attempt=attempt)
            if self._chance.random() < 0.1:  # the stanza is lost
                time += self._delay(60)
                continue
            arrival = message.receiver.running(time + self._delay())
            if arrival - time < ANSWER_MAX and not held:
                arrival = message.gets(arrival, "held", bytes=message.size)
                held = True
            time, answered = self._answer(message, time, arrival)
        return attempt, message.sends(time, "received")

    def _answer(self, message: Message, asked: int, sent: int) -> tuple[int, bool]:
        """The time at which the sender continues, and whether it has got an answer."""
        time = message.sender.running(sent + self._delay())
        same_boot = message.sender.boot_at(time) is message.sender.boot_at(asked)
        return time, same_boot and sent - asked < ANSWER_MAX

    def _hand_over(self, message: Message, time: int, hand_overs: int = 1) -> int:
        """The steps of the receiver after `deliver`.

        Returns the time when it was done.
        """
        time = message.gets(time, "released")
        for _ in range(hand_overs):
            time = message.gets(time + self._delay(), "handed-over")
        while hand_overs:
            begun = message.receiver.boot_at(time)
            time = message.receiver.running(time + self._delay())
            if message.receiver.boot_at(time) is begun:
                break
            # It died before the message was done: handed over again, and marked.
            time = message.gets(time, "redelivered")
        return message.gets(time, "done")

    def _acknowledged(self, message: Message) -> None:
        time = message.sends(self._start(), "accepted", bytes=message.size)
        time = message.sends(time + self._delay(), "offered", attempt=1)
        time = message.gets(time + self._delay(), "released", bytes=message.size)
        time = message.gets(time + self._delay(), "handed-over")
        time = message.gets(time + self._delay(), "done")
        message.sends(time + self._delay(), "delivered", attempt=1)

    def _withdrawn(self, message: Message) -> None:
        time = message.sends(self._start(), "accepted", bytes=message.size)
        if self._chance.random() < 0.5:
            attempt, time = self._hold(message, time)
            time = message.sends(time + self._delay(), "withdrawn", attempt=attempt)
            message.gets(time + self._delay(600), "expired")
        else:
            message.sends(time + self._delay(60), "withdrawn", attempt=0)

    def _not_delivered(self, message: Message) -> None:
        time = message.sends(self._start(), "accepted", bytes=message.size)
        time = message.sends(time + self._delay(), "offered", attempt=1)
        condition = self._chance.choice(("service-unavailable", "resource-constraint"))
        time += self._delay()
        message.sends(time, "not-delivered", attempt=1, condition=condition)

    def _refused(self, message: Message) -> None:
        """Refused at first, and then accepted."""
        time = self._start()
        message.gets(
            time, "refused", bytes=message.size, condition="resource-constraint"
        )
        self._exchange(message, time + self._delay(60))

    def _reused_id(self, message: Message) -> None:
        """A stranger uses a msgId again after it has been delivered."""
        time = self._start()
        for _ in range(self._chance.choice((2, 3))):
            time = message.gets(time, "held", bytes=message.size)
            time = self._hand_over(message, time + self._delay())
            time += self._delay(3 * 3600)

    def _stuck(self, message: Message, time: int) -> None:
        """A message that stays in the outbox, or is never released."""
        time = message.sends(time, "accepted", bytes=message.size)
        if self._chance.random() < 0.5:
            self._hold(message, time)
        else:
            message.sends(time + self._delay(), "offered", attempt=1)

    def _in_doubt(self, message: Message, time: int) -> None:
        time = message.sends(time, "accepted", bytes=message.size)
        attempt, time = self._hold(message, time)
        time = message.sends(time + self._delay(), "released", attempt=attempt + 1)
        if self._chance.random() < 0.5:
            self._hand_over(message, time + self._delay())
        else:
            message.gets(time + self._delay(600), "expired")
        time += self._delay(600)
        message.sends(time, "in-doubt", attempt=attempt + 1, condition="deadline")

    # -- chances -------------------------------------------------------------

    def _message(self) -> Message:
        sender, receiver = self._chance.sample(self._nodes, 2)
        while receiver.jid == sender.jid:
            receiver = self._chance.choice(self._nodes)
        self._count += 1
        to = receiver.address(self._count)
        if "@" in to and self._chance.random() < 0.2:
            to = account(to)
        if self._chance.random() < 0.05:
            receiver = self._chance.choice(self._strangers)
            to = receiver.jid
        msg_id = f"m{self._count}-{self._chance.getrandbits(32):08x}"
        size = self._chance.randint(1, 5000)
        return Message(self._count, msg_id, "assured", sender, receiver, to, size)

    def _between_patient(self, message: Message) -> Message:
        """The same, but between two nodes that may wait for hours."""
        sender, receiver = self._chance.sample(self._patient, 2)
        to = receiver.address(message.number)
        return replace(message, sender=sender, receiver=receiver, to=to)

    def _of_stranger(self, message: Message) -> Message:
        """The same, but from a stranger."""
        return replace(message, sender=self._chance.choice(self._strangers))

    def _start(self, *, until: int | None = None, last: bool = True) -> int:
        """A time within a shift: near its beginning, or not in the last shift."""
        begin, end = self._chance.choice(self._shifts if last else self._shifts[:-1])
        return self._chance.randint(begin, end if until is None else begin + until)

    def _delay(self, most_s: float = 1.0) -> int:
        """A time of up to so many seconds, and never zero."""
        return self._chance.randint(1000, 1000 + round(most_s * SECOND))
