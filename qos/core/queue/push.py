"""Push subscribers of a queue, and the one-off links of the messages on their way.

The service itself makes the requests that a subscriber asks for. What is here is on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from qos.core.queue.consumer_jids import consumer_jid
from qos.core.record import record

__all__ = [
    "LINK_S",
    "PushChange",
    "PushLink",
    "PushSubscriber",
    "RemovePushLink",
    "RemovePushSubscriber",
    "SavePushLink",
    "SavePushSubscriber",
]

#: Seconds for which the link of a message is kept; its target knows it for an hour.
LINK_S = 86_400.0


@record(frozen=True, slots=True, kw_only=True)
class PushSubscriber:
    """A consumer to which the service pushes.

    Attributes:
        subscriber_id: 128 random bits, in its full JID too.
        node: the queue.
        account: the bare JID that has made it.
        rel: how to forward to `href`; see `qos.core.rest.forwarding`.
        href: an absolute URL.
        base: how its maker has reached this service, for links back; such as
            `https://example.org`, or ''.
        authorization: for the host of `href`, as its maker has given it: a value of the
            header Authorization, or ''.
        selector: which messages are pushed; '': all.
        headers: for the host of `href`, by name.
        created_at: seconds since 1970.
        enabled: messages are pushed.
        reason: why it is not enabled, or what failed last; ''.
    """

    subscriber_id: str
    node: str
    account: str
    rel: str
    href: str
    base: str
    authorization: str = ""
    selector: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    created_at: float
    enabled: bool = True
    reason: str = ""

    @property
    def jid(self) -> str:
        """The full JID of this consumer."""
        return consumer_jid(self.account, "http-push", self.subscriber_id)


@record(frozen=True, slots=True)
class PushLink:
    """The one-off link to which a message was posted, perhaps.

    Attributes:
        subscriber_id: whose target has given it.
        seq: the item.
        url: the link.
        kept_at: seconds since 1970.
    """

    subscriber_id: str
    seq: int
    url: str
    kept_at: float


@record(frozen=True, slots=True)
class SavePushSubscriber:
    """Add or replace it."""

    subscriber: PushSubscriber


@record(frozen=True, slots=True)
class RemovePushSubscriber:
    """Remove it, and its links."""

    subscriber_id: str


@record(frozen=True, slots=True)
class SavePushLink:
    """Add or replace it, before it is used."""

    link: PushLink


@record(frozen=True, slots=True)
class RemovePushLink:
    """Forget the link of an item that has ended."""

    subscriber_id: str
    seq: int


PushChange: TypeAlias = (
    SavePushSubscriber | RemovePushSubscriber | SavePushLink | RemovePushLink
)
