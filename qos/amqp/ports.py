"""The connection and the gateway, as the links of AMQP know them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol

from proton import Condition, Link

from qos.amqp.attached import LinksByName
from qos.amqp.deliveries import Delivery
from qos.amqp.termini import KeptTermini
from qos.amqp.unsettled import Unsettled
from qos.core.amqp.frame_shim import FrameShim
from qos.core.queue.terminus import TerminusName
from qos.engine.gateway import Consumer
from qos.engine.queue_engine import QueueEngine
from qos.users import Users

__all__ = ["ConsumerLink", "Hub", "LinkHost"]

P = ParamSpec("P")


class LinkHost(Protocol):
    """A connection, as its links know it.

    Attributes:
        engine: of the queues.
        jid: the full JID that publishes for this connection, once it is logged in.
        silent: the full JIDs of links that get nothing until the peer is heard of.
        shim: reads and writes what proton hides.
    """

    engine: QueueEngine
    jid: str
    silent: set[str]
    shim: FrameShim

    @property
    def hub(self) -> Hub:
        """The gateway."""

    @property
    def account(self) -> str:
        """The bare JID that has logged in."""

    @property
    def container(self) -> str:
        """The container-id of the peer."""

    def terminus_name(self, link: str) -> TerminusName:
        """The name of the terminus of a link: account, container-id and link name."""

    def guarded(self, call: Callable[P, object]) -> Callable[P, None]:
        """A callback that ends this connection if it raises, and nothing else."""

    def write_soon(self) -> None:
        """Write what proton wants to send, once in this turn of the loop."""

    def flush_after_read(self, flush: Callable[[], object]) -> None:
        """Call `flush` after all bytes of this read are handled."""

    def has_room(self, unsent: int, tell: Callable[[], object]) -> bool:
        """Whether more can be sent to a consumer.

        Args:
            unsent: bytes of messages that proton has of its session.
            tell: called when there may be room, if there is none.
        """

    def requested(self) -> None:
        """Count a request of the account, such as an attach."""

    def pending(self, size: int) -> None:
        """Count bytes of messages that are being written, or (negative) are written."""

    def unfinished(self, size: int) -> bool:
        """Count bytes of messages that are arriving, or (negative) are no more.

        Returns:
            Whether there may be so many.
        """

    def late(self, delivery: Delivery) -> None:
        """Drop a delivery on a link that is refused or has ended."""

    def detach(self, link: Link, condition: Condition) -> None:
        """Close a link, for this reason."""

    def close(self, condition: Condition) -> None:
        """Close the connection, for this reason."""


class ConsumerLink(Consumer, Protocol):
    """A link to a consumer, as the gateway knows it."""

    def has_room(self) -> bool:
        """Whether more items can be sent; if not, the engine is told when."""


class Hub(Protocol):
    """The gateway, as the links and logins of its connections know it.

    Attributes:
        engine: of the queues.
        users: may log in with a password or a certificate; None: nobody.
        anonymous: the account of everybody who logs in as ANONYMOUS; None: nobody may.
        name: the container-id.
        termini: those that are suspended.
        unsettled: the unsettled deliveries of their links.
        links: those that are attached, of all connections.
    """

    engine: QueueEngine
    users: Users | None
    anonymous: str | None
    name: str
    termini: KeptTermini
    unsettled: Unsettled
    links: LinksByName

    def joined(self, jid: str, link: ConsumerLink) -> None:
        """Note that this full JID is a consumer of this gateway."""

    def left(self, jid: str) -> None:
        """Note that this full JID is a consumer no more."""
