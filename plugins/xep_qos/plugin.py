"""The plugin: its methods for an application, and those that slixmpp calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Unpack

from slixmpp import JID
from slixmpp.basexmpp import BaseXMPP
from slixmpp.plugins.base import BasePlugin
from slixmpp.plugins.xep_0030.stanza.info import DiscoInfo
from slixmpp.stanza import Message
from slixmpp.xmlstream.matcher.base import MatcherBase
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos import arguments
from qos.core.backoff import Backoff
from qos.core.message.model import (
    MARKS_NAMESPACE,
    NAMESPACES,
    Incoming,
    Level,
    LevelOrWord,
    only,
)
from qos.core.record import replace
from qos.engine import Delivery, Outcome, Outstanding
from qos.errors import InvalidArgument, LocalProtocolError
from qos.jids import jid_of
from qos.stores.base import Store
from qos.stream.caps import PromptCaps
from qos.stream.gate import in_session
from qos.stream.per_stream import plugin_of
from xep_qos.batch import features as batch_features
from xep_qos.content import Json, SendOptions, addressed
from xep_qos.endpoint import Endpoint
from xep_qos.feed import Consumer, HandlerT, IncomingInfo, Match
from xep_qos.settings import Settings

__all__ = ["XEP_QOS"]


class XEP_QOS(BasePlugin):
    """Quality of Service (proto-XEP, `urn:xmpp:qos`).

    The options are those of `xep_qos.settings.Settings`. Loading opens the store, so it
    raises StoreError, or ValueError for a wrong option.
    """

    name = "xep_qos"
    description = "Quality of Service"
    dependencies: ClassVar[set[str]] = {"xep_0030", "xep_0115"}

    @classmethod
    def of(cls, xmpp: BaseXMPP) -> XEP_QOS:
        """The plugin of a stream.

        Raises:
            LookupError: the plugin was not registered.
        """
        return plugin_of(xmpp, cls)

    # -- the application ---------------------------------------------------

    async def send(
        self,
        to: str | JID | Message,
        body: str | None = None,
        **options: Unpack[SendOptions],
    ) -> Outcome:
        """Send a message and wait for its end.

        Args:
            to: as for submit.
            body: as for submit.
            options: the other arguments of submit.

        Returns:
            The outcome: delivered, or sent at level unacknowledged.

        Raises:
            NotDelivered: it was certainly not delivered.
            InDoubt: it may have been delivered.
            StillOutstanding: it was accepted, and the plugin was closed before its end.
                As for submit, it continues at the next start.
            InvalidArgument: an argument has a wrong value; nothing was stored or sent.
            MessageTooLarge, OutboxFull, LocalProtocolError, StoreError: it was not
                accepted.
        """
        delivery = await self.submit(to, body, **options)
        outcome = await delivery.outcome()
        outcome.raise_for_status()
        return outcome

    async def submit(
        self,
        to: str | JID | Message,
        body: str | None = None,
        *,
        payload: str | None = None,
        json: Json = None,
        sender: str | JID | None = None,
        level: LevelOrWord = Level.ASSURED,
        deadline_s: float | None = None,
        ordered: bool | None = None,
        msg_id: str | None = None,
    ) -> Delivery:
        """Accept a message for sending; it is as safe as the store on return.

        A message has one content: a body, a payload or json.

        Args:
            to: a full JID, or a bare one: then the message goes to a resource that
                supports QoS. Or a whole message of slixmpp with its `to`, and for a
                component its `from`.
            body: a text.
            payload: XML: a message, or the content of one.
            json: a value to be sent as JSON (XEP-0335); see `xep_qos.json_of`. None is
                no content.
            sender: of a component: the JID that the message is from.
            level: a Level, or its word, such as "assured".
            deadline_s: when to give up, in seconds; None: the option.
            ordered: whether to release it after earlier messages to this account; None:
                the option.
            msg_id: the id of the message; None: a new one. A repeated call with the
                same message and id returns the delivery that is in flight. The message
                is the same if `to` and content are the same; the stanza's own id, which
                slixmpp makes up for each Message, does not count. When the first has
                ended, a receiver of ours that remembers it (its `tombstone_ttl_s`) does
                not hand it over again, as long as this store is the same. Never use the
                id of another message.

        Raises:
            InvalidArgument: an argument has a wrong value; nothing was stored or sent.
            MessageTooLarge, OutboxFull, LocalProtocolError, StoreError: it was not
                accepted. But after an I/O error (a StoreError other than StoreFull) it
                may continue when the store is opened again. To be sure, submit it again
                under the same msg_id.
        """
        to, sender, content = addressed(self.xmpp, to, body, payload, json, sender)
        return await self._endpoint.submit(
            to, content, level, deadline_s, ordered, sender, msg_id
        )

    def delivery(self, msg_id: str) -> Delivery:
        """The delivery of an outstanding message, for example after a restart.

        Raises:
            UnknownMessage: no outstanding message has this id.
        """
        arguments.text("msg_id", msg_id)
        return self._endpoint.outbox.delivery(msg_id)

    async def outcome(self, msg_id: str) -> Outcome:
        """The outcome of a message, also from before a restart; waits for its end.

        Args:
            msg_id: its id; if several messages had it, the last one counts.

        Raises:
            UnknownMessage: no message has this id, or its outcome is not kept any more:
                see the options `outcomes_max` and `outcome_ttl_s`.
            StillOutstanding: the plugin was closed before its end.
        """
        arguments.text("msg_id", msg_id)
        return await self._endpoint.outbox.outcome(msg_id)

    def outstanding(self) -> Outstanding:
        """The messages that were accepted and have not ended, also before a restart.

        ::

            print(len(qos.outstanding()))
            for message in qos.outstanding():
                print(message.msg_id, message.to, message.state.value)

        Returns:
            An object that `len` counts, and that reads the messages from the store when
            it is iterated. A message that is being accepted is counted but not listed.
        """
        return self._endpoint.outbox.list_outstanding()

    async def purge(self) -> int:
        """Withdraw every message of ours that still can be; returns how many.

        Raises:
            StoreError: it could not be written; messages already withdrawn stay so.
        """
        return await self._endpoint.outbox.purge()

    def incoming(self, message: StanzaBase) -> IncomingInfo | None:
        """In a handler: how this message was delivered; None: as a plain message."""
        return self._endpoint.feed.incoming(_stanza(message))

    def admits(self, message: StanzaBase) -> bool | None:
        """Whether `trust` names the sender of a plain message; None: see `admitted`.

        The plugin leaves plain messages alone: they are other applications' too. A
        handler that must not act on those of strangers asks here. With
        `accepts="anyone"` it is True. A refusal is reported as those of requests are,
        if the message has a body.
        """
        return self._endpoint.plain.admits(_stanza(message).xml)

    async def admitted(self, message: StanzaBase) -> bool:
        """The same, when the roster is known or the function `trust` has answered."""
        return await self._endpoint.plain.admitted(_stanza(message).xml)

    def take_until(self, message: StanzaBase, done: asyncio.Future[None]) -> None:
        """In a handler: this message counts as taken when the future is done.

        Until then its sender gets no answer, and after a restart it is handed over
        again, marked as redelivered. (At level acknowledged the sender gets the answer
        at once: the message is on disk.) Harmless for a plain message. In a
        coroutine, or a consumer, it is too late for this: the message counts as taken
        when that ends.

        Args:
            message: as the handler got it.
            done: if it fails with a RemoteProtocolError, the message is rejected for
                good. Then it is *not delivered* with that condition and text, or *in
                doubt* if it was redelivered; a sender that is not ours is told that it
                was taken. If the future fails otherwise or is cancelled, the message is
                not handed over again until a restart, and its sender is told to try
                again.

        Raises:
            LocalProtocolError: the message is not being handed over to a handler now.
        """
        if not asyncio.isfuture(done):
            raise InvalidArgument("done", done, "a Future")
        self._endpoint.feed.take_until(_stanza(message), done)

    async def begin(self, message: StanzaBase, *, max_redeliveries: int = 10) -> bool:
        """Count a hand-over, when work on a message begins that is taken by `take_until`.

        So a message whose handling fails, or kills the process, does not come again for
        ever. The first hand-over is not written down; a later one is counted on disk
        before this returns. Harmless for a plain message.

        Args:
            message: as the handler got it.
            max_redeliveries: how often the message may come again before it is parked.

        Returns:
            Whether to work on it. False: it is parked, as after a consumer has failed;
            see `consumer`. Leave its future as it is.
        """
        arguments.whole("max_redeliveries", max_redeliveries, least=1)
        key = self._endpoint.feed.key_of(_stanza(message))
        return key is None or await self._endpoint.inbox.begin(key, max_redeliveries)

    def consumer(
        self,
        *,
        match: Match | None = None,
        name: str | None = None,
        ordered: bool = True,
        max_handovers: int = 10,
        retry_first_s: float = 1.0,
        retry_max_s: float = 300.0,
    ) -> Callable[[HandlerT], HandlerT]:
        """Register an async function that takes messages at level assured; a decorator.

        ::

            @qos.consumer(match=StanzaPath("message/fields"))
            async def keep(message: Message, handover: Handover) -> None:
                await handover.execute("INSERT INTO readings VALUES (?)", (…,))

        On a store `sqlite:PATH`, the writes of the function by `handover.execute` and
        the mark that the message is done are one transaction. Each message has its
        effects exactly once, whenever the process dies. The sender is answered after
        the transaction.

        Effects elsewhere, and on any other store all effects, can repeat in these
        cases. The process dies, or the store cannot be written, after the function has
        acted and before the mark is on disk. The function raises after it has acted. It
        is cancelled, as `aclose` does. `handover.key` is the same each time.

        If the function raises, or the application cancels it, it is tried again after a
        delay that doubles, with jitter. After `max_handovers` the message is parked:
        see `parked`. Until the message is done, its sender gets no answer, and asks
        again until its deadline; then the message is *in doubt*.

        A message goes to the first consumer that matches it, and to no handler of
        slixmpp. Register consumers before the client connects: messages that come at
        the beginning of the session would go to the handlers.

        Args:
            match: a matcher of slixmpp (StanzaPath, MatchXPath, …), or a function of
                the message; None: every message. It is asked again before each further
                hand-over: by then a message may be for another consumer, or for none.
            name: for the log, and to tell consumers apart; None: the function's.
            ordered: whether to hand the messages of each account over one after
                another, in the order in which their sender released them, each when the
                earlier ones are done or parked. If False, all at the same time.
            max_handovers: the most hand-overs of a message before it is parked. A
                hand-over that the end of the process cut short counts.
            retry_first_s: the first delay between two hand-overs, and the shortest, in
                seconds.
            retry_max_s: the longest delay, in seconds.

        Returns:
            A decorator for the function, which gets the message and a Handover, and
            whose errors are logged.

        Raises:
            LocalProtocolError: there is a consumer with this name, the client has been
                connected, or the option `receives` is False.
            InvalidArgument: an argument has a wrong value.
        """
        self._check_receives()
        if match is not None and not isinstance(match, MatcherBase):
            arguments.callable_of("match", match)
        if name is not None:
            arguments.text("name", name, empty=False)
        arguments.flag("ordered", ordered)
        arguments.whole("max_handovers", max_handovers, least=1)
        arguments.seconds("retry_first_s", retry_first_s)
        arguments.seconds("retry_max_s", retry_max_s)
        if retry_max_s < retry_first_s:
            expected = f"at least retry_first_s, {retry_first_s}"
            raise InvalidArgument("retry_max_s", retry_max_s, expected)
        backoff = Backoff(first_s=retry_first_s, max_s=retry_max_s)

        if self._endpoint.has_been_online:
            raise LocalProtocolError(
                "a consumer is registered before the client connects: what came since "
                "then has gone to the handlers"
            )

        def register(handler: HandlerT) -> HandlerT:
            self._endpoint.feed.consumers.add(
                Consumer(
                    handler=handler,
                    name=name or str(getattr(handler, "__qualname__", handler)),
                    match=match,
                    ordered=ordered,
                    max_handovers=max_handovers,
                    backoff=backoff,
                )
            )
            return handler

        return register

    def parked(
        self, msg_id: str | None = None, source: str | None = None
    ) -> list[Incoming]:
        """The messages on which a consumer has failed too often, as copies.

        Args:
            msg_id: only messages with this id.
            source: only messages from this JID, full or bare.
        """
        if msg_id is not None:
            arguments.text("msg_id", msg_id)
        source = _source(source)
        return [
            replace(message)
            for message in self._endpoint.inbox.parked()
            if msg_id in {None, message.msg_id} and message.is_from(source)
        ]

    def release_parked(self, msg_id: str, source: str | None = None) -> None:
        """Hand a parked message over again, as often as a new one.

        Args:
            msg_id: its id.
            source: the JID that it came from, if several senders have used that id.

        Raises:
            UnknownMessage: no parked message has it.
            AmbiguousMessage: several have it.
            StoreError: a consumer calls this while its transaction is open.
        """
        parked = self._parked(msg_id, source)
        self._endpoint.inbox.release(parked.key)

    def drop_parked(self, msg_id: str, source: str | None = None) -> None:
        """Give up a parked message: its sender learns it when it asks again.

        Args, Raises: as release_parked.
        """
        parked = self._parked(msg_id, source)
        self._endpoint.inbox.drop(parked.key)

    def _parked(self, msg_id: str, source: str | None) -> Incoming:
        arguments.text("msg_id", msg_id)
        return only(self._endpoint.inbox.parked(), msg_id, _source(source))

    async def flush(self) -> None:
        """Return when everything done so far is on disk and has been answered.

        Raises:
            StoreError: it cannot be written.
        """
        await self._endpoint.flush()

    async def confirmed(self, *, within_s: float) -> bool:
        """`flush`, and wait until the senders of messages handed over again have asked.

        What an earlier process had in hand is handed over when the session starts. Its
        sender asks whether it has arrived when it notices that we are back. A program
        that ends before leaves it without an answer until the next one starts.

        Args:
            within_s: the most time to wait for them, in seconds. One that has gone does
                not ask.

        Returns:
            Whether each sender of a message that was taken has got its answer.

        Raises:
            StoreError: see flush.
        """
        arguments.seconds("within_s", within_s, zero=True)
        return await self._endpoint.confirmed(within_s)

    @property
    def store(self) -> Store:
        """The store, for reading; it belongs to the plugin."""
        return self._endpoint.store

    async def roster_known(self) -> None:
        """Wait until the plugin can decide which peers to trust."""
        await self._endpoint.guard.roster_known.wait()

    def stop_receiving(self) -> None:
        """Hand nothing more over, for good; what was handed over is still confirmed.

        Messages of others stay in the store, or with their senders, which get
        service-unavailable and try again. If a handler calls this, its message is the
        last one.
        """
        self._endpoint.stop_receiving()

    async def aclose(self) -> None:
        """Disable the plugin, and return when the store is closed.

        Outstanding messages stay in the store; those who wait for an outcome get
        StillOutstanding. The closing continues if the caller is cancelled, and may be
        repeated.

        If a consumer calls this, it returns at once, and the store is closed when the
        consumer has ended. Running consumers are cancelled; this one too, unless it
        returns without waiting for anything more.
        """
        if self.name in self.xmpp.plugin:
            self.xmpp.plugin.disable(self.name)  # type: ignore[attr-defined]
        if self._closing is not None and not self._endpoint.inbox.is_consuming():
            await asyncio.shield(self._closing)

    def _check_receives(self) -> None:
        if not self._endpoint.settings.receives:
            raise LocalProtocolError(
                "this endpoint only sends: it was registered with receives=False"
            )

    # -- slixmpp -----------------------------------------------------------

    def __init__(self, xmpp: Any, config: Any = None) -> None:
        super().__init__(xmpp, config)
        self._started = False
        self._features: tuple[str, ...] = ()
        if self.config.get("receives", True):
            batches = batch_features(self.config.get("batch_max"))
            self._features = (*NAMESPACES, MARKS_NAMESPACE, *batches)
        # slixmpp may call session_bind before plugin_init.
        self._advertised: set[JID] = set()
        self._announcing: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None

    def plugin_init(self) -> None:
        """Open the store and insert the plugin into the stream.

        Raises:
            ValueError: an option is not valid.
            StoreError: the store cannot be opened.
        """
        try:
            # Kept after the end: later calls then report that its store is closed.
            self._endpoint = Endpoint(self.xmpp, Settings.from_config(self.config))
            self._started = True
            self._caps = PromptCaps(self.xmpp)
            self._endpoint.presence.addressed = self._caps.addressed
            if self.xmpp.is_component:
                api = self.xmpp.plugin["xep_0030"].api
                api.register(self._info_at_any_address, "get_info")
            if in_session(self.xmpp) and not self.xmpp.session_bind_event.is_set():
                # slixmpp calls it when a session begins, but not for a resumed one.
                self.session_bind(self.xmpp.boundjid)
        except Exception:
            # slixmpp has put the plugin on its list before; it must not stay there
            # unusable.
            self.xmpp.plugin.disable(self.name)  # type: ignore[attr-defined]
            raise

    def plugin_end(self) -> None:
        """Leave the stream as it was, and close the store."""
        if not self._started:
            return
        self._started = False
        self._caps.close()
        if self.xmpp.is_component:
            disco = self.xmpp.plugin["xep_0030"]
            disco.api.register(disco.static.get_info, "get_info")
        in_session = self._endpoint.own is not None
        self._closing = self.xmpp.loop.create_task(self._endpoint.leave())
        disco = self.xmpp.plugin["xep_0030"]
        for jid in self._advertised:
            for feature in self._features:
                disco.del_feature(jid=jid, feature=feature)
        if in_session:
            self._announce(self.xmpp.boundjid)

    def session_bind(self, jid: JID) -> None:
        """Announce our features: slixmpp keeps features per full JID."""
        disco = self.xmpp.plugin["xep_0030"]
        for feature in self._features:
            disco.add_feature(jid=jid, feature=feature)
        self._advertised.add(jid)
        self._announce(jid)

    def _info_at_any_address(
        self, jid: JID | None, node: str | None, sender: JID | None, data: Any
    ) -> DiscoInfo | None:
        """Our features, for each address of a component's domain.

        It serves all of them.
        """
        static = self.xmpp.plugin["xep_0030"].static
        is_known = static.node_exists(jid, node)
        info: DiscoInfo | None = static.get_info(jid, node, sender, data)
        if info is not None and not is_known and not node:
            for feature in self._features:
                info.add_feature(feature)
        return info

    def _announce(self, jid: JID) -> None:
        """Put our capabilities into presence (XEP-0115): slixmpp only answers requests.

        Presence that was sent already is sent again; none is sent for the first time.
        """
        has_presence = self.xmpp.roster[jid].last_status is not None
        update = self.xmpp.plugin["xep_0115"].update_caps(jid, broadcast=has_presence)
        task = self.xmpp.loop.create_task(update)
        self._announcing.add(task)
        task.add_done_callback(self._announcing.discard)


def _source(source: str | None) -> str | None:
    return None if source is None else jid_of("source", source)


def _stanza(message: StanzaBase) -> StanzaBase:
    return arguments.instance(StanzaBase, "message", message, "a stanza of slixmpp")
