"""A link to a node of an AMQP 1.0 broker, where we are the client.

One connection has one session and one link. `BrokerLink` has what both directions have
in common; the links that receive and send are in `qos.amqp.source` and
`qos.amqp.target`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from proton import (
    Condition,
    Endpoint,
    Event,
    Link,
    ProtonException,
    Session,
    Terminus,
    Transport,
)

from qos.amqp import bounds
from qos.amqp.conditions import text_of
from qos.amqp.deliveries import Delivery
from qos.amqp.heartbeats import TOLD_RATIO, Heartbeats
from qos.amqp.pump import Pump
from qos.ids import new_id
from qos.tls_files import Tls

__all__ = [
    "CLOSE_S",
    "CONTAINER",
    "Broker",
    "BrokerLink",
    "BrokerLost",
    "BrokerRefused",
]

log = logging.getLogger(__name__)

#: Seconds to connect, log in and attach; and to close in order.
_ATTACH_S = 30.0
CLOSE_S = 3.0

#: The name that brokers show, and what the names of links begin with.
CONTAINER = "xmpp-qos-bridge"

#: What another attempt does not change, unless somebody changes the broker.
_LASTING = frozenset(
    {
        "amqp:invalid-field",
        "amqp:not-allowed",
        "amqp:not-found",
        "amqp:not-implemented",
        "amqp:precondition-failed",
        "amqp:unauthorized-access",
    }
)


class BrokerLost(Exception):
    """The link was lost, or could not be made; another attempt may succeed."""


class BrokerRefused(BrokerLost):
    """The broker refuses the login or the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A node of a broker.

    Attributes:
        host: of the broker.
        port: its port.
        address: of the node, as the broker writes it.
        user: to log in with; '': ANONYMOUS.
        password: of the user.
        tls: returns the context for each connection; None: without TLS.
    """

    host: str
    port: int
    address: str
    user: str = ""
    password: str = field(default="", repr=False)
    tls: Tls | None = None

    def __str__(self) -> str:
        scheme = "amqp" if self.tls is None else "amqps"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}/{self.address}"


class BrokerLink(asyncio.Protocol):
    """See the module.

    Attributes:
        lost: done, with the reason, when the link is gone.
    """

    def __init__(self, broker: Broker) -> None:
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[BrokerLost] = loop.create_future()
        self._broker = broker
        self._loop = loop
        self._attached: asyncio.Future[None] = loop.create_future()
        self._pump: Pump | None = None
        self._tcp: asyncio.Transport | None = None
        self._heartbeats = Heartbeats(self._tick)
        self._writing: asyncio.Handle | None = None

    # -- life --------------------------------------------------------------

    async def open(self) -> None:
        """Connect, log in and attach.

        Raises:
            BrokerLost, BrokerRefused: there is no link; the text has the reason.
        """
        broker = self._broker
        try:
            async with asyncio.timeout(_ATTACH_S):
                await self._loop.create_connection(
                    lambda: self,
                    broker.host,
                    broker.port,
                    ssl=broker.tls and broker.tls(),
                    server_hostname=broker.host if broker.tls else None,
                )
                await asyncio.wait(
                    (self._attached, self.lost), return_when=asyncio.FIRST_COMPLETED
                )
        except ssl.SSLCertVerificationError as error:
            raise self._error(
                f"its certificate: {error.verify_message}", lasting=True
            ) from None
        except ssl.SSLError as error:
            raise self._error(f"no TLS: {error.reason or error}") from None
        except TimeoutError:
            self._abort()
            raise self._error(f"not attached within {_ATTACH_S:g} s") from None
        except OSError as error:
            # asyncio's own text names the address again, but not the reason.
            refused = isinstance(error, ConnectionError) and error.errno
            text = os.strerror(error.errno or 0) if refused else error.strerror
            raise self._error(text or str(error)) from None
        except BaseException:
            self._abort()
            raise
        if self.lost.done():
            raise self.lost.result()

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Detach and close in order, as far as the broker takes part in this time."""
        if not self.lost.done() and self._pump is not None:
            self._guard(lambda pump: pump.connection.close())
            await asyncio.wait((self.lost,), timeout=timeout_s)
        self._abort()

    def _error(self, text: str, *, lasting: bool = False) -> BrokerLost:
        kind = BrokerRefused if lasting else BrokerLost
        return kind(f"{self._broker}: {text}")

    def _lose(self, text: str, *, lasting: bool = False) -> None:
        if not self.lost.done():
            self.lost.set_result(self._error(text, lasting=lasting))
        if self._tcp is not None:
            self._tcp.close()

    def _abort(self) -> None:
        if self._tcp is not None:
            self._tcp.abort()
        if not self.lost.done():
            self.lost.set_result(self._error("closed"))

    # -- asyncio -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._tcp = transport
        amqp = Transport()
        amqp.max_frame_size = bounds.FRAME_BYTES_MAX
        amqp.idle_timeout = TOLD_RATIO * bounds.IDLE_S
        self._pump = Pump(transport, amqp, self._event, self._delivery)
        self._guard(lambda pump: self._begin(pump, amqp))
        self._heartbeats.begin()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._guard(lambda pump: pump.push(data))

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        assert self._pump is not None
        self._pump.may_write = False

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        assert self._pump is not None
        self._pump.may_write = True
        self._write_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._heartbeats.stop()
        if self._writing is not None:
            self._writing.cancel()
        pump, self._pump, self._tcp = self._pump, None, None
        self._lose("the connection is lost" if exc is None else str(exc))
        if pump is not None:
            pump.release()

    def _guard(self, call: Callable[[Pump], object]) -> None:
        """Call with the pump; an error of ours ends this connection, and nothing else."""
        if self._pump is None:
            return
        try:
            call(self._pump)
            if self._pump is not None:
                self._pump.write()
        except ProtonException as error:
            self._lose(f"proton: {error}")
        except Exception as error:
            log.exception("%s: the connection is ended", self._broker)
            self._lose(f"a mistake of ours: {error!r}")

    def _write_soon(self) -> None:
        """Write what proton wants to send, once in this turn of the loop."""
        if self._writing is None or self._writing.cancelled():
            self._writing = self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._writing = None
        self._guard(lambda _pump: None)

    def _tick(self, now: float) -> float:
        """Let proton send a heartbeat, or close the connection; see Heartbeats."""
        at = 0.0

        def tick(pump: Pump) -> None:
            nonlocal at
            at = pump.tick(now)

        self._guard(tick)
        return at

    # -- proton ------------------------------------------------------------

    def _begin(self, pump: Pump, amqp: Transport) -> None:
        broker, connection = self._broker, pump.connection
        connection.container = f"{CONTAINER}-{new_id()}"
        connection.hostname = broker.host
        sasl = amqp.sasl()
        # TLS is asyncio's, so that proton knows nothing of it; `Broker` without TLS is
        # for a loopback address only.
        sasl.allow_insecure_mechs = True
        sasl.allowed_mechs("PLAIN" if broker.user else "ANONYMOUS")
        if broker.user:
            connection.user, connection.password = broker.user, broker.password
        pump.bind()
        connection.open()
        session = connection.session()
        session.open()
        self._attach(session)

    def _attach(self, session: Session) -> None:
        """Make the link, and open it."""
        raise NotImplementedError

    def _set_up(self, link: Link, terminus: Terminus) -> None:
        terminus.address = self._broker.address
        # RabbitMQ declares a queue that does not exist yet, and this makes it durable.
        terminus.durability = Terminus.CONFIGURATION
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_FIRST
        link.open()

    def _event(self, event: Event) -> None:
        kind = event.type
        if kind == Event.CONNECTION_REMOTE_OPEN:
            self._heartbeats.begin()
        elif kind == Event.LINK_REMOTE_OPEN:
            assert event.link is not None
            self._opened(event.link)
        elif kind in _ENDS:
            self._ended(event)
        elif kind == Event.TRANSPORT_ERROR:
            assert event.transport is not None
            self._refused(event.transport.condition)
        elif kind == Event.LINK_FLOW:
            self._flow()

    def _opened(self, link: Link) -> None:
        terminus = link.remote_target if link.is_sender else link.remote_source
        # Transport §2.6.3: an attach without a terminus announces its refusal.
        if terminus.type != Terminus.UNSPECIFIED and not self._attached.done():
            self._attached.set_result(None)

    def _ended(self, event: Event) -> None:
        """The broker has ended the connection, the session or the link."""
        endpoint = event.context
        assert isinstance(endpoint, Endpoint)
        self._refused(endpoint.remote_condition)

    def _refused(self, condition: Condition | None) -> None:
        if condition is None:
            self._lose("the broker has closed the link")
            return
        self._lose(text_of(condition), lasting=condition.name in _LASTING)

    def _delivery(self, delivery: Delivery) -> None:
        """Take a change of a delivery: bytes, state or settlement."""

    def _flow(self) -> None:
        """The broker has granted credit."""


_ENDS = frozenset(
    {
        Event.CONNECTION_REMOTE_CLOSE,
        Event.SESSION_REMOTE_CLOSE,
        Event.LINK_REMOTE_CLOSE,
        Event.LINK_REMOTE_DETACH,
    }
)
