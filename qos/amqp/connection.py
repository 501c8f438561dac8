"""One AMQP 1.0 connection: SASL, then proton as an engine without I/O.

Bytes that come are pushed into proton's transport, its events are handled, and what it
wants to send is written. Proton is C code with callbacks of ours in between: an
exception in one of them ends this connection, and no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from proton import (
    Condition,
    Endpoint,
    Event,
    Link,
    PropertyDict,
    SymbolList,
    Transport,
    symbol,
)

from qos._version import __version__
from qos.amqp import bounds, conditions
from qos.amqp.attached import OurLink
from qos.amqp.deliveries import Delivery
from qos.amqp.heartbeats import TOLD_RATIO, Heartbeats
from qos.amqp.intake import Intake
from qos.amqp.links import Links
from qos.amqp.login import Login
from qos.amqp.ports import Hub
from qos.amqp.pump import Pump
from qos.core.amqp.frame_parts import Attach, InUse, Part
from qos.core.amqp.frame_shim import FrameShim
from qos.core.amqp.values import DecodeError
from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.terminus import TerminusName
from qos.core.strings import bare
from qos.engine.doors import Arrival
from qos.engine.queue_engine import QueueEngine
from qos.ids import new_id
from qos.users import Grant

__all__ = ["AmqpConnection"]

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: The bytes of an empty frame, which only says that the peer is there.
_HEARTBEAT_BYTES = 8

#: Seconds for which the peer of a closed connection may read the reason.
_LINGER_S = 2.0


class ConnectionHub(Hub, Protocol):
    """The gateway, as its connections know it."""

    def joins(self, connection: AmqpConnection) -> None:
        """A connection is there."""

    def leaves(self, connection: AmqpConnection) -> None:
        """A connection is gone."""


class AmqpConnection(asyncio.Protocol):
    """A connection of a client: see LinkHost.

    Attributes:
        grant: by which it is logged in; None: it is not.
    """

    def __init__(self, hub: ConnectionHub, arrival: Arrival) -> None:
        self.engine: QueueEngine = hub.engine
        self.hub = hub
        self._arrival = arrival
        self.jid = ""
        self.grant: Grant | None = None
        self.silent: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._tcp: asyncio.Transport | None = None
        self._login: Login | None = None
        self._pump: Pump | None = None
        self._intake: Intake | None = None
        self.shim = FrameShim(bounds.FRAME_BYTES_MAX)
        self._links = Links(self)
        self._timer: asyncio.TimerHandle | None = None
        self._heartbeats = Heartbeats(self._tick)
        self._writing: asyncio.Handle | None = None
        # Calls of links that collect requests while bytes are read.
        self._flushes: list[Callable[[], object]] = []
        # The link of the last delivery, by its address, until there is another event.
        self._delivering: tuple[int, OurLink] | None = None
        self._pending_bytes = 0
        self._unfinished_bytes = 0
        self._may_write = True
        # What is called when those who have no room may have some.
        self._full: set[Callable[[], object]] = set()
        self._closing = False
        # The peer has broken a rule: what it sends is read and dropped.
        self._deaf = False
        # We have closed the connection, and the peer has not yet.
        self._closed = False
        self._peer = "?"

    # -- asyncio -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._tcp = transport
        self._peer = str(transport.get_extra_info("peername"))
        self.hub.joins(self)
        self._login = Login(
            transport,
            self.hub,
            self._arrival,
            begin=self.guarded(self._begin),
            drop=self._refuse,
        )

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self.guarded(self._received)(data)

    def eof_received(self) -> bool:
        """See asyncio.Protocol; what has come is handled and answered before the end."""
        tcp, intake = self._tcp, self._intake
        if tcp is None or intake is None or tcp.get_extra_info("ssl_object"):
            return False
        intake.when_done(tcp.close)
        return True

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._may_write = False
        if self._pump is not None:
            self._pump.may_write = False

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._may_write = True
        if self._pump is not None:
            self._pump.may_write = True
        self.write_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._intake is None or self._closing or self._intake.idle:
            self._lost()
        else:
            self._intake.when_done(self._lost)

    def _lost(self) -> None:
        """All that the peer has sent is handled, and it is gone."""
        self._closing = True
        for handle in (self._timer, self._writing):
            if handle is not None:
                handle.cancel()
        self._heartbeats.stop()
        if self._login is not None:
            self._login.cancel()
        self._links.end_all(released=False)
        self.hub.leaves(self)
        self._tcp = None
        self._room()
        if self._pump is not None:
            self._pump.release()

    # -- see LinkHost ------------------------------------------------------

    def guarded(self, call: Callable[P, object]) -> Callable[P, None]:
        """See LinkHost."""

        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                call(*args, **kwargs)
            except Exception:
                log.exception("%s: the AMQP connection is ended", self._peer)
                self._drop("internal error")

        return guarded

    def write_soon(self) -> None:
        """See LinkHost."""
        if self._writing is None and not self._closing:
            self._writing = self._loop.call_soon(self._write)

    def flush_after_read(self, flush: Callable[[], object]) -> None:
        """See LinkHost."""
        self._flushes.append(flush)

    def pending(self, size: int) -> None:
        """See LinkHost."""
        self._pending_bytes += size
        if self._intake is not None:
            self._intake.full = self._pending_bytes > bounds.PENDING_BYTES_MAX
            self._intake.update()

    def requested(self) -> None:
        """See LinkHost."""
        if self._intake is not None:
            self._intake.requested()

    def unfinished(self, size: int) -> bool:
        """See LinkHost."""
        self._unfinished_bytes += size
        return self._unfinished_bytes <= bounds.UNFINISHED_BYTES_MAX

    def late(self, delivery: Delivery) -> None:
        """See LinkHost.

        Its sender may not know that yet; but it has had so much credit, or none.
        """
        if delivery.unasked:
            text = "a transfer on a link that has ended, and without credit"
            self._violated(Condition(conditions.TRANSFER_LIMIT, text))
        else:
            delivery.drop()

    def has_room(self, unsent: int, tell: Callable[[], object]) -> bool:
        """See LinkHost."""
        if self._tcp is None or self._tcp.is_closing():
            return True
        if unsent + self._tcp.get_write_buffer_size() < bounds.SEND_BYTES_MAX:
            return True
        self._full.add(tell)
        return False

    def _room(self) -> None:
        """Something was written: consumers that had no room may have some now."""
        full, self._full = self._full, set()
        for tell in full:
            tell()

    def detach(self, link: Link, condition: Condition) -> None:
        """See LinkHost."""
        link.condition = condition
        link.close()
        self.write_soon()

    def terminus_name(self, link: str) -> TerminusName:
        """See LinkHost."""
        return self.account, self.container, link

    @property
    def account(self) -> str:
        """See LinkHost."""
        return bare(self.jid)

    @property
    def container(self) -> str:
        """See LinkHost."""
        assert self._pump is not None
        return self._pump.connection.remote_container or ""

    # -- proton ------------------------------------------------------------

    def _received(self, data: bytes) -> None:
        if self._intake is None:
            if self._login is not None:
                self._login.received(data)
            return
        if self._deaf:
            return
        if self.silent and len(data) > _HEARTBEAT_BYTES:
            for jid in self.silent:
                self.engine.heard(jid)
            self.silent.clear()
        self._intake.received(data)

    def _begin(self, grant: Grant, rest: bytes) -> None:
        if self._tcp is None:
            return
        self.grant = grant
        self.jid = consumer_jid(grant.account, "amqp", new_id())
        amqp = Transport(Transport.SERVER)
        amqp.max_frame_size = bounds.FRAME_BYTES_MAX
        amqp.channel_max = bounds.CHANNELS_MAX - 1
        amqp.idle_timeout = TOLD_RATIO * bounds.IDLE_S
        pump = self._pump = Pump(
            self._tcp, amqp, self._handle, self._delivery, self.shim.send
        )
        pump.may_write = self._may_write
        pump.connection.container = self.hub.name
        pump.connection.properties = PropertyDict(
            {symbol("product"): "xmpp-qos", symbol("version"): __version__}
        )
        pump.bind()
        self._intake = Intake(
            self._tcp,
            self.engine.payers,
            grant.account,
            self.shim,
            handle=self.guarded(self._part),
            flush=self.guarded(self._after_read),
        )
        self._heartbeats.begin()
        self._intake.received(rest)

    def _part(self, part: Part) -> None:
        assert self._pump is not None
        if self._deaf or self._closing:
            return
        if isinstance(part, bytes):
            self._pump.push(part)
        elif isinstance(part, Attach):
            self._links.attach = part
        elif isinstance(part, DecodeError):
            refused = isinstance(part, InUse)
            name = conditions.NOT_ALLOWED if refused else conditions.FRAMING_ERROR
            self._violated(Condition(name, str(part)))
        else:
            self._links.transferred(part)

    def _after_read(self) -> None:
        """Publish and end what came together, and write."""
        flushes, self._flushes = self._flushes, []
        for flush in flushes:
            flush()
        self._write()

    def _handle(self, event: Event) -> None:
        self._delivering = None
        handler = _HANDLERS.get(event.type)
        if handler is None or self._closing:
            return
        if not self._closed or event.type in _LAST_EVENTS:
            handler(self, event)

    def _write(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if self._pump is not None and self._tcp is not None:
            self._pump.write()
        if self._full:
            self._room()

    def _tick(self, now: float) -> float:
        """Let proton send a heartbeat, or close the connection; see Heartbeats."""
        at = 0.0

        def tick() -> None:
            nonlocal at
            if self._pump is not None:
                at = self._pump.tick(now)

        self.guarded(tick)()
        if self._tcp is not None and self._tcp.is_closing() and not self._closing:
            self._drop("")
        return at

    # -- events ------------------------------------------------------------

    def _connection_opened(self, event: Event) -> None:
        connection = event.connection
        assert connection is not None
        connection.offered_capabilities = SymbolList([symbol("ANONYMOUS-RELAY")])
        connection.open()
        self._heartbeats.begin()

    def _session_opened(self, event: Event) -> None:
        assert event.session is not None
        self.requested()
        event.session.open()

    def _session_closed(self, event: Event) -> None:
        session = event.session
        assert session is not None
        self._links.session_closed(session)
        session.close()
        session.free()

    def _connection_closed(self, event: Event) -> None:
        assert event.connection is not None
        self._links.end_all(released=True)
        event.connection.close()

    def _link_opened(self, event: Event) -> None:
        assert event.link is not None
        self._links.opened(event.link)

    def _link_closed(self, event: Event) -> None:
        assert event.link is not None
        for_good = event.type == Event.LINK_REMOTE_CLOSE
        self._links.closed(event.link, for_good=for_good)

    def _flow(self, event: Event) -> None:
        ours = self._links.of(event.link)
        if ours is not None:
            ours.flow()

    def _delivery(self, delivery: Delivery) -> None:
        if self._closing or self._closed:
            return
        link = delivery.link
        if self._delivering is None or self._delivering[0] != link:
            ours = self._links.at(link)
            if ours is None:
                self.late(delivery)
                return
            self._delivering = link, ours
        self._delivering[1].delivery(delivery)

    def _failed(self, event: Event) -> None:
        assert event.transport is not None
        condition = event.transport.condition
        if condition is not None:
            self._arrival.warn(f"{condition.name}: {condition.description}")

    # -- the end -----------------------------------------------------------

    def close(self, condition: Condition) -> None:
        """See LinkHost."""
        if self._pump is None or self._closing:
            self._drop(condition.description or "")
            return
        self._closed = True
        self._links.end_all(released=True)
        if self._pump.connection.state & Endpoint.LOCAL_UNINIT:
            self._pump.connection.open()
        self._pump.connection.condition = condition
        self._pump.connection.close()
        self._write()
        self._loop.call_later(_LINGER_S, self._drop, "")

    def _violated(self, condition: Condition) -> None:
        """Close the connection of a peer that has broken a rule, and hear it no more."""
        self.close(condition)
        self._deaf = True
        if self._intake is not None:
            self._intake.stop()

    def _refuse(self, why: str) -> None:
        """End the connection when the peer has read why.

        What it sends meanwhile is read and dropped: bytes that nobody has read would
        reset the connection, and so drop the reason too.
        """
        if self._tcp is None:
            return
        self._arrival.warn(why)
        self._closing = True
        self._tcp.resume_reading()
        if self._tcp.can_write_eof():
            self._tcp.write_eof()
        self._set_timer(_LINGER_S, self._drop, "")

    def _drop(self, why: str) -> None:
        """End the connection at once, or after what was written."""
        if self._tcp is None:
            return
        if why:
            self._arrival.warn(why)
        self._closing = True
        if self._intake is not None:
            self._intake.stop()
        self._tcp.close()
        # Whoever does not read what was written is not waited for.
        self._set_timer(_LINGER_S, self._tcp.abort)

    def _set_timer(
        self, seconds: float, call: Callable[P, object], *args: P.args, **_: P.kwargs
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, call, *args)


_HANDLERS: dict[object, Callable[[AmqpConnection, Event], None]] = {
    Event.CONNECTION_REMOTE_OPEN: AmqpConnection._connection_opened,
    Event.CONNECTION_REMOTE_CLOSE: AmqpConnection._connection_closed,
    Event.SESSION_REMOTE_OPEN: AmqpConnection._session_opened,
    Event.SESSION_REMOTE_CLOSE: AmqpConnection._session_closed,
    Event.LINK_REMOTE_OPEN: AmqpConnection._link_opened,
    Event.LINK_REMOTE_CLOSE: AmqpConnection._link_closed,
    Event.LINK_REMOTE_DETACH: AmqpConnection._link_closed,
    Event.LINK_FLOW: AmqpConnection._flow,
    Event.TRANSPORT_ERROR: AmqpConnection._failed,
}

#: All that a connection that we have closed takes of its peer.
_LAST_EVENTS = frozenset({Event.CONNECTION_REMOTE_CLOSE, Event.TRANSPORT_ERROR})
