"""A link to a consumer: items are locked on disk before their transfers leave.

The link is a subscriber with a full JID of its own. Its credit is an input of the core
(`qos.core.queue.requests.Credit`). An outcome of the consumer is one request, and the
delivery is settled when its result is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec

from proton import Condition, Data, Delivery, Disposition, Link, Sender, symbol, ulong

from qos.amqp import bounds, conditions
from qos.amqp.conditions import condition_of
from qos.core.amqp.messages import render_item, with_annotations
from qos.core.queue.effects import (
    Notification,
    NotifyNode,
    NotifyRetract,
    NotifySubscription,
    NotifyUnlock,
)
from qos.core.queue.item import Item, ItemOutcome
from qos.core.queue.node_options import BATCH_MAX, QUEUE_REQUESTS, SELECTOR
from qos.core.queue.requests import (
    Credit,
    CreditResult,
    Refusal,
    Request,
    Result,
    Retract,
    Settlement,
    Subscribe,
    Suspend,
    Unlock,
)
from qos.engine.queue_engine import Answer
from qos.engine.queue_outputs import Payloads
from xep_0254.elements import legal

if TYPE_CHECKING:
    from qos.amqp.connection import AmqpConnection

__all__ = ["OutgoingLink"]

P = ParamSpec("P")

_OUTCOMES: dict[int, ItemOutcome] = {
    Delivery.ACCEPTED: ItemOutcome.ACCEPTED,
    Delivery.RELEASED: ItemOutcome.RELEASED,
    Delivery.MODIFIED: ItemOutcome.MODIFIED,
    Delivery.REJECTED: ItemOutcome.REJECTED,
}


@dataclass(slots=True)
class _Held:
    """A delivery that we have not settled.

    Attributes:
        item: as it was locked.
        delivery: its transfer; None: it waits for its commit (pre-settled links).
        settling: the request with its outcome is under way.
    """

    item: Item
    delivery: Delivery | None
    settling: bool = False


class OutgoingLink:
    """Delivers the items of one node on one link.

    Attributes:
        jid: the full JID that holds them, and nobody else's.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        link: Sender,
        node: str,
        jid: str,
        *,
        selector: str,
        before: frozenset[str],
    ) -> None:
        """Subscribe; the link is attached when that is on disk.

        Args:
            connection: the connection.
            link: attached by the peer, and not yet by us.
            node: the name of the node.
            jid: of 128 random bits, for this link only.
            selector: of the items that it wants; '': of all.
            before: the tokens of deliveries of an earlier link of this terminus.
        """
        self.jid = jid
        self._connection = connection
        self._link = link
        self._node = node
        self._settled = link.snd_settle_mode == Link.SND_SETTLED
        self._before = before
        self._held: dict[str, _Held] = {}
        # Those that were accepted in what is being read.
        self._accepted: list[tuple[Delivery, Settlement]] = []
        # Deliveries of the core that have become transfers, or will not.
        self._sent = 0
        self._dropped = 0
        # While the link is drained: the deliveries of the core until then.
        self._drain_at: int | None = None
        self._ended = False
        options = {
            QUEUE_REQUESTS: str(bounds.UNSETTLED_MAX),
            "queue#batch": str(BATCH_MAX),
        }
        if selector:
            options[SELECTOR] = selector
        self._request(Subscribe(node, jid, options), self._subscribed)
        # In the same turn: nothing is given out without credit.
        self._request(Credit(node, 0), self._begun)

    def _request(
        self,
        request: Request,
        answer: Answer,
        parts: Sequence[tuple[Request, Answer]] = (),
    ) -> None:
        connection = self._connection
        connection.engine.request(
            request,
            self.jid,
            connection.guarded(answer),
            parts=[(part, connection.guarded(its_own)) for part, its_own in parts],
        )

    def _subscribed(
        self, result: Result | Refusal, _payloads: Mapping[int, str]
    ) -> None:
        if self._ended:
            return
        if isinstance(result, Refusal):
            self._detach(condition_of(result), opened=False)
            return
        self._link.open()
        self._connection.write_soon()

    def _begun(self, result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
        """Learn how many deliveries earlier links of this terminus have had."""
        if self._ended or isinstance(result, Refusal):
            return
        assert isinstance(result, CreditResult)
        self._sent += result.served
        if self._link.credit:
            self.flow()

    def guarded(self, call: Callable[P, object]) -> Callable[P, None]:
        """See AmqpConnection."""
        return self._connection.guarded(call)

    # -- credit ------------------------------------------------------------

    def flow(self) -> None:
        """The consumer grants credit, or drains the link."""
        if self._ended:
            return
        limit = self._sent + self._dropped + self._link.credit
        self._drain_at = None
        drains = self._link.drain_mode
        self._request(Credit(self._node, limit), self._drain if drains else _ignore)

    def _drain(self, _result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
        """Everything has been given out that there is: stop, and learn how much."""
        if self._ended or not self._link.drain_mode:
            return
        self._request(Credit(self._node, 0), self._drained)

    def _drained(self, result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
        if self._ended or not self._link.drain_mode:
            return
        if isinstance(result, CreditResult):
            self._drain_at = result.served
            self._end_drain()

    def _end_drain(self) -> None:
        if self._drain_at is None or self._sent + self._dropped < self._drain_at:
            return
        self._drain_at = None
        self._link.drained()
        self._connection.write_soon()

    # -- items -------------------------------------------------------------

    def items(self, items: Payloads) -> None:
        """Transfer items that were locked for this link."""
        now = self._connection.engine.now()
        for item, payload in items:
            if self._ended or item.token in self._held:
                continue  # sent again for one who was heard of: it has that
            message = render_item(item, payload, now)
            if self._settled:
                self._held[item.token] = _Held(item, None, settling=True)
                answer = partial(self._accepted_before, item, message)
                self._request(_retract(self._node, item), answer)
            else:
                self._held[item.token] = _Held(item, self._transfer(item, message))
        self._end_drain()
        self._connection.write_soon()

    def _transfer(self, item: Item, message: bytes) -> Delivery:
        delivery = self._link.delivery(item.token)
        self._link.stream(message)
        self._link.advance()
        # A delivery of an earlier link is not counted again.
        self._sent += item.token not in self._before
        return delivery

    def _accepted_before(
        self,
        item: Item,
        message: bytes,
        result: Result | Refusal,
        _payloads: Mapping[int, str],
    ) -> None:
        """Send what is settled already: at most once, as the consumer wants it."""
        self._held.pop(item.token, None)
        if self._ended:
            return
        if isinstance(result, Refusal):
            self._dropped += 1
        else:
            self._transfer(item, message).settle()
        self._end_drain()
        self._connection.write_soon()

    def dropped(self, item: Item) -> None:
        """This item, which took credit, is not sent."""
        if item.token not in self._held:
            self._dropped += 1
            self._end_drain()
            self.flow()

    # -- outcomes ----------------------------------------------------------

    def delivery(self, delivery: Delivery) -> None:
        """The consumer tells the state of a delivery."""
        held = self._held.get(delivery.tag)
        if held is None:
            # Settled by us before: an outcome is final (messaging §3.4).
            delivery.settle()
            return
        state = delivery.remote_state
        if held.settling or (state not in _OUTCOMES and not delivery.settled):
            return
        held.settling = True
        outcome = _OUTCOMES.get(state)
        settlement = _settlement(held.item, delivery, outcome)
        if outcome is ItemOutcome.ACCEPTED:
            if not self._accepted:
                self._connection.flush_after_read(self)
            self._accepted.append((delivery, settlement))
        else:
            answer = partial(self._done, (delivery,), state)
            self._request(Unlock(self._node, (settlement,)), answer)

    def flush(self) -> None:
        """End the items that were accepted together by one request.

        If that is refused, each of them by itself: a lock may have timed out.
        """
        accepted, self._accepted = self._accepted, []
        if not accepted:
            return
        done = partial(self._done, [each for each, _ in accepted], Delivery.ACCEPTED)
        parts = [
            (
                Retract(self._node, (settlement,)),
                partial(self._done, (delivery,), Delivery.ACCEPTED),
            )
            for delivery, settlement in accepted
            if len(accepted) > 1
        ]
        settlements = tuple(settlement for _, settlement in accepted)
        self._request(Retract(self._node, settlements), done, parts)

    def _done(
        self,
        deliveries: Sequence[Delivery],
        state: int,
        result: Result | Refusal,
        _payloads: Mapping[int, str],
    ) -> None:
        if self._ended:
            return
        for delivery in deliveries:
            self._held.pop(delivery.tag, None)
            if isinstance(result, Refusal):
                self._lost(delivery)
            else:
                _settle(delivery, state)
        self._connection.write_soon()

    def _lost(self, delivery: Delivery) -> None:
        """Tell the truth about a delivery whose lock has ended: it has failed."""
        delivery.local.failed = True
        _settle(delivery, Delivery.MODIFIED)

    # -- other news --------------------------------------------------------

    def notify(self, notification: Notification) -> None:
        """Take what the service tells the holder."""
        match notification:
            case NotifyUnlock(_, _, item_ids):
                self._end_locks(item_ids)
            case NotifyRetract():
                pass  # the answer to its request tells as much
            case NotifyNode(_, _, "purge"):
                self._end_locks(None)
            case NotifyNode():
                text = f"the node {self._node!r} is deleted"
                self._detach(Condition(conditions.DELETED, text))
            case NotifySubscription():
                text = f"you may not subscribe to {self._node!r} any more"
                self._detach(Condition(conditions.UNAUTHORIZED, text))

    def _end_locks(self, item_ids: Sequence[str] | None) -> None:
        """Settle deliveries that have ended without their consumer; None: all."""
        for token, held in list(self._held.items()):
            if held.settling or held.delivery is None:
                continue
            if item_ids is None or held.item.item_id in item_ids:
                del self._held[token]
                self._lost(held.delivery)
        self._connection.silent.add(self.jid)
        self._connection.write_soon()

    def end(self, *, released: bool) -> None:
        """The link is gone.

        Args:
            released: the consumer has ended it in order; what it holds is released.
                Otherwise its deliveries have failed.
        """
        if self._ended:
            return
        self.flush()
        self._ended = True
        if released:
            for held in self._held.values():
                if not held.settling:
                    settlement = Settlement(
                        item_id=held.item.item_id,
                        token=held.item.token,
                        outcome=ItemOutcome.RELEASED,
                    )
                    self._request(Unlock(self._node, (settlement,)), _ignore)
        self._connection.engine.departed(self.jid)
        self._connection.left(self.jid)

    def suspend(self, seconds: float | None) -> frozenset[str]:
        """The link is gone, and its terminus is kept for so long; returns its tokens."""
        self.flush()
        self._ended = True
        self._request(Credit(self._node, 0), _ignore)
        self._request(Suspend(self._node, seconds), _ignore)
        self._connection.left(self.jid)
        return frozenset(
            token for token, each in self._held.items() if not each.settling
        )

    def _detach(self, condition: Condition, *, opened: bool = True) -> None:
        link = self._link
        if not opened:
            # §2.6.3: a link that is refused has no source.
            link.source.type = link.source.UNSPECIFIED
            link.open()
        self.end(released=True)
        link.condition = condition
        link.close()
        self._connection.write_soon()


def _settlement(
    item: Item, delivery: Delivery, outcome: ItemOutcome | None
) -> Settlement:
    remote: Disposition = delivery.remote
    modified = outcome is ItemOutcome.MODIFIED
    return Settlement(
        item_id=item.item_id,
        token=item.token,
        # Settled without an outcome: the default one (messaging §3.5.3).
        outcome=outcome or ItemOutcome.MODIFIED,
        delivery_failed=outcome is None or (modified and remote.failed),
        undeliverable_here=modified and remote.undeliverable,
        reason=_reason(remote) if outcome is ItemOutcome.REJECTED else "",
        annotations=_annotations(item, remote) if modified else "",
    )


def _annotations(item: Item, remote: Disposition) -> str:
    """The annotations of the item with those of a modified outcome."""
    changes: dict[Any, Any] | None = remote.annotations
    if not changes:
        return ""
    data = Data()
    data.put_object(
        {
            name if isinstance(name, ulong) else symbol(str(name)): value
            for name, value in changes.items()
        }
    )
    return with_annotations(item, data.encode())


def _reason(remote: Disposition) -> str:
    condition = remote.condition
    if condition is None:
        return ""
    text = ": ".join(filter(None, (condition.name, condition.description)))
    return legal(text)[: bounds.REASON_CHARS_MAX]


def _retract(node: str, item: Item) -> Retract:
    return Retract(node, (Settlement(item_id=item.item_id, token=item.token),))


def _settle(delivery: Delivery, state: int) -> None:
    """Settle as ours; the consumer is told the state unless it has settled."""
    if not delivery.settled and state in _OUTCOMES:
        if state == Delivery.MODIFIED and delivery.remote_state == Delivery.MODIFIED:
            delivery.local.failed = delivery.remote.failed
            delivery.local.undeliverable = delivery.remote.undeliverable
        condition = delivery.remote.condition
        if state == Delivery.REJECTED and condition is not None:
            delivery.local.condition = condition
        delivery.update(state)
    delivery.settle()


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """A refusal of this comes with that of the subscription, or by a notification."""
