"""The plugin of those who publish to a queue or work on one.

It asks a service and gives back what is answered; it hands on the events of a node
to whoever listens. It keeps nothing: what a worker holds, `qos.worker` knows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, Literal
from xml.etree import ElementTree as ET

from slixmpp import JID
from slixmpp.basexmpp import BaseXMPP
from slixmpp.plugins.base import BasePlugin

from qos import arguments
from qos.core.backoff import Backoff
from qos.core.queue.item import Affiliation, ItemOutcome
from qos.core.queue.node_options import QUEUE_REQUESTS
from qos.engine.retry import Retry
from qos.errors import InvalidArgument
from qos.jids import jid_of
from xep_0254 import client_stanza
from xep_0254.channel import Channel, Listener
from xep_0254.client_stanza import BrowsedItem, NewItem, Page
from xep_0254.events import DeliveredItem, Event
from xep_0254.namespaces import QUEUEING

__all__ = [
    "XEP_0254",
    "BrowsedItem",
    "DeliveredItem",
    "Event",
    "Listener",
    "NewItem",
    "Page",
]

#: Between two attempts of a publish: no longer, or its caller waits for nothing.
_RETRY_S_MAX = 30.0


class XEP_0254(BasePlugin):
    """PubSub Queueing, the side of publishers and workers.

    Every method that asks raises `RequestRefused` for an error, and `NoAnswer` when
    none came in time or the session was lost: then it may have been done. A wrong
    argument raises InvalidArgument, and what is too large to be sent MessageTooLarge.

    Options: `timeout_s`, to wait for an answer; `retry_s`, before the first repeat of
    a publish; `stanza_bytes_max`, the server's limit, beyond which nothing is sent.
    """

    name = "xep_0254"
    description = "XEP-0254: PubSub Queueing"
    dependencies: ClassVar[set[str]] = set()
    default_config: ClassVar[dict[str, Any]] = {
        "timeout_s": 30.0,
        "retry_s": 1.0,
        #: Prosody's default for clients, the strictest that is common.
        "stanza_bytes_max": 256 * 1024,
    }

    timeout_s: float
    retry_s: float
    stanza_bytes_max: int

    @classmethod
    def of(cls, xmpp: BaseXMPP) -> XEP_0254:
        """The plugin of a stream.

        Raises:
            LookupError: it was not registered.
        """
        arguments.instance(BaseXMPP, "xmpp", xmpp, "a client or component of slixmpp")
        plugin = xmpp.plugin.get(cls.name, None)
        if not isinstance(plugin, cls):
            raise LookupError(
                "xep_0254 is not registered: import xep_0254, then "
                "client.register_plugin('xep_0254')"
            )
        return plugin

    # -- nodes -------------------------------------------------------------

    async def create(
        self,
        service: str | JID,
        node: str = "",
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Create a queue; returns its name.

        Args:
            service: where.
            node: its name; '': the service makes one up.
            config: values by the full names of the form's fields, such as
                `queue#lock_timeout`; the rest are defaults.
        """
        content = client_stanza.create(node, {} if config is None else config)
        return client_stanza.created(await self._set(service, content, "create"), node)

    async def configure(
        self, service: str | JID, node: str, config: Mapping[str, str]
    ) -> None:
        """Change the configuration of a queue; what is not given stays."""
        await self._set(service, client_stanza.configure(node, config), "configure")

    async def configuration(self, service: str | JID, node: str) -> dict[str, str]:
        """The configuration of a queue, by the full names of the form's fields."""
        content = client_stanza.of_owner("configure", node)
        return client_stanza.configuration(
            await self._get(service, content, "show options")
        )

    async def delete(self, service: str | JID, node: str) -> None:
        """Delete a queue, with all that is in it, and every promise about it."""
        await self._set(service, client_stanza.of_owner("delete", node), "delete")

    async def purge(self, service: str | JID, node: str) -> None:
        """Remove all items of a queue, locked and dead ones too."""
        await self._set(service, client_stanza.of_owner("purge", node), "purge")

    async def affiliations(
        self, service: str | JID, node: str
    ) -> dict[str, Affiliation]:
        """Who is what to a queue, by bare JID, for its owner."""
        content = client_stanza.of_owner("affiliations", node)
        answer = await self._get(service, content, "show affiliations")
        return client_stanza.affiliations(answer)

    async def set_affiliations(
        self, service: str | JID, node: str, affiliations: Mapping[str, Affiliation]
    ) -> None:
        """Change what these bare JIDs are to a queue; NONE: nothing any more."""
        content = client_stanza.set_affiliations(node, affiliations)
        await self._set(service, content, "change affiliations")

    async def supports_queueing(self, service: str | JID) -> bool:
        """Whether the service says that it has queues (XEP-0254 §3)."""
        answer = await self._get(service, client_stanza.info(), "say what it is")
        return QUEUEING in client_stanza.features(answer)

    async def nodes(self, service: str | JID) -> list[str]:
        """The names of the queues that the service shows us (XEP-0060 §5.2)."""
        names: list[str] = []
        after = ""
        while True:
            answer = await self._get(
                service, client_stanza.nodes(after), "list its queues"
            )
            page, last = client_stanza.node_names(answer)
            names += page
            if last in {"", after}:
                return names
            after = last

    async def stats(
        self, service: str | JID, node: str
    ) -> dict[str, int | float | None]:
        """The numbers of a queue, by name: `available`, `acquired`, `dead` and so on.

        None: there is no number (the age of the oldest item of none). Empty: the
        service has no such extension.
        """
        arguments.text("node", node, empty=False)
        answer = await self._get(service, client_stanza.info(node), "show numbers")
        return client_stanza.statistics(answer)

    # -- publishers --------------------------------------------------------

    async def publish(
        self,
        service: str | JID,
        node: str,
        entries: Sequence[NewItem],
        *,
        attempts: int = 5,
    ) -> list[str]:
        """Publish items, all or none; they are on the service's disk on return.

        Without an answer the same ids are sent again: a service of ours knows them
        (`queue#dedupe_window`), so that there is one item of each, and another
        replaces it, or says that there is one already.

        Args:
            service: where.
            node: to which queue.
            entries: the items.
            attempts: how often it is sent, at most.

        Returns:
            The ids.

        Raises:
            NoAnswer: there was none to any attempt; publish the same NewItems again
                to be sure, within the dedupe window.
        """
        arguments.whole("attempts", attempts, least=1)
        content = client_stanza.publish(node, entries)
        backoff = Backoff(first_s=self.retry_s, max_s=max(self.retry_s, _RETRY_S_MAX))
        answer = await Retry(backoff).repeat(
            lambda: self._set(service, content, "publish"),
            may_pass=lambda error: error.unreachable,
            pause=self.pause,
            attempts_max=attempts,
        )
        return client_stanza.published(answer, [each.item_id for each in entries])

    async def items(
        self,
        service: str | JID,
        node: str,
        *,
        state: Literal["live", "accepted", "dead"] = "live",
        max_items: int | None = None,
        after: str = "",
    ) -> Page:
        """Look at items, which locks nothing and counts nothing.

        Args:
            service: where.
            node: in which queue.
            state: `live` (available, delayed and acquired), `accepted` (those that
                are kept) or `dead`.
            max_items: at most so many; None: as many as go into an answer.
            after: `last` of the page before.
        """
        content = client_stanza.items(node, state, max_items, after)
        return client_stanza.page(await self._get(service, content, "show items"))

    async def browse(
        self,
        service: str | JID,
        node: str,
        *,
        state: Literal["live", "accepted", "dead"] = "live",
    ) -> AsyncIterator[BrowsedItem]:
        """All items of a queue, page by page, each once; see items."""
        after = ""
        while True:
            page = await self.items(service, node, state=state, after=after)
            for item in page.items:
                yield item
            if not page.items or page.last in {"", after}:
                return
            after = page.last

    async def requeue(
        self, service: str | JID, node: str, item_ids: Sequence[str] = ()
    ) -> list[str]:
        """Give dead items a new life, () for all; returns their ids."""
        content = client_stanza.requeue(node, item_ids)
        return client_stanza.requeued(await self._set(service, content, "requeue"))

    # -- workers -----------------------------------------------------------

    async def subscribe(
        self,
        service: str | JID,
        node: str,
        *,
        queue_requests: int,
        batch: int = 1,
        durable_locks: bool = False,
        events: Literal["message", "acknowledged"] = "message",
        jid: str | JID | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """Ask for items of a queue; returns the subid. Again: changes the options.

        Args:
            service: where.
            node: of which queue.
            queue_requests: so many at a time, at most.
            batch: so many in one event, at most.
            durable_locks: keep items locked for the account while it is away.
            events: `acknowledged`: by xep_qos, which must be loaded and trust the
                service.
            jid: who is to have them; None: this full JID.
            timeout_s: how long to wait for an answer; None: the option.
        """
        arguments.whole("queue_requests", queue_requests, least=1)
        arguments.whole("batch", batch, least=1)
        arguments.flag("durable_locks", durable_locks)
        if events not in ("message", "acknowledged"):
            raise InvalidArgument("events", events, "'message' or 'acknowledged'")
        options = {
            QUEUE_REQUESTS: str(queue_requests),
            "queue#batch": str(batch),
            "queue#durable_locks": "1" if durable_locks else "0",
            "queue#events": events,
        }
        content = client_stanza.subscribe(node, self._subscriber(jid), options)
        answer = await self._set(service, content, "subscribe", timeout_s)
        return client_stanza.subscribed(answer)

    async def unsubscribe(
        self,
        service: str | JID,
        node: str,
        *,
        jid: str | JID | None = None,
        subid: str = "",
        timeout_s: float | None = None,
    ) -> None:
        """Ask for no more items; those that are locked stay so."""
        content = client_stanza.unsubscribe(node, self._subscriber(jid), subid)
        await self._set(service, content, "unsubscribe", timeout_s)

    async def retract(
        self,
        service: str | JID,
        node: str,
        item_id: str,
        token: str = "",
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Delete an item that is done; with its token, that delivery and no other.

        With the token it can be repeated until there is an answer: a service of ours
        knows which one settled an item.
        """
        content = client_stanza.retract(node, [(item_id, token)])
        await self._set(service, content, f"retract {item_id!r}", timeout_s)

    async def retract_all(
        self,
        service: str | JID,
        node: str,
        items: Sequence[tuple[str, str]],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Delete items that are done, all or none, in one request.

        Args:
            service: where; a service of ours takes up to 1000 items.
            node: in which queue.
            items: their ids, each with the token of its delivery, or ''.
            timeout_s: how long to wait for an answer; None: the option.
        """
        arguments.sequence("items", items, "pair of id and token", empty=False)
        content = client_stanza.retract(node, items)
        await self._set(service, content, f"retract {len(items)} items", timeout_s)

    async def unlock(
        self,
        service: str | JID,
        node: str,
        item_id: str,
        token: str = "",
        *,
        outcome: ItemOutcome = ItemOutcome.RELEASED,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        reason: str = "",
        timeout_s: float | None = None,
    ) -> None:
        """Give an item back.

        Args:
            service: where.
            node: in which queue.
            item_id: which.
            token: of the delivery.
            outcome: released, modified or rejected (AMQP 1.0 messaging §3.4).
            delivery_failed: of modified: it counts as a failed delivery.
            undeliverable_here: of modified: not to this full JID again.
            reason: of rejected.
            timeout_s: how long to wait for an answer; None: the option.
        """
        content = client_stanza.unlock(
            node,
            item_id,
            token,
            arguments.member(ItemOutcome, "outcome", outcome),
            delivery_failed=delivery_failed,
            undeliverable_here=undeliverable_here,
            reason=reason,
        )
        await self._set(service, content, f"unlock {item_id!r}", timeout_s)

    async def extend(
        self,
        service: str | JID,
        node: str,
        item_id: str,
        token: str,
        seconds: float,
        *,
        timeout_s: float | None = None,
    ) -> float:
        """Keep an item so many seconds from now; returns how many there will be."""
        content = client_stanza.extend(node, item_id, token, seconds)
        what = f"extend {item_id!r}"
        answer = await self._set(service, content, what, timeout_s)
        return client_stanza.extended_by(answer, seconds)

    # -- events ------------------------------------------------------------

    def add_listener(self, service: str | JID, node: str, callback: Listener) -> None:
        """Call with each event of this node that the service sends to our full JID.

        The message it came in goes to no other handler.
        """
        self._channel.add_listener(service, node, callback)

    def remove_listener(
        self, service: str | JID, node: str, callback: Listener
    ) -> None:
        """Do not call any more; no harm if it never was to be called."""
        self._channel.remove_listener(service, node, callback)

    # -- requests ----------------------------------------------------------

    async def _get(self, service: str | JID, content: str, what: str) -> ET.Element:
        return await self._channel.ask("get", service, content, what, self.timeout_s)

    async def _set(
        self,
        service: str | JID,
        content: str,
        what: str,
        timeout_s: float | None = None,
    ) -> ET.Element:
        limit = self.timeout_s if timeout_s is None else timeout_s
        return await self._channel.ask("set", service, content, what, limit)

    def _subscriber(self, jid: str | JID | None) -> str:
        return self.own or "" if jid is None else jid_of("jid", jid)

    @property
    def own(self) -> str | None:
        """Our full JID while there is a session."""
        return self._channel.own

    async def session(self) -> None:
        """Wait until there is one."""
        await self._channel.in_session.wait()

    async def pause(self, delay_s: float) -> None:
        """Wait before an attempt; while there is no session, no longer than for one."""
        await self._channel.pause(delay_s)

    # -- slixmpp -----------------------------------------------------------

    def __init__(self, xmpp: Any, config: Any = None) -> None:
        super().__init__(xmpp, config)
        self._started = False

    def plugin_init(self) -> None:
        """Step into the stream.

        Raises:
            ValueError: an option is bad.
        """
        try:
            self._check_options()
        except ValueError:
            # slixmpp has put it on its list before; as it is, it is of no use.
            self.xmpp.plugin.disable(self.name)  # type: ignore[attr-defined]
            raise
        self._channel = Channel(self.xmpp, stanza_bytes_max=self.stanza_bytes_max)
        self._started = True

    def _check_options(self) -> None:
        for name in self.config:
            if name not in self.default_config:
                known = ", ".join(sorted(self.default_config))
                raise ValueError(f"xep_0254 has no option {name!r}; it has {known}")
        arguments.seconds("timeout_s", self.timeout_s)
        arguments.seconds("retry_s", self.retry_s)
        arguments.whole("stanza_bytes_max", self.stanza_bytes_max, least=1_000)

    def plugin_end(self) -> None:
        """Leave the stream as it was; who waits for an answer gets none."""
        if self._started:
            self._started = False
            self._channel.close()
