"""A blocking AMQP client that sends and receives messages as bytes, by proton's engine."""

import select
import socket
import time
from collections.abc import Callable

from proton import (
    Collector,
    Connection,
    Delivery,
    Described,
    Endpoint,
    Event,
    Receiver,
    Sender,
    Session,
    Terminus,
    Transport,
    symbol,
    ulong,
)

from waiting import LIMIT_S

__all__ = ["RawAmqp"]


class RawAmqp:
    """One connection with one session, logged in as a user of the bench.

    Attributes:
        written: every byte that was sent.
        read: how many bytes have come.
    """

    def __init__(self, port: int, *, user: str = "alice", idle_s: float = 0.0) -> None:
        """Log in.

        Args:
            port: of the gateway.
            user: of the bench.
            idle_s: proton closes the connection if nothing comes for so long, by the
                time that `tick` gets; 0: never.
        """
        self.written = bytearray()
        self.read = 0
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        self._collector = Collector()
        self._connection = Connection()
        self._connection.collect(self._collector)
        self._connection.container = f"raw-{user}"
        self._connection.hostname = "localhost"
        self._connection.user = user
        self._connection.password = "secret"  # noqa: S105 - of the bench
        self._transport = Transport()
        self._transport.idle_timeout = idle_s
        sasl = self._transport.sasl()
        sasl.allow_insecure_mechs = True
        sasl.allowed_mechs("PLAIN")
        self._transport.bind(self._connection)
        self._connection.open()
        self._session = self._connection.session()
        self._session.open()
        self._tags = 0
        self.inbox: list[tuple[Delivery, bytes]] = []

    def close(self) -> None:
        """End the connection in order."""
        self._connection.close()
        self.pump()
        self._socket.close()

    def session(self) -> Session:
        """One more session."""
        session = self._connection.session()
        session.open()
        return session

    def sender(
        self, node: str, *, name: str = "", session: Session | None = None
    ) -> Sender:
        """A link to a node."""
        link = (session or self._session).sender(name or f"to-{node}")
        link.target.address = node
        link.open()
        self.until(lambda: link.credit > 0)
        return link

    def receiver(self, node: str, credit: int) -> Receiver:
        """A link from a node."""
        link = self._session.receiver(f"from-{node}")
        link.source.address = node
        link.open()
        link.flow(credit)
        self.pump()
        return link

    def dynamic(self, policy: int) -> Sender:
        """A link to a node that is made for it, with this lifetime policy."""
        link = self._session.sender("dynamic")
        link.target.dynamic = True
        lifetime = {symbol("lifetime-policy"): Described(ulong(policy), [])}
        link.target.properties.put_object(lifetime)
        link.open()
        self.until(lambda: link.credit > 0)
        return link

    def coordinator(self) -> str:
        """Ask for transactions; the condition with which that is refused."""
        link = self._session.sender("coordinator")
        link.target.type = Terminus.COORDINATOR
        link.open()
        self.until(lambda: link.remote_condition is not None)
        assert link.remote_condition is not None
        return link.remote_condition.name

    def send(self, link: Sender, message: bytes) -> int:
        """Send a message; returns its outcome."""
        (outcome,) = self.send_all(link, message)
        return outcome

    def send_all(self, link: Sender, *messages: bytes) -> list[int]:
        """Send messages in one write; returns their outcomes."""
        deliveries = []
        for message in messages:
            self._tags += 1
            deliveries.append(link.delivery(str(self._tags)))
            link.stream(message)
            link.advance()
        self.until(lambda: all(each.settled for each in deliveries))
        states = [int(each.remote_state) for each in deliveries]
        for each in deliveries:
            each.settle()
        return states

    def accept_and_detach(self, link: Receiver, count: int) -> None:
        """Accept as many messages and end their link, in one write."""
        self.until(lambda: len(self.inbox) == count)
        for delivery, _ in self.inbox:
            delivery.update(Delivery.ACCEPTED)
        link.close()
        self.pump()

    def receive(self, link: Receiver) -> bytes:
        """The next message; it is accepted."""
        link.flow(1)
        self.until(lambda: bool(self.inbox))
        delivery, message = self.inbox.pop(0)
        delivery.update(Delivery.ACCEPTED)
        self.pump()
        self.until(lambda: delivery.settled)
        delivery.settle()
        return message

    @property
    def is_open(self) -> bool:
        """Whether both ends have opened the connection, and neither has closed it."""
        both = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_ACTIVE
        return bool(self._connection.state == both)

    def tick(self, now: float) -> None:
        """Let proton notice that nothing has come for too long."""
        self._transport.tick(now)
        self.pump()

    def until(self, holds: Callable[[], bool]) -> None:
        """Go on until this holds."""
        end = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < end, "nothing comes"
            self.pump()

    def pump(self) -> None:
        """Write what there is, and read what has come."""
        while (size := self._transport.pending()) > 0:
            data = self._transport.peek(size) or b""
            self.written += data
            self._socket.sendall(data)
            self._transport.pop(size)
        data = b""
        if select.select([self._socket], [], [], 0.05)[0]:
            data = self._socket.recv(65536)
        self.read += len(data)
        if data:
            self._transport.push(data)
        while (event := self._collector.peek()) is not None:
            if event.type == Event.DELIVERY and isinstance(event.link, Receiver):
                self._take(event.link, event.delivery)
            self._collector.pop()

    def _take(self, link: Receiver, delivery: Delivery | None) -> None:
        if delivery is None or not delivery.readable or delivery.partial:
            return
        message = link.recv(delivery.pending) or b""
        link.advance()
        self.inbox.append((delivery, message))
