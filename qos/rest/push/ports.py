"""Protocols between the parts of push."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from typing import Any, Protocol

from qos.core.queue.effects import Change
from qos.core.queue.push import PushLink, PushSubscriber
from qos.core.queue.requests import Request
from qos.core.queue.results import Result
from qos.core.rest.forwarding import Fate, NoReply, PushReply, PushRequest
from qos.core.rest.push_targets import PushRules
from qos.engine.queue_engine import QueueEngine

__all__ = ["Client", "Deliverer", "PusherHost"]


class Client(Protocol):
    """Makes the requests of all subscribers; it is a PushClient.

    Attributes:
        rules: where it may push to.
    """

    rules: PushRules

    async def send(
        self,
        request: PushRequest,
        body: bytes,
        headers: Mapping[str, str],
        subscriber: PushSubscriber,
    ) -> PushReply | NoReply:
        """Make a request; nothing is raised. See PushClient."""

    async def aclose(self) -> None:
        """Close all connections."""


class PusherHost(Protocol):
    """The part of `Pushers` that a subscriber uses; the class has the details.

    Attributes:
        engine: of the queues.
        consumers: of the gateway, by full JID.
        client: makes its requests.
        is_user: whether an account has a user.
        jitter: a random number from 0 to 1.
        closing: nothing is started any more.
    """

    engine: QueueEngine
    consumers: MutableMapping[str, Any]
    client: Client
    is_user: Callable[[str], bool]
    jitter: Callable[[], float]
    closing: bool

    def count(self, node: str, fate: Fate) -> None:
        """Count an attempt."""

    async def save(self, change: Change) -> None:
        """Write a change."""

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Let this be done."""


class Deliverer(Protocol):
    """The part of a subscriber that its deliveries use.

    Attributes:
        subscriber: as it is on disk.
        pushers: all subscribers.
        links: the one-off links of messages whose outcome is not known, by seq.
    """

    subscriber: PushSubscriber
    links: dict[int, PushLink]

    @property
    def pushers(self) -> PusherHost:
        """See the class."""

    @property
    def is_over(self) -> bool:
        """Whether what has begun has to come to its end."""

    async def pause(self, seconds: float) -> None:
        """Wait; not longer than deliveries are begun."""

    async def ask(self, request: Request) -> Result:
        """The answer to a request of this subscriber."""
