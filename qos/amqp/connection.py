"""One AMQP 1.0 connection: SASL, then proton as an engine without I/O.

Bytes that come are pushed into proton's transport, its events are handled, and what it
wants to send is written. Proton is C code with callbacks of ours in between: an
exception in one of them ends this connection, and no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from proton import (
    Condition,
    Endpoint,
    Event,
    Link,
    SymbolList,
    Transport,
    symbol,
)

from qos.amqp import bounds, conditions
from qos.amqp.deliveries import Delivery
from qos.amqp.incoming import IncomingLink
from qos.amqp.links import Links, OurLink
from qos.amqp.login import Login
from qos.amqp.outgoing import OutgoingLink
from qos.amqp.pump import Pump
from qos.amqp.termini import KeptTermini
from qos.amqp.unsettled import Unsettled
from qos.core.amqp.front import Attach, Front
from qos.core.amqp.values import DecodeError
from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.terminus import TerminusName
from qos.engine.queue_engine import QueueEngine
from qos.ids import new_id

if TYPE_CHECKING:
    from qos.amqp.gateway import Gateway

__all__ = ["AmqpConnection"]

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: The bytes of an empty frame, which only says that the peer is there.
_HEARTBEAT_BYTES = 8

#: Seconds for which the peer of a closed connection may read the reason.
_LINGER_S = 2.0


class AmqpConnection(asyncio.Protocol):
    """A connection of a client.

    Attributes:
        engine: of the queues.
        jid: the full JID that publishes for this connection, once it is logged in.
        silent: the full JIDs of links that get nothing until the peer is heard of.
        front: reads and writes what proton hides.
    """

    def __init__(self, gateway: Gateway) -> None:
        self.engine: QueueEngine = gateway.engine
        self.jid = ""
        self.silent: set[str] = set()
        self._gateway = gateway
        self._loop = asyncio.get_running_loop()
        self._tcp: asyncio.Transport | None = None
        self._login: Login | None = None
        self._pump: Pump | None = None
        self.front = Front(bounds.FRAME_BYTES_MAX)
        self._links = Links(self)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Handle | None = None
        # Links that collect requests while bytes are read.
        self._collecting: list[IncomingLink | OutgoingLink] = []
        # The link of the last delivery, by its address, until there is another event.
        self._delivering: tuple[int, OurLink] | None = None
        self._pending_bytes = 0
        self._may_write = True
        self._closing = False
        self._peer = "?"

    # -- asyncio -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._tcp = transport
        self._peer = str(transport.get_extra_info("peername"))
        if not self._gateway.joins(self):
            log.warning("%s: too many AMQP connections", self._peer)
            transport.abort()
            return
        self._login = Login(
            transport,
            self._gateway,
            begin=self.guarded(self._begin),
            drop=self._drop,
        )
        self._timer = self._loop.call_later(bounds.LOGIN_S, self._drop, "no login")

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self.guarded(self._received)(data)

    def eof_received(self) -> bool:
        """See asyncio.Protocol."""
        return False

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
        self._closing = True
        for handle in (self._timer, self._writing):
            if handle is not None:
                handle.cancel()
        if self._login is not None:
            self._login.cancel()
        self._links.end_all(released=False)
        self._gateway.leaves(self)
        self._tcp = None
        if self._pump is not None:
            self._pump.release()

    # -- for links ---------------------------------------------------------

    def guarded(self, call: Callable[P, object]) -> Callable[P, None]:
        """A callback that ends this connection if it raises, and nothing else."""

        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                call(*args, **kwargs)
            except Exception:
                log.exception("%s: the AMQP connection is ended", self._peer)
                self._drop("internal error")

        return guarded

    def write_soon(self) -> None:
        """Write what proton wants to send, once in this turn of the loop."""
        if self._writing is None and not self._closing:
            self._writing = self._loop.call_soon(self._write)

    def flush_after_read(self, link: IncomingLink | OutgoingLink) -> None:
        """Call the `flush` of a link after all bytes of this read are handled."""
        self._collecting.append(link)

    def pending(self, size: int) -> None:
        """Count bytes of messages that are being written, or (negative) are written."""
        self._pending_bytes += size
        if self._tcp is None or self._tcp.is_closing():
            return
        if self._pending_bytes > bounds.PENDING_BYTES_MAX:
            self._tcp.pause_reading()
        elif not self._tcp.is_reading():
            self._tcp.resume_reading()

    def detach(self, link: Link, condition: Condition) -> None:
        """Close a link, for this reason."""
        link.condition = condition
        link.close()
        self.write_soon()

    def terminus_name(self, link: str) -> TerminusName:
        """The name of the terminus of a link: account, container-id and link name."""
        return self.jid.partition("/")[0], self.container, link

    def left(self, jid: str) -> None:
        """Note that the link of this full JID has ended."""
        self._gateway.left(jid)

    @property
    def termini(self) -> KeptTermini:
        """The suspended termini of the gateway."""
        return self._gateway.termini

    @property
    def links(self) -> dict[tuple[str, str, str, bool], Links]:
        """The links of the gateway that are attached; see `Gateway.links`."""
        return self._gateway.links

    @property
    def unsettled(self) -> Unsettled:
        """The unsettled deliveries of the suspended links of the gateway."""
        return self._gateway.unsettled

    def joined(self, jid: str, link: OutgoingLink) -> None:
        """Note that this full JID is a consumer of this gateway."""
        self._gateway.joined(jid, link)

    @property
    def container(self) -> str:
        """The container-id of the peer."""
        assert self._pump is not None
        return self._pump.connection.remote_container or ""

    # -- proton ------------------------------------------------------------

    def _received(self, data: bytes) -> None:
        if self._pump is None:
            if self._login is not None:
                self._login.received(data)
            return
        if self.silent and len(data) > _HEARTBEAT_BYTES:
            for jid in self.silent:
                self.engine.heard(jid)
            self.silent.clear()
        self._push(data)

    def _begin(self, account: str, rest: bytes) -> None:
        if self._tcp is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.jid = consumer_jid(account, "amqp", new_id())
        amqp = Transport(Transport.SERVER)
        amqp.max_frame_size = bounds.FRAME_BYTES_MAX
        amqp.channel_max = bounds.CHANNELS_MAX - 1
        amqp.idle_timeout = bounds.IDLE_S / 2
        pump = self._pump = Pump(
            self._tcp, amqp, self._handle, self._delivery, self.front.send
        )
        pump.may_write = self._may_write
        pump.connection.container = self._gateway.name
        pump.bind()
        self._tcp.resume_reading()
        self._tick()
        self._push(rest)

    def _push(self, data: bytes) -> None:
        assert self._pump is not None
        try:
            for part in self.front.receive(data):
                if isinstance(part, bytes):
                    self._pump.push(part)
                elif isinstance(part, Attach):
                    self._links.asked = part
                elif isinstance(part, DecodeError):
                    self.close(Condition(conditions.FRAMING_ERROR, str(part)))
                else:
                    self._links.transferred(part)
        finally:
            # Also if the rest is broken: what was read before has come.
            collecting, self._collecting = self._collecting, []
            for each in collecting:
                each.flush()

    def _handle(self, event: Event) -> None:
        self._delivering = None
        handler = _HANDLERS.get(event.type)
        if handler is not None and not self._closing:
            handler(self, event)

    def _write(self) -> None:
        self._writing = None
        if self._pump is not None and self._tcp is not None:
            self._pump.write()

    def _tick(self) -> None:
        """Let proton send heartbeats, and close the connection when the peer sends none."""
        assert self._pump is not None
        now = self._loop.time()
        at = 0.0

        def tick(pump: Pump) -> None:
            nonlocal at
            at = pump.tick(now)

        self.guarded(tick)(self._pump)
        delay = max(0.05, at - now) if at else bounds.IDLE_S / 4
        self._timer = self._loop.call_later(delay, self._tick)

    # -- events ------------------------------------------------------------

    def _connection_opened(self, event: Event) -> None:
        connection = event.connection
        assert connection is not None
        connection.offered_capabilities = SymbolList([symbol("ANONYMOUS-RELAY")])
        connection.open()

    def _session_opened(self, event: Event) -> None:
        assert event.session is not None
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
        if self._closing:
            return
        link = delivery.link
        if self._delivering is None or self._delivering[0] != link:
            ours = self._links.of(delivery.whole.link)
            if ours is None:
                return
            self._delivering = link, ours
        self._delivering[1].delivery(delivery)

    def _failed(self, event: Event) -> None:
        assert event.transport is not None
        condition = event.transport.condition
        if condition is not None:
            log.warning("%s: %s: %s", self._peer, condition.name, condition.description)

    # -- the end -----------------------------------------------------------

    def close(self, condition: Condition) -> None:
        """Close the connection, for this reason."""
        if self._pump is None or self._closing:
            self._drop(condition.description or "")
            return
        self._links.end_all(released=True)
        if self._pump.connection.state & Endpoint.LOCAL_UNINIT:
            self._pump.connection.open()
        self._pump.connection.condition = condition
        self._pump.connection.close()
        self._write()
        self._loop.call_later(_LINGER_S, self._drop, "")

    def _drop(self, why: str) -> None:
        """End the connection at once, or after what was written."""
        if self._tcp is None:
            return
        if why:
            log.info("%s: %s", self._peer, why)
        self._closing = True
        self._tcp.close()


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
