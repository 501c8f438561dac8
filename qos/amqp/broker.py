"""A link to a node of an AMQP 1.0 broker, where we are the client.

One connection has one session and one link. `BrokerLink` has what both directions have
in common; `Source` receives, and `Target` sends.
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
    Delivery,
    Endpoint,
    Event,
    Link,
    ProtonException,
    Receiver,
    Sender,
    Session,
    Terminus,
    Transport,
)

from qos.amqp import bounds
from qos.amqp.pump import Pump
from qos.ids import new_id

__all__ = [
    "Broker",
    "BrokerLink",
    "BrokerLost",
    "BrokerRefused",
    "Incoming",
    "Outcome",
    "Source",
    "Target",
]

log = logging.getLogger(__name__)

#: Seconds to connect, log in and attach; and to close in order.
_ATTACH_S = 30.0
_CLOSE_S = 3.0

#: The name that brokers show.
_CONTAINER = "xmpp-qos-bridge"

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
    """There is no link, or no longer; another attempt may succeed."""


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
        tls: for TLS; None: without.
    """

    host: str
    port: int
    address: str
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None

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
        self._timer: asyncio.TimerHandle | None = None
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
                    ssl=broker.tls,
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

    async def close(self) -> None:
        """Detach and close in order, as far as the broker takes part."""
        if not self.lost.done() and self._pump is not None:
            self._guard(lambda pump: pump.connection.close())
            await asyncio.wait((self.lost,), timeout=_CLOSE_S)
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
        amqp.idle_timeout = bounds.IDLE_S / 2
        self._pump = Pump(transport, amqp, self._event)
        self._guard(lambda pump: self._begin(pump, amqp))
        self._tick()

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
        for handle in (self._timer, self._writing):
            if handle is not None:
                handle.cancel()
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

    def _tick(self) -> None:
        if self._pump is None:
            return
        now = self._loop.time()
        at = 0.0

        def tick(pump: Pump) -> None:
            nonlocal at
            at = pump.tick(now)

        self._guard(tick)
        delay = max(0.05, at - now) if at else bounds.IDLE_S / 4
        self._timer = self._loop.call_later(delay, self._tick)

    # -- proton ------------------------------------------------------------

    def _begin(self, pump: Pump, amqp: Transport) -> None:
        broker, connection = self._broker, pump.connection
        connection.container = f"{_CONTAINER}-{new_id()}"
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
        if kind == Event.LINK_REMOTE_OPEN:
            assert event.link is not None
            self._opened(event.link)
        elif kind in _ENDS:
            self._ended(event)
        elif kind == Event.TRANSPORT_ERROR:
            assert event.transport is not None
            self._refused(event.transport.condition)
        elif kind == Event.DELIVERY and event.delivery is not None:
            self._delivery(event.delivery)
        elif kind == Event.LINK_FLOW:
            self._flow()

    def _opened(self, link: Link) -> None:
        its = link.remote_target if link.is_sender else link.remote_source
        # Transport §2.6.3: an attach without a terminus announces its refusal.
        if its.type != Terminus.UNSPECIFIED and not self._attached.done():
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
        said = ": ".join(filter(None, (condition.name, condition.description)))
        self._lose(said, lasting=condition.name in _LASTING)

    def _delivery(self, delivery: Delivery) -> None:
        """Something about a delivery has changed."""

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


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message that the broker has delivered.

    Attributes:
        delivery: proton's.
        content: its bytes; None: there were more than we take.
    """

    delivery: Delivery
    content: bytes | None


class Source(BrokerLink):
    """Receives the messages of a node, and settles them.

    Attributes:
        messages: those that have come, in their order.
    """

    def __init__(self, broker: Broker, *, credit: int) -> None:
        """Prepare.

        Args:
            broker: the node.
            credit: the most messages that are unsettled.
        """
        super().__init__(broker)
        self.messages: asyncio.Queue[Incoming] = asyncio.Queue()
        self._credit = credit
        self._content = bytearray()
        self._too_large = False
        self._link: Receiver | None = None

    def settle(self, incoming: Incoming, condition: Condition | None = None) -> None:
        """Accept a message, or reject it for this reason. Harmless on a lost link."""

        def settle(_pump: Pump) -> None:
            assert self._link is not None
            delivery = incoming.delivery
            if condition is None:
                delivery.update(Delivery.ACCEPTED)
            else:
                delivery.local.condition = condition
                delivery.update(Delivery.REJECTED)
            delivery.settle()
            self._link.flow(1)

        if not self.lost.done():
            self._guard(settle)

    def _attach(self, session: Session) -> None:
        # The same name each time would resume a link whose state we do not have.
        self._link = session.receiver(f"{_CONTAINER}-{new_id()}")
        self._set_up(self._link, self._link.source)
        self._link.flow(self._credit)

    def _delivery(self, delivery: Delivery) -> None:
        assert self._link is not None
        if delivery.aborted:
            self._content.clear()
            self._link.advance()
            delivery.settle()
            self._link.flow(1)
            return
        if not delivery.readable:
            return
        while data := self._link.recv(bounds.FRAME_BYTES_MAX):
            self._content += data
            if len(self._content) > bounds.MESSAGE_BYTES_MAX:
                self._too_large = True
                self._content.clear()
        if delivery.partial:
            return
        content = None if self._too_large else bytes(self._content)
        self._content.clear()
        self._too_large = False
        self._link.advance()
        self.messages.put_nowait(Incoming(delivery, content))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a message at the broker.

    Attributes:
        state: Delivery.ACCEPTED, REJECTED, RELEASED or MODIFIED.
        reason: of REJECTED, or ''.
        failed: of MODIFIED: the delivery counts.
        undeliverable: of MODIFIED: do not send it here again.
    """

    state: int
    reason: str = ""
    failed: bool = False
    undeliverable: bool = False


class Target(BrokerLink):
    """Sends messages to a node."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._link: Sender | None = None
        self._waiting: list[tuple[bytes, asyncio.Future[Outcome]]] = []
        self._sent: dict[str, asyncio.Future[Outcome]] = {}
        self.lost.add_done_callback(self._fail)

    @property
    def bytes_max(self) -> int:
        """The most bytes of a message that the broker takes; 0: it has not said."""
        return 0 if self._link is None else self._link.remote_max_message_size or 0

    async def send(self, message: bytes) -> Outcome:
        """Send a message when there is credit; returns when it has an outcome.

        Raises:
            BrokerLost: the link is lost. The broker may have the message.
        """
        if self.lost.done():
            raise self.lost.result()
        outcome: asyncio.Future[Outcome] = self._loop.create_future()
        self._waiting.append((message, outcome))
        self._flow()
        self._write_soon()
        return await outcome

    def _attach(self, session: Session) -> None:
        self._link = session.sender(f"{_CONTAINER}-{new_id()}")
        self._set_up(self._link, self._link.target)

    def _flow(self) -> None:
        link = self._link
        if link is None or not self._attached.done():
            return
        count = 0
        for message, outcome in self._waiting:
            if not outcome.cancelled():
                if link.credit <= 0:
                    break
                tag = new_id()
                link.delivery(tag)
                link.stream(message)
                link.advance()
                self._sent[tag] = outcome
            count += 1
        del self._waiting[:count]

    def _delivery(self, delivery: Delivery) -> None:
        state = delivery.remote_state
        if state not in _OUTCOMES and not delivery.settled:
            return
        outcome = self._sent.pop(delivery.tag, None)
        remote = delivery.remote
        if outcome is not None and not outcome.done():
            condition = remote.condition
            parts = () if condition is None else (condition.name, condition.description)
            outcome.set_result(
                Outcome(
                    # Settled without an outcome: messaging §3.5.3.
                    state if state in _OUTCOMES else Delivery.RELEASED,
                    ": ".join(filter(None, parts)),
                    failed=bool(remote.failed),
                    undeliverable=bool(remote.undeliverable),
                )
            )
        delivery.settle()

    def _fail(self, lost: asyncio.Future[BrokerLost]) -> None:
        waiting = [outcome for _, outcome in self._waiting]
        for outcome in (*self._sent.values(), *waiting):
            if not outcome.done():
                outcome.set_exception(lost.result())
        self._waiting.clear()
        self._sent.clear()


_OUTCOMES = frozenset(
    {Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED}
)
