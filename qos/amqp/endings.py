"""Outcomes of deliveries to a consumer, on their way to the core.

Items that are accepted together end by one request. If that is refused, each of them ends
by itself: a lock may have timed out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from qos.amqp.deliveries import Delivery
from qos.amqp.outcomes import settlement_of
from qos.core.amqp.delivery_states import PeerOutcome
from qos.core.queue.item import Item, ItemOutcome
from qos.core.queue.requests import Refusal, Request, Retract, Unlock
from qos.core.queue.results import Result
from qos.engine.queue_engine import Answer, Parts

__all__ = ["Ending", "Endings", "Holding"]

#: Makes a request, with what is asked instead if it is refused.
Ask: TypeAlias = Callable[[Request, Answer, Parts | None], None]


@dataclass(slots=True)
class Holding:
    """A delivery that we have not settled.

    Attributes:
        item: as it was locked.
        delivery: its transfer; None: it waits for its commit (pre-settled links), or for
            the next attach.
        settling: the request with its outcome is under way.
    """

    item: Item
    delivery: Delivery | None
    settling: bool = False


@dataclass(slots=True)
class Ending:
    """An outcome that is being applied.

    Attributes:
        holding: the delivery.
        peer_outcome: the outcome, as its consumer tells it.
        delivery: its transfer; None: the outcome came with an attach, or with the end
            of the link.
        state: as the consumer tells it, by proton.
    """

    holding: Holding
    peer_outcome: PeerOutcome
    delivery: Delivery | None = None
    state: int = 0


class Endings:
    """The outcomes of one link."""

    def __init__(
        self,
        node: str,
        ask: Ask,
        flush_later: Callable[[], None],
        applied: Callable[[Sequence[Ending], bool], None],
    ) -> None:
        """Begin without any.

        Args:
            node: the name of the node.
            ask: makes a request.
            flush_later: is called when there is something to flush.
            applied: takes outcomes that are on disk; True: they were refused, since
                their locks had ended before.
        """
        self._node = node
        self._ask = ask
        self._flush_later = flush_later
        self._applied = applied
        self._accepted: list[Ending] = []

    def add(self, ending: Ending) -> None:
        """Apply an outcome: at once, or accepted with the next `flush`."""
        ending.holding.settling = True
        if ending.peer_outcome.outcome is ItemOutcome.ACCEPTED:
            if not self._accepted:
                self._flush_later()
            self._accepted.append(ending)
        else:
            settlement = settlement_of(ending.holding.item, ending.peer_outcome)
            self._ask(Unlock(self._node, (settlement,)), self._answer((ending,)), None)

    def flush(self) -> None:
        """End the items that were accepted."""
        accepted, self._accepted = self._accepted, []
        if not accepted:
            return
        settlements = [
            settlement_of(ending.holding.item, ending.peer_outcome)
            for ending in accepted
        ]

        def parts() -> list[tuple[Request, Answer]]:
            return [
                (Retract(self._node, (settlement,)), self._answer((ending,)))
                for ending, settlement in zip(accepted, settlements, strict=True)
            ]

        together = Retract(self._node, tuple(settlements))
        parted = parts if len(accepted) > 1 else None
        self._ask(together, self._answer(accepted), parted)

    def _answer(self, endings: Sequence[Ending]) -> Answer:
        return partial(self._tell, endings)

    def _tell(
        self,
        endings: Sequence[Ending],
        result: Result | Refusal,
        _payloads: Mapping[int, str],
    ) -> None:
        self._applied(endings, isinstance(result, Refusal))
