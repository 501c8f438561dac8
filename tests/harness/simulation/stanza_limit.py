"""The server of an endpoint, which ends the stream at a stanza over its limit.

This stands for `qos.stream.stream_limits` and for the server. Nothing of such a stanza
arrives, and what is in flight then is lost with the connection.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from qos.core.message.effects import Transmit
from qos.core.stanza_sizes import StanzaSizes
from qos.core.suspects import PATIENCE_S
from qos.engine.outbox_message import Stanzas
from qos.stores.base import Remember, Store
from simulation import invariants
from simulation.loop import Process
from simulation.network import LATENCY_S

if TYPE_CHECKING:
    from simulation.endpoints import Endpoint
    from simulation.ledger import Ledger, MessageFacts

__all__ = ["SIZES", "StanzaLimit"]

#: The name under which the store keeps what was learned.
SIZES = "stanza_sizes"

#: An offer has so many bytes more than its payload.
_AROUND = 300

#: Seconds until the endpoint connects again.
_AWAY_S = 0.3


def _measure(transmit: Transmit) -> int:
    return _AROUND + (transmit.record.size if transmit.step == "offer" else 0)


class StanzaLimit:
    """The limit for one endpoint.

    Attributes:
        stanzas: for the outbox of the present process.
    """

    def __init__(self, end: Endpoint, ledger: Ledger, most: int) -> None:
        """Begin.

        Args:
            end: the endpoint.
            ledger: gets the checks.
            most: the most bytes of a stanza; 0: any.
        """
        self._end = end
        self._ledger = ledger
        self._most = most
        self._ends = self._starts = 0
        self._since = 0.0
        #: The requests of this session that have no answer.
        self._unanswered: set[str] = set()
        self._store: Store | None = None
        self.stanzas = Stanzas()

    def boot(self, store: Store, kept: str) -> None:
        """Begin with a new process, and with what an earlier one has kept."""
        self._starts += 1
        self._store = store
        self.stanzas = Stanzas(StanzaSizes(), _measure)
        if kept:
            self.stanzas.sizes.restore(kept, self._end.loop.time())

    def connected(self) -> None:
        """A session has begun."""
        self._unanswered.clear()
        self._since = self._end.loop.time()
        self.stanzas.sizes.started(self._since)

    def answered(self, iq_id: str) -> None:
        """An answer has come."""
        self._unanswered.discard(iq_id)
        self.stanzas.sizes.answered(iq_id)

    def takes(self, transmit: Transmit, iq_id: str) -> bool:
        """Whether the server takes a stanza; if not, it ends the stream."""
        end, sizes, now = self._end, self.stanzas.sizes, self._end.loop.time()
        size = _measure(transmit)
        if size > sizes.largest:
            sizes.written(iq_id, size, now)
        if not self._most or size <= self._most:
            self._unanswered.add(iq_id)
            return True
        if sizes.careful and now - self._since < PATIENCE_S:
            facts = self._ledger.of(transmit.record.payload)
            others = len(self._unanswered)
            self._ledger.check(invariants.a_suspect_goes_alone, facts, others)
        end.loop.outside(LATENCY_S, partial(self._over, end.process, end.cuts))
        return False

    def _over(self, process: Process | None, cuts: int) -> None:
        end = self._end
        if process is None or end.process is not process:
            return
        if end.online and end.cuts == cuts:
            process.start(self._ended)
            end.cut(_AWAY_S)

    def _ended(self) -> None:
        """The server has ended the stream because of a size."""
        self._ends += 1
        large = sum(bool(each.planned.padding) for each in self._messages())
        most = 2 * large + self._starts - 1
        self._ledger.check(invariants.few_streams_end, self._end.name, self._ends, most)
        sizes = self.stanzas.sizes
        iq_id = sizes.ended(self._end.loop.time())
        assert self._end.outbox is not None
        assert self._store is not None
        self._end.outbox.in_flight.not_taken(iq_id or "")
        written = self._store.write((Remember(SIZES, sizes.to_text()),))
        if written is not None:
            written.add_done_callback(lambda done: done.exception())

    def _messages(self) -> list[MessageFacts]:
        name = self._end.name
        facts = self._ledger.messages.values()
        return [each for each in facts if each.planned.sender == name]
