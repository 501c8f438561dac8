"""The outcomes of deliveries to consumers and to brokers, between proton and the core."""

from __future__ import annotations

from typing import Any

from proton import Data, Disposition, symbol, ulong

from qos.amqp import bounds
from qos.amqp.conditions import text_of
from qos.amqp.deliveries import Delivery
from qos.core.amqp.delivery_states import PeerOutcome
from qos.core.amqp.item_rendering import with_annotations
from qos.core.queue.item import Item, ItemOutcome
from qos.core.queue.requests import Settlement
from xep_0254.elements import legal

__all__ = ["OUTCOMES", "STATES", "settle", "settlement_of", "told_by"]

#: The outcomes by the states of proton, and the other way round.
OUTCOMES: dict[int, ItemOutcome] = {
    Delivery.ACCEPTED: ItemOutcome.ACCEPTED,
    Delivery.RELEASED: ItemOutcome.RELEASED,
    Delivery.MODIFIED: ItemOutcome.MODIFIED,
    Delivery.REJECTED: ItemOutcome.REJECTED,
}
STATES = {outcome: state for state, outcome in OUTCOMES.items()}

_ACCEPTED = PeerOutcome(ItemOutcome.ACCEPTED)

#: The outcomes with which nothing else is told.
_ALONE = {
    ItemOutcome.ACCEPTED: _ACCEPTED,
    ItemOutcome.RELEASED: PeerOutcome(ItemOutcome.RELEASED),
}


def told_by(delivery: Delivery) -> PeerOutcome | None:
    """The outcome that a peer tells; None: it has settled without one."""
    outcome = OUTCOMES.get(delivery.remote_state)
    if outcome is None or outcome in _ALONE:
        # Nearly all are accepted; more of proton's state costs more.
        return None if outcome is None else _ALONE[outcome]
    remote: Disposition = delivery.remote
    if outcome is ItemOutcome.MODIFIED:
        return PeerOutcome(
            outcome,
            delivery_failed=bool(remote.failed),
            undeliverable_here=bool(remote.undeliverable),
            annotations=_annotations(remote),
        )
    return PeerOutcome(outcome, reason=text_of(remote.condition))


def _annotations(remote: Disposition) -> bytes:
    changes: Any = remote.annotations
    if not changes or not isinstance(changes, dict):
        # What is no map changes nothing; the outcome counts.
        return b""
    data = Data()
    data.put_object(
        {
            name if isinstance(name, ulong) else symbol(str(name)): value
            for name, value in changes.items()
        }
    )
    return bytes(data.encode())


def settlement_of(item: Item, peer_outcome: PeerOutcome) -> Settlement:
    """The settlement that is asked of the core."""
    if peer_outcome is _ACCEPTED:
        return Settlement(item_id=item.item_id, token=item.token)
    annotations = (
        with_annotations(item, peer_outcome.annotations)
        if peer_outcome.annotations
        else ""
    )
    return Settlement(
        item_id=item.item_id,
        token=item.token,
        outcome=peer_outcome.outcome,
        delivery_failed=peer_outcome.delivery_failed,
        undeliverable_here=peer_outcome.undeliverable_here,
        reason=legal(peer_outcome.reason)[: bounds.REASON_CHARS_MAX],
        annotations=annotations,
    )


def settle(delivery: Delivery, state: int) -> None:
    """Settle a delivery on our side; tell the consumer the state unless it has settled."""
    if not delivery.settled and state in OUTCOMES:
        if state == Delivery.MODIFIED and delivery.remote_state == Delivery.MODIFIED:
            delivery.local.failed = delivery.remote.failed
            delivery.local.undeliverable = delivery.remote.undeliverable
        if state == Delivery.REJECTED and delivery.remote.condition is not None:
            delivery.local.condition = delivery.remote.condition
        delivery.update(state)
    delivery.settle()
