"""A link to a consumer: items are locked on disk before their transfers leave.

The link is a subscriber with a full JID of its own. Its credit is an input of the core
(`qos.core.queue.requests.Credit`). An outcome of the consumer is one request, and the
delivery is settled when its result is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ParamSpec

from proton import Condition, Link, Sender

from qos.amqp import bounds, conditions
from qos.amqp.conditions import condition_of
from qos.amqp.credit import LinkCredit
from qos.amqp.deliveries import Delivery, transfer
from qos.amqp.endings import Ending, Endings, Holding
from qos.amqp.outcomes import OUTCOMES, STATES, settle, settlement_of, told_by
from qos.amqp.ports import LinkHost
from qos.amqp.resuming import Resuming
from qos.amqp.unsettled import Sent
from qos.core.amqp.delivery_states import PeerOutcome
from qos.core.amqp.frame_parts import Attach, AttachAnswer
from qos.core.amqp.frame_shim import ABORTED, RESUMED
from qos.core.amqp.item_rendering import render_item
from qos.core.amqp.resuming import Resumption, Step
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
    KeepTerminus,
    Refusal,
    Request,
    Retract,
    Settlement,
    Subscribe,
    Suspend,
)
from qos.core.queue.results import CreditResult, Result
from qos.core.queue.terminus import Terminus
from qos.core.record import replace
from qos.engine.queue_engine import Answer, Parts
from qos.engine.queue_outputs import Payloads

__all__ = ["OutgoingLink"]

P = ParamSpec("P")


class OutgoingLink:
    """Delivers the items of one node on one link.

    Attributes:
        jid: the full JID that holds them, and nobody else's.
    """

    def __init__(
        self,
        connection: LinkHost,
        link: Sender,
        node: str,
        jid: str,
        *,
        selector: str,
        before: Sent | None,
        attach: Attach | None,
        terminus: Terminus | None = None,
    ) -> None:
        """Subscribe; the link is attached when that is on disk.

        Args:
            connection: the connection.
            link: attached by the peer, and not yet by us.
            node: the name of the node.
            jid: of 128 random bits, for this link only.
            selector: of the items that it wants; '': of all.
            before: the deliveries that an earlier link of this terminus has not
                settled, if they are known; None: there was no such link.
            attach: the attach of the peer.
            terminus: its terminus, if that is durable.
        """
        self.jid = jid
        self._connection = connection
        self._link = link
        self._node = node
        self._settled = link.snd_settle_mode == Link.SND_SETTLED
        self._resuming = Resuming(attach, before=before or {})
        # With neither, there is nothing to agree about.
        self._resuming.ready = before is None and not self._resuming.resumes
        # Deliveries that have ended here, and that the consumer has not settled; once
        # the link is suspended, all that are not settled.
        self._unsettled: Sent = {}
        self._holdings: dict[str, Holding] = {}
        self._endings = Endings(
            node,
            self._request,
            lambda: connection.flush_after_read(self.flush),
            self._applied,
        )
        self._credit = LinkCredit(link, node, self._ask_for_credit, self._when_offered)
        self._ended = False
        # Of messages that are settled before they are sent.
        self._settling_bytes = 0
        self._subscribe(selector, terminus)

    def _subscribe(self, selector: str, terminus: Terminus | None) -> None:
        """Subscribe without credit, when the terminus is kept if there is one."""
        options = {
            QUEUE_REQUESTS: str(bounds.UNSETTLED_MAX),
            "queue#batch": str(BATCH_MAX),
        }
        if selector:
            options[SELECTOR] = selector
        if terminus is not None:
            # Before the subscription, with whose answer the link is attached.
            self._request(KeepTerminus(terminus), self._is_kept)
        subscribe = Subscribe(self._node, self.jid, options, link=True)
        self._request(subscribe, self._subscribed)
        # In the same turn: nothing is given out without credit.
        self._request(Credit(self._node, 0), self._begun)

    def _request(
        self,
        request: Request,
        answer: Answer,
        parts: Parts | None = None,
    ) -> None:
        connection = self._connection
        connection.engine.request(
            request,
            self.jid,
            connection.guarded(answer),
            parts=None
            if parts is None
            else lambda: [
                (part, connection.guarded(part_answer)) for part, part_answer in parts()
            ],
        )

    def _is_kept(self, result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
        if isinstance(result, Refusal) and not self._ended:
            self._detach(condition_of(result), opened=False)

    def _subscribed(
        self, result: Result | Refusal, _payloads: Mapping[int, str]
    ) -> None:
        if self._ended:
            return
        if isinstance(result, Refusal):
            self._detach(condition_of(result), opened=False)
            return
        if self._resuming.ready:
            self._answer(AttachAnswer())
            return
        # What it holds comes in this turn of the loop, or waits to be sent.
        loop, connection = asyncio.get_running_loop(), self._connection
        resume = connection.guarded(self._resume)
        loop.call_soon(connection.engine.when_sent, self.jid, resume)

    def _answer(self, answer: AttachAnswer) -> None:
        """Answer the attach."""
        attach = self._resuming.attach
        if attach is not None:
            answer = replace(answer, default_outcome=attach.default_bytes)
            self._connection.shim.answer(attach.key, answer)
        self._link.open()
        self._connection.write_soon()

    def _begun(self, result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
        """Learn how many deliveries earlier links of this terminus have had."""
        if self._ended or isinstance(result, Refusal):
            return
        assert isinstance(result, CreditResult)
        self._credit.used += result.served
        if self._link.credit:
            self.flow()

    def guarded(self, call: Callable[P, object]) -> Callable[P, None]:
        """See LinkHost."""
        return self._connection.guarded(call)

    # -- credit ------------------------------------------------------------

    def flow(self) -> None:
        """The consumer grants credit, or drains the link."""
        resuming = self._resuming
        if self._ended or not resuming.ready:
            return
        if resuming.only:
            if self._link.drain_mode:
                self._link.drained()
            return
        self._credit.flow()

    def _ask_for_credit(self, request: Credit, answer: Answer) -> None:
        def if_there(result: Result | Refusal, payloads: Mapping[int, str]) -> None:
            if not self._ended:
                answer(result, payloads)
                self._connection.write_soon()

        self._request(request, if_there)

    def _when_offered(self, call: Callable[[], object]) -> None:
        connection = self._connection

        def if_there() -> None:
            if not self._ended:
                call()
                connection.write_soon()

        connection.engine.when_offered(
            self._node, self.jid, connection.guarded(if_there)
        )

    # -- items -------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether more items can be sent; if not, the engine is told when."""
        if self._ended or not self._resuming.ready:
            return True
        unsent = self._link.session.outgoing_bytes + self._settling_bytes
        return self._connection.has_room(unsent, self._tell_room)

    def _tell_room(self) -> None:
        self._connection.engine.room(self.jid)

    def items(self, items: Payloads) -> None:
        """Transfer items that were locked for this link."""
        for item, payload in items:
            if self._ended or item.token in self._holdings:
                continue  # sent again for one who was heard of: it has that
            if not self._resuming.ready:
                self._resuming.again[item.token] = item, payload
                continue
            self._give(item, payload, new=True)
        self._credit.drained()
        self._connection.write_soon()

    def _give(self, item: Item, payload: str, mark: str = "", *, new: bool) -> None:
        """Transfer an item.

        Args:
            item: as it was locked.
            payload: of the item.
            mark: of its delivery-tag; see `qos.core.amqp.frame_shim`.
            new: it has taken credit of the core; a delivery of an earlier link is not
                counted again.
        """
        message = render_item(item, payload, self._connection.engine.now())
        if self._settled:
            self._settling_bytes += len(message)
            self._holdings[item.token] = Holding(item, None, settling=True)
            answer = partial(self._accepted_before, item, message, new)
            self._request(_retract(self._node, item), answer)
        else:
            delivery = transfer(self._link, item.token + mark, message)
            self._holdings[item.token] = Holding(item, delivery)
            self._credit.used += new

    def _accepted_before(
        self,
        item: Item,
        message: bytes,
        new: bool,
        result: Result | Refusal,
        _payloads: Mapping[int, str],
    ) -> None:
        """Send an item that is settled already: the consumer wants it at most once."""
        self._holdings.pop(item.token, None)
        self._settling_bytes -= len(message)
        if self._ended:
            self._unsettled.pop(item.token, None)
            return
        self._credit.used += new
        if not isinstance(result, Refusal):
            transfer(self._link, item.token, message).settle()
        self._credit.drained()
        self._connection.write_soon()

    def dropped(self, item: Item) -> None:
        """Note that an item which has taken credit is not sent."""
        if item.token not in self._holdings:
            self._credit.used += 1
            if self._credit.drained():
                self._connection.write_soon()
            self.flow()

    # -- resumed deliveries ------------------------------------------------

    def _resume(self) -> None:
        """Answer the attach, and resume the deliveries by both maps of unsettled ones."""
        resuming = self._resuming
        if self._ended:
            return
        states = resuming.states()
        self._answer(resuming.answer(states))
        resuming.ready = True
        for token, state in states.items():
            step = resuming.step(token, state)
            if token in resuming.again:
                self._resume_held(token, step)
            elif step is None:
                self._unsettled[token] = resuming.before[token]
            elif step.step is Step.ABORT:
                transfer(self._link, token + ABORTED, b"").settle()
            elif step.step is Step.RESTATE:
                assert step.outcome is not None
                self._restate(token, step.settled, step.outcome)
        resuming.again.clear()
        resuming.before.clear()
        self.flush()
        self.flow()

    def _resume_held(self, token: str, step: Resumption | None) -> None:
        item, payload = self._resuming.again[token]
        peer_state = self._resuming.state_at_peer(token)
        if step is None:
            self._holdings[token] = Holding(item, None)
        elif isinstance(peer_state, PeerOutcome):
            holding = self._holdings[token] = Holding(item, None)
            self._endings.add(Ending(holding, peer_state))
        else:
            mark = RESUMED if step.step is Step.RESUME else ""
            self._give(item, payload, mark, new=False)

    def _restate(self, token: str, settled: bool, outcome: ItemOutcome) -> None:
        """Tell the final outcome of a resumed delivery, by a transfer without data."""
        delivery = self._link.delivery(token + RESUMED)
        delivery.local.failed = outcome is ItemOutcome.MODIFIED
        delivery.update(STATES[outcome])
        self._link.advance()
        if settled:
            delivery.settle()
        else:
            self._unsettled[token] = outcome
        self._connection.write_soon()

    # -- outcomes ----------------------------------------------------------

    def delivery(self, delivery: Delivery) -> None:
        """The consumer tells the state of a delivery."""
        if self._ended:
            return
        token = _token(delivery)
        holding = self._holdings.get(token)
        if holding is None:
            # Settled by us before: an outcome is final (messaging §3.4).
            self._unsettled.pop(token, None)
            delivery.settle()
            return
        state = delivery.remote_state
        if holding.settling or (state not in OUTCOMES and not delivery.settled):
            return
        peer_outcome = told_by(delivery) or self._resuming.default
        self._endings.add(Ending(holding, peer_outcome, delivery, state))

    def flush(self) -> None:
        """End the items that were accepted together."""
        self._endings.flush()

    def _applied(self, endings: Sequence[Ending], refused: bool) -> None:
        for ending in endings:
            token = ending.holding.item.token
            self._holdings.pop(token, None)
            # A lock that has ended before has failed.
            outcome = ItemOutcome.MODIFIED if refused else ending.peer_outcome.outcome
            if self._ended:
                if token in self._unsettled:
                    self._unsettled[token] = outcome
            elif ending.delivery is None:
                settled = not refused
                self._restate(token, settled, outcome)
            elif refused:
                self._lost(ending.delivery)
            else:
                settle(ending.delivery, ending.state)
        if not self._ended:
            self._connection.write_soon()

    def _lost(self, delivery: Delivery) -> None:
        """Tell the consumer that a delivery has failed, because its lock had ended."""
        delivery.local.failed = True
        settle(delivery, Delivery.MODIFIED)

    # -- other news --------------------------------------------------------

    def notify(self, notification: Notification) -> None:
        """Take a notification of the service for the holder of items."""
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
            case NotifySubscription(why=why) if why:
                self._detach(Condition(conditions.RESOURCE_LIMIT, why))
            case NotifySubscription():
                text = f"you may not subscribe to {self._node!r} any more"
                self._detach(Condition(conditions.UNAUTHORIZED, text))

    def _end_locks(self, item_ids: Sequence[str] | None) -> None:
        """Settle deliveries that have ended without their consumer; None: all."""
        for token, holding in list(self._holdings.items()):
            if holding.settling or not (
                item_ids is None or holding.item.item_id in item_ids
            ):
                continue
            del self._holdings[token]
            if holding.delivery is None:
                self._unsettled[token] = ItemOutcome.MODIFIED
            else:
                self._lost(holding.delivery)
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
        for holding in self._holdings.values():
            peer_outcome = self._at_end(holding, released=released)
            if peer_outcome is not None:
                self._endings.add(Ending(holding, peer_outcome))
        self.flush()
        self._connection.engine.departed(self.jid)
        self._connection.hub.left(self.jid)

    def _at_end(self, holding: Holding, *, released: bool) -> PeerOutcome | None:
        """The outcome of a delivery whose link is gone; None: it fails."""
        if holding.settling:
            return None
        return self._default(holding) or (
            PeerOutcome(ItemOutcome.RELEASED) if released else None
        )

    def _default(self, holding: Holding) -> PeerOutcome | None:
        """The outcome that the consumer asks for, of a delivery without one (messaging §3.3)."""
        was_sent = holding.delivery is not None and not holding.delivery.pending
        return (
            self._resuming.asked_default if was_sent and not holding.settling else None
        )

    def suspend(self, seconds: float | None) -> None:
        """End the link, and keep its terminus for so many seconds; None: without a timer."""
        self.flush()
        self._ended = True
        self._request(Credit(self._node, 0), _ignore)
        outcomes = (
            (holding.item, self._default(holding))
            for holding in self._holdings.values()
        )
        defaults = tuple(
            settlement_of(item, outcome) for item, outcome in outcomes if outcome
        )
        self._request(Suspend(self._node, seconds, defaults), _ignore)
        self._connection.hub.left(self.jid)
        self._unsettled.update(self._resuming.unsettled())
        self._unsettled.update(dict.fromkeys(self._holdings))
        self._connection.hub.unsettled.keep_sent(self.jid, self._unsettled)

    @property
    def ended(self) -> bool:
        """Whether the link and its terminus have ended."""
        return self._ended

    def _detach(self, condition: Condition, *, opened: bool = True) -> None:
        link = self._link
        if not opened:
            # Transport §2.6.3: a link that is refused has no source.
            link.source.type = link.source.UNSPECIFIED
            link.open()
        self.end(released=True)
        self._connection.detach(link, condition)


def _token(delivery: Delivery) -> str:
    return str(delivery.tag).partition("~")[0]


def _retract(node: str, item: Item) -> Retract:
    return Retract(node, (Settlement(item_id=item.item_id, token=item.token),))


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """A refusal of this comes with that of the subscription, or by a notification."""
