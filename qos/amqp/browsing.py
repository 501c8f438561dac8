"""A link that copies: its consumer sees the items of a node, and takes none away.

Messaging §3.5.2: what was sent is never sent again on this link. The items have an
order, so a cursor is enough. That of a durable terminus is on disk: up to it, its
consumer has settled all that was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from proton import Condition, Link, Sender

from qos.amqp import bounds
from qos.amqp.conditions import RESOURCE_LIMIT, condition_of
from qos.amqp.deliveries import Delivery, transfer
from qos.amqp.ports import LinkHost
from qos.core.amqp.item_rendering import render_item
from qos.core.queue.item import Item
from qos.core.queue.item_names import ItemNames
from qos.core.queue.requests import (
    Items,
    KeepTerminus,
    Refusal,
    Suspend,
)
from qos.core.queue.results import ItemsResult, Result
from qos.core.queue.selector import Selector, SelectorError, parse
from qos.core.queue.service import too_dear
from qos.core.queue.terminus import Terminus
from qos.core.record import replace
from qos.core.strings import bare
from qos.engine.queue_engine import Answer, QueueEngine

__all__ = ["BrowsingLink", "split_address"]

#: Seconds until a link with credit looks for new items again; not at a topic, where new
#: items are all that can come.
_LOOK_S = 1.0

#: Items that are asked for at a time if a selector chooses: it may take long for each.
_PAGE_SELECTED = 100

_STATES = {"?dead": "dead", "?accepted": "accepted"}


def split_address(address: str, engine: QueueEngine, jid: str) -> tuple[str, str]:
    """Split an address into the node and the state of the items to browse.

    `orders?dead` are the dead items of `orders`, unless a node has that name.
    """
    if engine.rights(address, jid) is None:
        for ending, state in _STATES.items():
            if address.endswith(ending):
                return address.removesuffix(ending), state
    return address, "live"


class BrowsingLink:
    """Shows the items of one node on one link."""

    def __init__(
        self,
        connection: LinkHost,
        link: Sender,
        node: str,
        *,
        state: str,
        selector: str,
        terminus: Terminus | None = None,
    ) -> None:
        """Begin at the first item, or where the terminus was.

        Args:
            connection: the connection.
            link: attached by the peer, and not yet by us.
            node: the name of the node.
            state: of the items, as in `Items`.
            selector: of the items that it wants; '': of all.
            terminus: its terminus, if that is durable.
        """
        self._connection = connection
        self._link = link
        self._node = node
        self._state = state
        self._selector: Selector | None = None
        self._terminus = terminus
        self._cursor = 0 if terminus is None else terminus.cursor
        # Of a durable terminus: the seqs of copies that are not settled, in order; and
        # copies whose settlement waits for the cursor.
        self._unsettled: dict[int, None] = {}
        self._waiting: list[Delivery] = []
        self._saving = False
        self._asking = False
        self._ended = False
        self._timer: asyncio.TimerHandle | None = None
        # New items have come since this link has asked for items.
        self._changed = False
        self._wait_s = None if connection.engine.is_topic(node) else _LOOK_S
        connection.engine.watch(node, self._wake)
        try:
            if selector:
                self._selector = parse(selector)
        except SelectorError as error:
            text = f"the selector: {error}"
            refusal = Refusal(text, condition="bad-request", type="modify")
            self._detach(condition_of(refusal))
        else:
            self._begin()

    def _begin(self) -> None:
        """Attach the link, as soon as its terminus is kept."""
        if self._terminus is None:
            self._link.open()
            self.flow()
        else:
            # With the answer it is on disk; until then nothing is asked for.
            self._asking = True
            self._keep(self._terminus, self._is_kept)

    def _keep(self, terminus: Terminus, answer: Answer) -> None:
        connection = self._connection
        answer = connection.guarded(answer)
        connection.engine.request(KeepTerminus(terminus), terminus.jid, answer)

    def _is_kept(self, result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
        if self._is_over(result):
            return
        self._link.open()
        self.flow()
        self._connection.write_soon()

    def _is_over(self, answer: Result | Refusal) -> bool:
        """Take an answer; returns whether the link has ended, or ends now."""
        self._asking = False
        if isinstance(answer, Refusal) and not self._ended:
            self._detach(condition_of(answer))
        return self._ended

    def flow(self) -> None:
        """The consumer grants credit, or drains the link."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ended or self._asking or self._link.credit <= 0:
            return
        unsent = self._link.session.outgoing_bytes
        if not self._connection.has_room(unsent, self._tell_room):
            return
        self._asking = True
        self._changed = False
        most = bounds.CREDIT if self._selector is None else _PAGE_SELECTED
        items = Items(
            node=self._node,
            max_items=min(self._link.credit, most),
            after=str(self._cursor),
            state=self._state,
        )
        connection = self._connection
        answer = connection.guarded(self._answer)
        connection.engine.request(items, connection.jid, answer)

    def _answer(self, result: Result | Refusal, payloads: Mapping[int, str]) -> None:
        if self._is_over(result):
            return
        assert isinstance(result, ItemsResult)
        connection = self._connection
        for item in result.items:
            self._cursor = item.seq
            if self._passes(item):
                message = render_item(item, payloads.get(item.seq, ""), result.now)
                delivery = transfer(self._link, f"{item.seq}", message)
                if self._link.snd_settle_mode == Link.SND_SETTLED:
                    delivery.settle()
                elif self._terminus is not None:
                    self._unsettled[item.seq] = None
            if self._ended:
                return
            if self._selector and connection.engine.selector_time.is_over:
                # The others of this page are asked for again, in another turn.
                break
        self._save()
        if (result.items or self._changed) and self._link.credit > 0:
            self.flow()
        elif self._link.credit > 0:
            if self._link.drain_mode:
                self._link.drained()
            elif self._wait_s is not None:
                self._look(self._wait_s)
        self._connection.write_soon()

    def _passes(self, item: Item) -> bool:
        """Whether the item is wanted; if that has become too dear, the link ends."""
        if self._selector is None:
            return True
        time, account = (
            self._connection.engine.selector_time,
            bare(self._connection.jid),
        )
        matches, spent = time.evaluate(self._selector, ItemNames(item), (account,))
        if spent:
            text = too_dear(account, time.wait_s(account))
            self._detach(Condition(RESOURCE_LIMIT, text))
        return matches and not spent

    def _look(self, seconds: float) -> None:
        """Look for items in so many seconds, and no earlier."""
        if self._timer is not None:
            self._timer.cancel()
        look = self._connection.guarded(self.flow)
        self._timer = asyncio.get_running_loop().call_later(seconds, look)

    def _tell_room(self) -> None:
        if not self._ended:
            self._look(0)

    def _wake(self) -> None:
        """New items are on disk, or the node is deleted."""
        if not self._changed:
            self._changed = True
            self._look(0)

    def delivery(self, delivery: Delivery) -> None:
        """Take the state that the consumer sets for a copy; the item does not change."""
        if self._ended:
            return
        if delivery.settled or delivery.remote_state:
            if self._terminus is None:
                _settle(delivery)
            else:
                self._unsettled.pop(int(delivery.tag), None)
                self._waiting.append(delivery)
                self._save()
            self._connection.write_soon()

    def _save(self) -> None:
        """Write the cursor of a durable terminus, and then settle."""
        if self._terminus is None or self._saving or self._ended:
            return
        # All before the first copy that is not settled.
        first = next(iter(self._unsettled), self._cursor + 1)
        if first - 1 > self._terminus.cursor:
            self._terminus = replace(self._terminus, cursor=first - 1)
            self._saving = True
            waiting, self._waiting = self._waiting, []
            self._keep(self._terminus, partial(self._saved, waiting))
        else:
            self._settle(self._waiting)
            self._waiting = []

    def _saved(
        self,
        waiting: list[Delivery],
        result: Result | Refusal,
        _payloads: Mapping[int, str],
    ) -> None:
        self._saving = False
        if self._ended:
            return
        if isinstance(result, Refusal):
            self._detach(condition_of(result))
            return
        self._settle(waiting)
        self._save()
        self._connection.write_soon()

    def _settle(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            _settle(delivery)

    @property
    def ended(self) -> bool:
        """Whether the link and its terminus have ended."""
        return self._ended

    def suspend(self, seconds: float | None) -> None:
        """End the link, and keep its durable terminus for so many seconds; None: without a timer."""
        assert self._terminus is not None
        self._stop()
        self._connection.engine.request(
            Suspend(self._node, seconds), self._terminus.jid, _ignore
        )

    def end(self, *, released: bool) -> None:
        """End the link and its terminus."""
        if self._terminus is not None and not self._ended:
            self._connection.engine.departed(self._terminus.jid)
        self._stop()

    def _stop(self) -> None:
        self._ended = True
        self._connection.engine.unwatch(self._node, self._wake)
        if self._timer is not None:
            self._timer.cancel()

    def _detach(self, condition: Condition) -> None:
        self.end(released=True)
        if self._link.state & Link.LOCAL_UNINIT:
            self._link.source.type = self._link.source.UNSPECIFIED
            self._link.open()
        self._connection.detach(self._link, condition)


def _settle(delivery: Delivery) -> None:
    """Settle a copy with the state that its consumer has set."""
    if not delivery.settled:
        delivery.update(delivery.remote_state)
    delivery.settle()


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """The node may be gone by now."""
