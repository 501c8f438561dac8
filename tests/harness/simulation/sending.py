"""The applications that send: one on the endpoint, and clients of a gateway elsewhere.

They submit the planned messages, and ask for their outcomes. Their observations go into
the ledger.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from qos.core.message.model import Level, Outgoing
from qos.engine import Delivery, Outbox
from qos.engine.once import Once
from qos.errors import (
    CannotWithdraw,
    OutboxFull,
    StoreError,
    StoreFull,
    UnknownMessage,
)
from simulation.ledger import Ledger, MessageFacts
from simulation.plan import PlannedMessage

if TYPE_CHECKING:
    from simulation.endpoints import Endpoint

__all__ = ["Plain", "Producer"]

#: Seconds before a message that the disk did not accept is submitted again.
_AGAIN_S = 0.4

#: How often the client of a gateway hears its answer.
_HEARD = 0.6


@dataclass(frozen=True, slots=True)
class Plain:
    """A plain message, at level unacknowledged: nobody answers, and it is sent once."""

    payload: str


def _payload(planned: PlannedMessage) -> str:
    more = f"<x>{'x' * planned.padding}</x>" if planned.padding else ""
    return (
        f"<message xmlns='jabber:client'><body>{planned.number}</body>{more}</message>"
    )


class Producer:
    """Sends the messages of one endpoint."""

    def __init__(self, end: Endpoint, ledger: Ledger) -> None:
        self._end = end
        self._ledger = ledger
        #: Of the present process: what clients of the gateway have posted.
        self._once: Once | None = None

    def boot(self, outbox: Outbox) -> None:
        """Wait for the outcomes that are still unknown, in a new process."""
        self._once = Once(outbox.find)
        assert self._end.process is not None
        for facts in self._ledger.untold(self._end.name):
            self._end.process.task(self.hear(outbox, facts))

    def submit(self, planned: PlannedMessage) -> None:
        """Submit this message, if the program runs."""
        if self._end.process is not None and self._end.outbox is not None:
            facts = self._ledger.planned(planned)
            if planned.level is Level.UNACKNOWLEDGED:
                self._end.process.start(partial(self._send_plain, planned))
            elif planned.posted:
                facts.msg_id = f"http-{planned.number}"
                self._post(facts)
            else:
                self._end.process.task(self._submit(self._end.outbox, facts))

    def _send_plain(self, planned: PlannedMessage) -> None:
        """Send it to the addressed device, or to one of the account's."""
        there = self._end.network.resources(planned.to)
        to = there[0].jid if there else planned.to
        self._end.send(to, Plain(_payload(planned)))

    def _post(self, facts: MessageFacts) -> None:
        """A client of a gateway, elsewhere: it posts again until it has an answer."""
        if facts.answered:
            return
        if self._end.process is not None and self._end.outbox is not None:
            self._end.process.task(self._posted(self._end.outbox, facts))
        self._end.loop.outside(_AGAIN_S, partial(self._post, facts))

    async def _posted(self, outbox: Outbox, facts: MessageFacts) -> None:
        planned = facts.planned

        async def submit() -> None:
            self._ledger.accepts(facts)
            self._ledger.tries(facts)
            await outbox.submit(
                planned.to,
                _payload(planned),
                level=planned.level,
                ordered=planned.ordered,
                deadline_s=planned.deadline_s,
                msg_id=facts.msg_id,
                account="shop@x",
                digest="digest",
            )

        try:
            assert self._once is not None
            await self._once.accept(facts.msg_id, submit)
        except (StoreFull, OutboxFull):
            return
        except StoreError:
            self._ledger.unsure(facts)
            return
        # The answer may be lost.
        facts.answered = self._end.random.random() < _HEARD
        if not facts.accepted:
            self._ledger.accepted(facts)
            await self.hear(outbox, facts)

    async def _submit(self, outbox: Outbox, facts: MessageFacts) -> None:
        planned = facts.planned
        # A small device counts; a message that was not delivered keeps its id.
        msg_id = None if self._end.marked else self._ledger.number_for(self._end.name)
        if msg_id is not None and planned.level is Level.ASSURED:
            facts.msg_id = msg_id
        # Some applications want to know, and submit it again under the same id; others
        # give up.
        insists = self._end.marked and planned.number % 2 == 1
        if insists:
            facts.msg_id = self._end.new_id()
        delivery = await self._accept(outbox, facts)
        while insists and facts.unsure:
            await asyncio.sleep(_AGAIN_S)
            delivery = await self._accept(outbox, facts)
        if delivery is None:
            return
        facts.msg_id = delivery.msg_id
        if planned.withdrawn_s is not None:
            later = partial(self._withdraw_later, delivery, facts)
            self._end.loop.call_later(planned.withdrawn_s, later)
        await self.hear(outbox, facts)

    async def _accept(self, outbox: Outbox, facts: MessageFacts) -> Delivery | None:
        planned, before = facts.planned, facts.order
        self._ledger.tries(facts)
        try:
            delivery = await outbox.submit(
                planned.to,
                _payload(planned),
                level=planned.level,
                ordered=planned.ordered,
                deadline_s=planned.deadline_s,
                msg_id=facts.msg_id or None,
            )
        except (StoreFull, OutboxFull):
            if facts.unsure:
                facts.order = before  # this says nothing of the time before
            else:
                self._ledger.refused(facts)
            return None
        except StoreError:
            self._ledger.unsure(facts)
            return None
        self._ledger.accepted(facts)
        return delivery

    def _withdraw_later(self, delivery: Delivery, facts: MessageFacts) -> None:
        assert self._end.process is not None
        self._end.process.task(self._withdraw(delivery, facts))

    async def _withdraw(self, delivery: Delivery, facts: MessageFacts) -> None:
        facts.taken_back = True
        try:
            await delivery.withdraw()
        except (CannotWithdraw, UnknownMessage, StoreError):
            return
        self._end.network.note(self._end.name, f"has withdrawn {delivery.msg_id}")
        self._ledger.withdrawn(facts)

    async def hear(self, outbox: Outbox, facts: MessageFacts) -> None:
        """Wait for the outcome, even after a restart."""
        if facts.accepted is None:
            # Killed while it was being accepted: only its store knows of it.
            record = self._find(facts)
            if record is None:
                facts.unsure &= not facts.planned.posted  # it is posted again
                if not facts.planned.posted:
                    self._ledger.refused(facts)
                return
            facts.msg_id = record.msg_id
            self._ledger.accepted(facts)
        try:
            outcome = await outbox.outcome(facts.msg_id)
        except UnknownMessage:
            self._ledger.forgotten(facts)
            return
        self._end.network.note(self._end.name, f"{facts} is {outcome.status.value}")
        self._ledger.told(facts, outcome.status)

    def _find(self, facts: MessageFacts) -> Outgoing | None:
        text = f"<body>{facts.planned.number}</body>"
        found = (
            each for each in self._end.disk.kept.outgoing() if text in each.payload
        )
        return next(found, None)
