"""The plugin for clients that publish to a queue or work on one.

It sends requests to a service and returns the answers; it passes the events of a node
to listeners. It has no state of its own: `qos.worker` keeps the items of a worker.
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
from qos.core.contents import Json
from qos.core.queue.item import Affiliation, ItemOutcome
from qos.engine.retry import Retry
from qos.errors import RequestRefused
from qos.jids import jid_of
from qos.stream.per_stream import plugin_of
from xep_0254 import client_answers, client_stanza
from xep_0254.channel import Channel, Listener
from xep_0254.events import DeliveredItem, Event
from xep_0254.items import BrowsedItem, NewItem, NodeInfo, Page, Published
from xep_0254.namespaces import QUEUEING

__all__ = [
    "XEP_0254",
    "BrowsedItem",
    "DeliveredItem",
    "Event",
    "Listener",
    "NewItem",
    "NodeInfo",
    "Page",
]

#: The longest delay between two attempts of a publish, in seconds: a longer one would
#: only make its caller wait.
_RETRY_S_MAX = 30.0


class XEP_0254(BasePlugin):
    """PubSub Queueing, the side of publishers and workers.

    Every method that sends a request raises `RequestRefused` for an error. It raises
    `NoAnswer` when no answer came in time or the session was lost: then the request may
    have been done. A wrong argument raises InvalidArgument, and a request that is too
    large MessageTooLarge.

    Options: `timeout_s`, the time to wait for an answer; `retry_s`, the delay before
    the first repeat of a publish; `stanza_bytes_max`, the server's limit, beyond which
    nothing is sent.
    """

    name = "xep_0254"
    description = "XEP-0254: PubSub Queueing"
    dependencies: ClassVar[set[str]] = set()
    default_config: ClassVar[dict[str, Any]] = {
        "timeout_s": 30.0,
        "retry_s": 1.0,
        #: Prosody's default for clients, the strictest of the common servers.
        "stanza_bytes_max": 256 * 1024,
    }

    timeout_s: float
    retry_s: float
    stanza_bytes_max: int

    @classmethod
    def of(cls, xmpp: BaseXMPP) -> XEP_0254:
        """The plugin of a stream, which is registered if the stream has none.

        Call `register_plugin("xep_0254", options)` first if the plugin needs options.

        Raises:
            InvalidArgument: `xmpp` is not a stream of slixmpp.
        """
        arguments.instance(BaseXMPP, "xmpp", xmpp, "a client or component of slixmpp")
        if cls.name not in xmpp.plugin:
            xmpp.register_plugin(cls.name)
        return plugin_of(xmpp, cls)

    # -- nodes -------------------------------------------------------------

    async def create(
        self,
        service: str | JID,
        node: str = "",
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Create a queue; returns its name.

        Args:
            service: the JID of the service.
            node: the name of the queue; '': the service chooses one.
            config: values by the full names of the form's fields, such as
                `queue#lock_timeout`; the other fields get their defaults.
        """
        content = client_stanza.create(node, {} if config is None else config)
        return client_answers.created(await self._set(service, content, "create"), node)

    async def configure(
        self, service: str | JID, node: str, config: Mapping[str, str]
    ) -> None:
        """Change the configuration of a queue; fields not given stay."""
        await self._set(service, client_stanza.configure(node, config), "configure")

    async def configuration(self, service: str | JID, node: str) -> dict[str, str]:
        """The configuration of a queue, by the full names of the form's fields."""
        content = client_stanza.of_owner("configure", node)
        return client_answers.configuration(
            await self._get(service, content, "show options")
        )

    async def delete(self, service: str | JID, node: str) -> None:
        """Delete a queue with all its items, and everything promised about them."""
        await self._set(service, client_stanza.of_owner("delete", node), "delete")

    async def purge(self, service: str | JID, node: str) -> None:
        """Remove all items of a queue, locked and dead ones too."""
        await self._set(service, client_stanza.of_owner("purge", node), "purge")

    async def affiliations(
        self, service: str | JID, node: str
    ) -> dict[str, Affiliation]:
        """The affiliations with a queue, by bare JID, for its owner."""
        content = client_stanza.of_owner("affiliations", node)
        answer = await self._get(service, content, "show affiliations")
        return client_answers.affiliations(answer)

    async def set_affiliations(
        self, service: str | JID, node: str, affiliations: Mapping[str, Affiliation]
    ) -> None:
        """Change the affiliations of these bare JIDs with a queue; NONE: remove them.

        `@` and a domain: of all its accounts that have none of their own. It is the
        same as the JID of the domain, as which `affiliations` returns it.
        """
        content = client_stanza.set_affiliations(node, affiliations)
        await self._set(service, content, "change affiliations")

    async def supports_queueing(self, service: str | JID) -> bool:
        """Whether the service announces that it has queues (XEP-0254 §3)."""
        answer = await self._get(service, client_stanza.info(), "say what it is")
        return QUEUEING in client_answers.features(answer)

    async def nodes(self, service: str | JID) -> list[str]:
        """The names of the queues that the service shows to us (XEP-0060 §5.2)."""
        names: list[str] = []
        after = ""
        while True:
            answer = await self._get(
                service, client_stanza.nodes(after), "list its queues"
            )
            page, last = client_answers.node_names(answer)
            names += page
            if last in {"", after}:
                return names
            after = last

    async def stats(
        self, service: str | JID, node: str
    ) -> dict[str, int | float | None]:
        """The counts of a queue, by name: `available`, `acquired`, `dead` and so on.

        None: there is no number, such as the age of the oldest item of an empty queue.
        Empty: the service has no such extension.
        """
        return dict((await self.node_info(service, node)).stats)

    async def node_info(self, service: str | JID, node: str) -> NodeInfo:
        """The type of a node, `queue` or `topic`, and its counts (XEP-0060 §5.4)."""
        arguments.text("node", node, empty=False)
        content = client_stanza.info(node)
        with client_answers.missing_named(node):
            answer = await self._get(service, content, f"describe {node!r}")
        return client_answers.node_info(answer)

    # -- publishers --------------------------------------------------------

    async def publish(
        self,
        service: str | JID,
        node: str,
        entries: Sequence[NewItem] = (),
        *,
        json: Json = None,
        text: str | None = None,
        attempts: int = 5,
    ) -> list[Published]:
        """Publish items, all or none; they are on the service's disk on return.

        Without an answer the same ids are sent again. A service of ours recognises them
        (`queue#dedupe_window`), so that each item is in the queue once. Another service
        replaces the item, or answers that it exists already.

        Args:
            service: the JID of the service.
            node: the name of the queue.
            entries: the items.
            json: a value, which is published as one item in JSON; null has to be
                inside of a value, see NewItem.
            text: likewise, a text.
            attempts: the most attempts.

        Returns:
            Each item, and whether the service had it before.

        Raises:
            NoAnswer: no attempt had an answer; to be sure, publish the same NewItems
                again within the dedupe window.
        """
        arguments.whole("attempts", attempts, least=1)
        if json is not None or text is not None:
            entries = [*entries, NewItem(json=json, text=text)]
        content = client_stanza.publish(node, entries)
        answer = await Retry(self.backoff).repeat(
            lambda: self._set(service, content, "publish"),
            is_temporary=lambda error: error.unreachable,
            pause=self.pause,
            attempts_max=attempts,
        )
        return client_answers.published(answer, [entry.item_id for entry in entries])

    async def items(
        self,
        service: str | JID,
        node: str,
        *,
        state: Literal["live", "accepted", "dead"] = "live",
        max_items: int | None = None,
        after: str = "",
    ) -> Page:
        """Browse items; this locks nothing and does not count as a delivery.

        Args:
            service: the JID of the service.
            node: the name of the queue.
            state: `live` (available, delayed and acquired), `accepted` (those that are
                still kept) or `dead`.
            max_items: the most items; None: as many as fit into an answer.
            after: `last` of the previous page.
        """
        content = client_stanza.items(node, state, max_items, after)
        return client_answers.page(await self._get(service, content, "show items"))

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
        """Put dead items back into their queue; returns their ids.

        Args:
            service: the JID of the service.
            node: the name of the queue where they died.
            item_ids: the ids that they had there: all of them are put back, or none.
                (): see requeue_all.
        """
        content = client_stanza.requeue(node, item_ids)
        if not item_ids:
            return [item_id async for item_id in self.requeue_all(service, node)]
        answer = await self._set(service, content, "requeue")
        return client_answers.requeued(answer)[0]

    async def requeue_all(self, service: str | JID, node: str) -> AsyncIterator[str]:
        """Put all dead items back into their queue, some at a time; yields their ids.

        Those that a worker of the dead-letter node has, and those whose id is in use
        again, stay where they are. What dies again meanwhile is put back once. Ended in
        the middle, the rest stays dead, and the next call goes on with it.

        Args: see requeue.
        """
        after = ""
        while True:
            content = client_stanza.requeue(node, (), after)
            answer = await self._set(service, content, "requeue")
            item_ids, last = client_answers.requeued(answer)
            for item_id in item_ids:
                yield item_id
            if last in {"", after}:
                return
            after = last

    # -- workers -----------------------------------------------------------

    async def subscribe(
        self,
        service: str | JID,
        node: str,
        *,
        queue_requests: int,
        batch: int = 1,
        durable_locks: bool = False,
        resumable_locks: bool = False,
        new_worker: bool = False,
        events: Literal["message", "acknowledged"] = "message",
        selector: str = "",
        jid: str | JID | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """Subscribe to the items of a queue; returns the subid.

        Again: changes the options.

        Args:
            service: the JID of the service.
            node: the name of the queue.
            queue_requests: the most items at a time.
            batch: the most items in one event.
            durable_locks: keep items locked for the account while it is away.
            resumable_locks: keep items locked for this worker while it is away. When it
                comes back, perhaps under another full JID, it takes them up by `extend`
                with their tokens, and then subscribes.
            new_worker: this is no worker that comes back: items that this full JID had
                before were of one that has died, and their deliveries have failed.
            events: `acknowledged`: sent by xep_qos, which must be loaded and trust the
                service.
            selector: the condition on the items, such as `color = 'red' AND n > 5`;
                '': all.
            jid: the JID that gets the items; None: this full JID.
            timeout_s: the time to wait for an answer; None: as in the plugin's options.

        Raises:
            RequestRefused: also if the service has no selectors, and one is given.
        """
        options = client_stanza.subscribe_options(
            queue_requests=queue_requests,
            batch=batch,
            durable_locks=durable_locks,
            resumable_locks=resumable_locks,
            new_worker=new_worker,
            events=events,
            selector=selector,
        )
        content = client_stanza.subscribe(node, self._subscriber(jid), options)
        answer = await self._set(service, content, "subscribe", timeout_s)
        if selector and not client_answers.selects(answer):
            # It has left out what it does not know: all items would come.
            await self.unsubscribe(service, node, jid=jid, timeout_s=timeout_s)
            raise RequestRefused(
                "feature-not-implemented",
                to=str(service),
                what="subscribe with a selector",
                type="cancel",
                text="the service has no selectors",
            )
        return client_answers.subscribed(answer)

    async def unsubscribe(
        self,
        service: str | JID,
        node: str,
        *,
        jid: str | JID | None = None,
        subid: str = "",
        timeout_s: float | None = None,
    ) -> None:
        """End the subscription; locked items stay locked."""
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
        """Delete an item that is done; with a token, only if it is of that delivery.

        With the token this can be repeated until there is an answer: a service of ours
        knows which delivery settled an item.
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
            service: the JID of the service; a service of ours accepts up to 1000 items.
            node: the name of the queue.
            items: their ids, each with the token of its delivery, or ''.
            timeout_s: the time to wait for an answer; None: as in the plugin's options.
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
        """Unlock an item, with an outcome.

        Args:
            service: the JID of the service.
            node: the name of the queue.
            item_id: the id of the item.
            token: the token of the delivery.
            outcome: released, modified or rejected (AMQP 1.0 messaging §3.4).
            delivery_failed: for modified: whether it counts as a failed delivery.
            undeliverable_here: for modified: do not deliver it to this full JID again.
            reason: of rejected, and of modified with `delivery_failed`: it stands in the
                history of the item.
            timeout_s: the time to wait for an answer; None: as in the plugin's options.
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
        """Keep an item locked for this number of seconds from now.

        Returns the granted number.
        """
        content = client_stanza.extend(node, item_id, token, seconds)
        action = f"extend {item_id!r}"
        answer = await self._set(service, content, action, timeout_s)
        return client_answers.extended_by(answer, seconds)

    # -- events ------------------------------------------------------------

    def add_listener(self, service: str | JID, node: str, callback: Listener) -> None:
        """Call this with each event of this node that the service sends to our JID.

        Other handlers do not get the message of the event.
        """
        self._channel.add_listener(service, node, callback)

    def remove_listener(
        self, service: str | JID, node: str, callback: Listener
    ) -> None:
        """Stop calling this; harmless if it was never added."""
        self._channel.remove_listener(service, node, callback)

    # -- requests ----------------------------------------------------------

    async def _get(self, service: str | JID, content: str, action: str) -> ET.Element:
        return await self._channel.ask("get", service, content, action, self.timeout_s)

    async def _set(
        self,
        service: str | JID,
        content: str,
        action: str,
        timeout_s: float | None = None,
    ) -> ET.Element:
        limit = self.timeout_s if timeout_s is None else timeout_s
        return await self._channel.ask("set", service, content, action, limit)

    def _subscriber(self, jid: str | JID | None) -> str:
        return self.own or "" if jid is None else jid_of("jid", jid)

    @property
    def backoff(self) -> Backoff:
        """The delays between the attempts of a publish."""
        return Backoff(first_s=self.retry_s, max_s=max(self.retry_s, _RETRY_S_MAX))

    @property
    def own(self) -> str | None:
        """Our full JID while there is a session."""
        return self._channel.own

    async def session(self) -> None:
        """Wait until there is a session."""
        await self._channel.in_session.wait()

    async def pause(self, delay_s: float) -> None:
        """Wait before an attempt; without a session, wait only until there is one."""
        await self._channel.pause(delay_s)

    # -- slixmpp -----------------------------------------------------------

    def __init__(self, xmpp: Any, config: Any = None) -> None:
        super().__init__(xmpp, config)
        self._started = False

    def plugin_init(self) -> None:
        """Insert the plugin into the stream.

        Raises:
            ValueError: an option is not valid.
        """
        try:
            self._check_options()
        except ValueError:
            # slixmpp has put the plugin on its list before; it must not stay there
            # unusable.
            self.xmpp.plugin.disable(self.name)  # type: ignore[attr-defined]
            raise
        self._channel = Channel(self.xmpp, stanza_bytes_max=self.stanza_bytes_max)
        self._started = True

    def _check_options(self) -> None:
        for name in self.config:
            if name not in self.default_config:
                options = ", ".join(sorted(self.default_config))
                raise ValueError(f"xep_0254 has no option {name!r}; it has {options}")
        arguments.seconds("timeout_s", self.timeout_s)
        arguments.seconds("retry_s", self.retry_s)
        arguments.whole("stanza_bytes_max", self.stanza_bytes_max, least=1_000)

    def plugin_end(self) -> None:
        """Leave the stream as it was; waiting requests get no answer."""
        if self._started:
            self._started = False
            self._channel.close()
