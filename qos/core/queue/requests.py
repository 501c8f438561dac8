"""The requests to a queue service, and their refusal; results: `qos.core.queue.results`.

The words are those of XEP-0060, XEP-0254 and our extensions. Their XML is in
`xep_0254.requests`, `xep_0254.request_items`, `xep_0254.service_stanza` and
`xep_0254.service_lists`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from qos.core.queue.item import (
    Affiliation,
    Disposition,
    ItemOutcome,
)
from qos.core.queue.lifetime import Lifetime
from qos.core.queue.properties import Properties
from qos.core.queue.terminus import Terminus
from qos.core.record import record
from qos.errors import ErrorType, RemoteProtocolError

__all__ = [
    "Affiliations",
    "CloseLink",
    "Configure",
    "Create",
    "Credit",
    "DefaultConfig",
    "Delete",
    "Extend",
    "GetConfigure",
    "GetOptions",
    "Items",
    "KeepTerminus",
    "OpenLink",
    "Publish",
    "PublishedItem",
    "Purge",
    "Refusal",
    "Request",
    "Requeue",
    "Retract",
    "SetAffiliations",
    "SetOptions",
    "Settlement",
    "Subscribe",
    "Subscriptions",
    "Suspend",
    "Unlock",
    "Unsubscribe",
    "may_not_publish",
    "no_node",
]

#: Values of a form, by the names of its fields.
Fields: TypeAlias = Mapping[str, str]


class Refusal(RemoteProtocolError):
    """The request is refused; answered with a stanza error, and nothing is changed.

    Attributes:
        pubsub: the additional condition of XEP-0060, such as `invalid-options`.
        feature: the missing feature, with the condition `unsupported`.
        form: answer with the subscription options form, empty (XEP-0254 listing 1).
    """

    def __init__(
        self,
        text: str,
        *,
        condition: str,
        type: ErrorType,  # noqa: A002 - as in RFC 6120
        pubsub: str = "",
        feature: str = "",
        form: bool = False,
    ) -> None:
        super().__init__(text, condition=condition, type=type)
        self.pubsub = pubsub
        self.feature = feature
        self.form = form


def no_node(name: str) -> Refusal:
    """There is no node of this name, as far as the requester may know."""
    return Refusal(
        f"there is no node {name!r}", condition="item-not-found", type="cancel"
    )


def may_not_publish(name: str, account: str) -> Refusal:
    """The account knows the node, but may not publish to it (XEP-0060 §7.1.3.1)."""
    return Refusal(
        f"{account} may not publish to {name!r}", condition="forbidden", type="auth"
    )


# -- requests of publishers and subscribers --------------------------------


@record(frozen=True, slots=True, kw_only=True)
class PublishedItem:
    """An item to be published.

    Attributes:
        item_id: the id that its publisher gave it, or a generated one.
        payload: XML, one element or ''.
        digest: of the payload and the properties (SHA-256, hex); see `content_digest`.
        size: bytes of the payload and of the properties.
        priority: 0 to 9; None: the default, 4.
        ttl: seconds until it expires; None: as the node is configured.
        delay: seconds before it is delivered.
        properties: within their limits; see `qos.core.queue.properties.why_not`.
    """

    item_id: str
    payload: str
    digest: str
    size: int
    priority: int | None = None
    ttl: float | None = None
    delay: float = 0.0
    properties: Properties = field(default_factory=dict, hash=False)


@record(frozen=True, slots=True)
class Publish:
    """Publish these items, all or none (XEP-0060 §7.1).

    Attributes:
        node: the name of the node.
        entries: the items.
        issued_at: None: the publisher has chosen the ids. Else the service gave them to
            this publisher at this time, for one publish: if one of them has been used,
            all are repeated, whatever the content; and new items are refused (`gone`)
            once the node might have forgotten a use. It is for a gateway.
        new_ids: the service has made the ids for this request, so that no item has had
            any of them, and the store need not be searched. It is for a gateway.
    """

    node: str
    entries: tuple[PublishedItem, ...]
    issued_at: float | None = None
    new_ids: bool = False


@record(frozen=True, slots=True)
class Subscribe:
    """Subscribe (XEP-0254 §2.1).

    Attributes:
        node: the name of the node.
        jid: a full JID, or a bare one for all resources of its account.
        options: of the subscription; None: the request had no form.
        link: the JID is that of a link of a gateway. It is for a gateway.
    """

    node: str
    jid: str
    options: Fields | None = None
    link: bool = False


@record(frozen=True, slots=True)
class Unsubscribe:
    """Unsubscribe (XEP-0060 §6.2); the locks stay."""

    node: str
    jid: str
    subid: str = ""


@record(frozen=True, slots=True)
class GetOptions:
    """Show the options of a subscription (XEP-0060 §6.3.2)."""

    node: str
    jid: str
    subid: str = ""


@record(frozen=True, slots=True)
class SetOptions:
    """Change the options of a subscription (XEP-0060 §6.3.5)."""

    node: str
    jid: str
    options: Fields
    subid: str = ""


@record(frozen=True, slots=True, kw_only=True)
class Settlement(Disposition):
    """The end of the delivery of one item, as its holder asks for it.

    Attributes:
        item_id: the item.
        token: fence of the delivery that is meant; '': the current one.
        outcome: accepted (retract); released, modified or rejected (unlock).
        annotations: with modified: the item's annotations from now on; '': as before.
    """

    item_id: str
    token: str = ""
    outcome: ItemOutcome = ItemOutcome.ACCEPTED
    annotations: str = ""


@record(frozen=True, slots=True)
class Retract:
    """Delete items, all or none (XEP-0254 §2.3); the outcome of each is accepted.

    Attributes:
        node: the name of the node.
        settlements: the items.
        notify: the requester wants an event beside the answer (XEP-0060 §7.2). Another
            holder always gets one.
    """

    node: str
    settlements: tuple[Settlement, ...]
    notify: bool = True


@record(frozen=True, slots=True)
class Unlock:
    """Unlock items, all or none (XEP-0254 §2.4)."""

    node: str
    settlements: tuple[Settlement, ...]


@record(frozen=True, slots=True)
class Extend:
    """Move the deadline of locks to this many seconds from now; tokens by item id."""

    node: str
    seconds: float
    tokens: tuple[tuple[str, str], ...]


@record(frozen=True, slots=True)
class Credit:
    """Limit the deliveries to the requester (AMQP 1.0 transport §2.6.7); never stored.

    Without this, only its `queue_requests` limits what a subscriber gets. It ends with
    the subscription. It is for a gateway: XMPP clients cannot send it.

    Attributes:
        node: the name of the node.
        limit: how many deliveries there may be in all since the first Credit of this
            full JID. A total, and not what is left: then it does not matter which of
            the deliveries have reached the gateway.
    """

    node: str
    limit: int


@record(frozen=True, slots=True)
class OpenLink:
    """Count the requester, a full JID, as a link of the node; never stored.

    It is for a gateway, and matters to a node with a lifetime.

    Attributes:
        node: the name of the node.
        made: the link has made the node.
    """

    node: str
    made: bool = False


@record(frozen=True, slots=True)
class CloseLink:
    """Stop counting the requester as a link of the node."""

    node: str


@record(frozen=True, slots=True)
class KeepTerminus:
    """Keep the requester's terminus, or what has changed of it (messaging §3.5).

    It is on disk with the answer if it is durable, and ends when the requester has left.
    A terminus of the same name and another full JID ends. It is for a gateway.

    Attributes:
        terminus: of the requester.
    """

    terminus: Terminus


@record(frozen=True, slots=True)
class Suspend:
    """Keep the requester's subscription and locks while it is away.

    Only the time of a durable terminus is stored; see `KeepTerminus`.

    It gets nothing until it is heard of again. It is for a gateway, whose links may be
    attached again (AMQP 1.0 messaging §3.5.6). A lock that times out ends all the same.

    Attributes:
        node: the name of the node.
        seconds: after which it has left, if it is not heard of; None: never.
        defaults: the outcomes of deliveries that it has when it has left (messaging
            §3.3), in memory until it subscribes again; (): as said before. A delivery
            without such an outcome has failed.
    """

    node: str
    seconds: float | None
    defaults: tuple[Settlement, ...] = ()


@record(frozen=True, slots=True, kw_only=True)
class Items:
    """Browse items without locking them (XEP-0060 §6.5).

    Attributes:
        node: the name of the node.
        item_ids: only these; () for all.
        max_items: the largest number of items; None: as many as fit into an answer.
        after: RSM (XEP-0059): only items after this one; '' for all.
        state: `live` (available, delayed and acquired), `accepted` (accepted items that
            are still kept) or `dead`.
        last: of more items than max_items, the last ones, and not the first; live ones
            only.
    """

    node: str
    item_ids: tuple[str, ...] = ()
    max_items: int | None = None
    after: str = ""
    state: str = "live"
    last: bool = False


@record(frozen=True, slots=True)
class Subscriptions:
    """List the requester's subscriptions, to a node or ('') to all (XEP-0060 §5.6).

    With `owner`: all subscriptions to this node, for its owner (XEP-0060 §8.8.1).
    """

    node: str
    owner: bool = False


@record(frozen=True, slots=True)
class Affiliations:
    """List affiliations, with `node` and `owner` as above (XEP-0060 §5.7, §8.9.1)."""

    node: str
    owner: bool = False


# -- requests of owners ----------------------------------------------------


@record(frozen=True, slots=True)
class Create:
    """Create a node (XEP-0060 §8.1); name '': the service makes one up.

    Attributes:
        node: its name.
        config: its configuration.
        lifetime: of a node that a link makes; None: it stays.
    """

    node: str
    config: Fields = field(default_factory=dict)
    lifetime: Lifetime | None = None


@record(frozen=True, slots=True)
class DefaultConfig:
    """Show the default configuration (XEP-0060 §8.3)."""


@record(frozen=True, slots=True)
class GetConfigure:
    """Show the configuration of a node (XEP-0060 §8.2.1)."""

    node: str


@record(frozen=True, slots=True)
class Configure:
    """Change the configuration of a node; options not given stay (XEP-0060 §8.2.4)."""

    node: str
    config: Fields


@record(frozen=True, slots=True)
class Delete:
    """Delete a node and everything in it (XEP-0060 §8.4)."""

    node: str


@record(frozen=True, slots=True)
class Purge:
    """Remove all items of a node, locked and dead ones too (XEP-0060 §8.5)."""

    node: str


@record(frozen=True, slots=True)
class SetAffiliations:
    """Change affiliations, by bare JID (XEP-0060 §8.9.2)."""

    node: str
    affiliations: Mapping[str, Affiliation]


@record(frozen=True, slots=True)
class Requeue:
    """Requeue dead items of a node.

    Attributes:
        node: the node.
        item_ids: their ids; () for all of them, some at a time.
        after: `last` of the answer to the request before; '' for the first one.
    """

    node: str
    item_ids: tuple[str, ...] = ()
    after: str = ""


Request: TypeAlias = (
    Affiliations
    | CloseLink
    | Configure
    | Create
    | Credit
    | DefaultConfig
    | Delete
    | Extend
    | GetConfigure
    | GetOptions
    | Items
    | KeepTerminus
    | OpenLink
    | Publish
    | Purge
    | Requeue
    | Retract
    | SetAffiliations
    | SetOptions
    | Subscribe
    | Subscriptions
    | Suspend
    | Unlock
    | Unsubscribe
)
