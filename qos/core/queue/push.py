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
        digest: the login for digest authentication at the host of `href` (RFC 7616):
            `user:password` in base64; '': none.
        selector: which messages are pushed; '': all.
        headers: for the host of `href`, by name.
        method: by which a message is sent where the target does not say: `POST` or `PUT`.
        content_type: of messages that are bytes of no known type; ''.
        sessions: how many messages are on their way at a time.
        max_retries: how often a message is sent again within one delivery.
        retry_wait_s: seconds before each of these retries.
        disable_on_failure: what a failed delivery does. True: it disables the subscriber,
            and its message has not failed. False: it never disables it. None: many in a
            row do.
        durable: it outlives the service; otherwise it is removed at the next start.
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
    authorization: str = field(default="", repr=False)
    digest: str = field(default="", repr=False)
    selector: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    method: str = "POST"
    content_type: str = ""
    sessions: int = 1
    max_retries: int = 0
    retry_wait_s: float = 0.0
    disable_on_failure: bool | None = None
    durable: bool = True
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
