"""The consumer of a receiver: an application with effects in the store's own file.

It fails as often as the plan says. Its observations go into the ledger.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from qos.core.backoff import Backoff
from qos.core.message.model import Incoming
from qos.core.record import replace
from qos.core.strings import bare
from qos.engine import Consumption, Handover
from simulation import invariants
from simulation.ledger import Ledger, MessageFacts
from simulation.loop import current
from simulation.plan import HANDOVERS_MAX

if TYPE_CHECKING:
    from simulation.endpoints import Endpoint

__all__ = ["Consumer"]


class Failed(Exception):
    """Raised by the consumer when the plan wants it to fail."""


class Consumer:
    """Takes assured messages, those of one account one by one."""

    def __init__(self, end: Endpoint, ledger: Ledger) -> None:
        self._end = end
        self._ledger = ledger
        #: The process, and how many messages of each account the consumer is handling.
        self._process: object = None
        self._at_work: Counter[str] = Counter()

    def consumption(self, record: Incoming) -> Consumption:
        """See InboxPort."""
        facts = self._ledger.of(record.payload)
        facts.consumed = True
        return Consumption(
            name=self._end.name,
            handle=partial(self._take, facts, record),
            handovers_max=HANDOVERS_MAX,
            backoff=Backoff(first_s=0.5, max_s=2.0),
            lane=bare(record.source),
        )

    async def _take(
        self, facts: MessageFacts, record: Incoming, handover: Handover
    ) -> None:
        self._end.effect()
        if self._process is not current():
            self._process = current()
            self._at_work.clear()
        account = bare(record.source)
        self._at_work[account] += 1
        self._ledger.check(invariants.one_of_a_lane, account, self._at_work[account])
        facts.handovers += 1
        if not self._ledger.wiped:
            self._ledger.check(invariants.parked_in_time, facts)
        shown = replace(record, redelivered=handover.redelivered)
        self._ledger.handed(facts, self._end.hands_over(shown))
        try:
            fails = " fails" if facts.fails else ""
            await handover.execute(f"{facts.planned.number}{fails}")
            await asyncio.sleep(facts.planned.taking_s)
            if facts.fails:
                facts.fails -= 1
                raise Failed
            self._end.effect()
        finally:
            self._at_work[account] -= 1
