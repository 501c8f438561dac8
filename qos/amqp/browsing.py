"""A link that copies: its consumer sees the items of a node, and takes none away.

Messaging §3.5.2: what was sent is never sent again on this link. The items have an
order, so a cursor is enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from proton import Condition, Delivery, Link, Sender

from qos.amqp import bounds
from qos.amqp.conditions import condition_of
from qos.core.amqp.messages import render_item
from qos.core.queue.item_names import ItemNames
from qos.core.queue.requests import Items, ItemsResult, Refusal, Result
from qos.core.queue.selector import Selector, SelectorError, parse
from qos.engine.queue_engine import QueueEngine

if TYPE_CHECKING:
    from qos.amqp.connection import AmqpConnection

__all__ = ["BrowsingLink", "split_address"]

#: Seconds until a link with credit looks for new items again.
_LOOK_S = 1.0

_STATES = {"?dead": "dead", "?accepted": "accepted"}


def split_address(address: str, engine: QueueEngine, jid: str) -> tuple[str, str]:
    """The node of an address, and the state of the items to browse.

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
        connection: AmqpConnection,
        link: Sender,
        node: str,
        *,
        state: str,
        selector: str,
    ) -> None:
        """Begin at the first item.

        Args:
            connection: the connection.
            link: attached by the peer, and not yet by us.
            node: the name of the node.
            state: of the items, as in `Items`.
            selector: of the items that it wants; '': of all.
        """
        self._connection = connection
        self._link = link
        self._node = node
        self._state = state
        self._selector: Selector | None = None
        self._cursor = 0
        self._asking = False
        self._ended = False
        self._timer: asyncio.TimerHandle | None = None
        try:
            if selector:
                self._selector = parse(selector)
        except SelectorError as error:
            text = f"the selector: {error}"
            refusal = Refusal(text, condition="bad-request", type="modify")
            self._detach(condition_of(refusal))
            return
        link.open()
        self.flow()

    def flow(self) -> None:
        """The consumer grants credit, or drains the link."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ended or self._asking or self._link.credit <= 0:
            return
        self._asking = True
        items = Items(
            node=self._node,
            max_items=min(self._link.credit, bounds.CREDIT),
            after=str(self._cursor),
            state=self._state,
        )
        connection = self._connection
        answer = connection.guarded(self._answer)
        connection.engine.request(items, connection.jid, answer)

    def _answer(self, result: Result | Refusal, payloads: Mapping[int, str]) -> None:
        self._asking = False
        if self._ended:
            return
        if isinstance(result, Refusal):
            self._detach(condition_of(result))
            return
        assert isinstance(result, ItemsResult)
        for item in result.items:
            self._cursor = item.seq
            if self._selector is None or self._selector.matches(ItemNames(item)):
                delivery = self._link.delivery(f"{item.seq}")
                message = render_item(item, payloads.get(item.seq, ""), result.now)
                self._link.stream(message)
                self._link.advance()
                if self._link.snd_settle_mode == Link.SND_SETTLED:
                    delivery.settle()
        if result.items and self._link.credit > 0:
            self.flow()
        elif self._link.credit > 0:
            if self._link.drain_mode:
                self._link.drained()
            else:
                loop = asyncio.get_running_loop()
                look = self._connection.guarded(self.flow)
                self._timer = loop.call_later(_LOOK_S, look)
        self._connection.write_soon()

    def delivery(self, delivery: Delivery) -> None:
        """The consumer tells the state of a copy: whatever it is, nothing changes."""
        if delivery.settled or delivery.remote_state:
            if not delivery.settled:
                delivery.update(delivery.remote_state)
            delivery.settle()
            self._connection.write_soon()

    def end(self, *, released: bool) -> None:
        """The link is gone."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    def _detach(self, condition: Condition) -> None:
        self.end(released=True)
        if self._link.state & Link.LOCAL_UNINIT:
            self._link.source.type = self._link.source.UNSPECIFIED
            self._link.open()
        self._link.condition = condition
        self._link.close()
        self._connection.write_soon()
