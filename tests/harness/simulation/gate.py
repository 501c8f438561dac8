"""A worker behind a gateway: it gets no more than its credit, as by AMQP."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from qos.core.queue.item import Item
from qos.core.queue.requests import Credit, Refusal
from qos.core.queue.results import CreditResult, Result
from qos.engine.queue_engine import QueueEngine
from simulation import invariants
from simulation.ledger import Ledger

__all__ = ["Gate"]


class Gate:
    """Gives one full JID one credit for each of its stanzas.

    Attributes:
        jid: the full JID.
    """

    def __init__(self, jid: str, node: str, ledger: Ledger) -> None:
        self.jid = jid
        self._node = node
        self._ledger = ledger
        # How often the worker has gone.
        self._gone = 0
        self.forget()

    def forget(self, held: Collection[str] = ()) -> None:
        """The service has forgotten all credit, or the worker has left.

        Args:
            held: the tokens of what it still holds. That takes no credit again.
        """
        self._held = frozenset(held)
        self._sent: set[str] = set()
        self._dropped: set[str] = set()
        self._limit = 0
        self._unsure = True

    def away(self) -> None:
        """The worker has gone: what was asked for it is answered to nobody."""
        self._unsure = True
        self._gone += 1

    def grant(self, engine: QueueEngine) -> None:
        """One more credit, if the worker has none left; refused if it is no subscriber."""
        self._limit = max(self._limit, len(self._sent) + len(self._dropped) + 1)
        times = self._gone

        def answer(result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
            # A terminus was told to be over, and came back just before its end.
            if not self._unsure or times != self._gone:
                return
            if isinstance(result, CreditResult):
                self._unsure = False
                if result.served >= self._limit:
                    self._limit = result.served + 1
                    engine.request(Credit(self._node, self._limit), self.jid, _ignore)

        engine.request(Credit(self._node, self._limit), self.jid, answer)

    def sent(self, items: Sequence[Item]) -> None:
        """The service sends it these items, some perhaps again."""
        self._sent |= {item.token for item in items} - self._held
        gone = len(self._sent) + len(self._dropped)
        self._ledger.check(invariants.within_credit, self.jid, gone, self._limit)

    def dropped(self, item: Item) -> None:
        """The service does not send it this item, which it had locked for it."""
        if self._unsure:
            # It took credit of before, which is forgotten.
            self._held |= {item.token}
        elif item.token not in self._sent | self._held:
            self._dropped.add(item.token)


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """The next grant brings whatever this one has not."""
