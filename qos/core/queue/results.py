"""The results of the requests to a queue service; see `qos.core.queue.requests`."""

from __future__ import annotations

from typing import TypeAlias

from qos.core.queue.item import Affiliation, Item, Node, Subscription
from qos.core.record import record

__all__ = [
    "AffiliationsResult",
    "ConfigureResult",
    "CreateResult",
    "CreditResult",
    "ExtendResult",
    "ItemsResult",
    "Ok",
    "OptionsResult",
    "PublishResult",
    "RequeueResult",
    "Result",
    "SubscribeResult",
    "SubscriptionsResult",
]


@record(frozen=True, slots=True)
class Ok:
    """Done; an empty result.

    Attributes:
        repeated: of a retract or an unlock: all of it had been done before.
    """

    repeated: bool = False


@record(frozen=True, slots=True)
class PublishResult:
    """The ids under which the items are known.

    Attributes:
        node: the name of the node.
        item_ids: of all items, in the order of the request.
        repeated: those of them whose items had been published before.
    """

    node: str
    item_ids: tuple[str, ...]
    repeated: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class SubscribeResult:
    """The subscription, with its options (XEP-0254 listing 3)."""

    subscription: Subscription


@record(frozen=True, slots=True)
class OptionsResult:
    """The options of a subscription, as a form to fill in."""

    subscription: Subscription


@record(frozen=True, slots=True)
class ExtendResult:
    """The seconds from now for which the locks last."""

    node: str
    seconds: float
    item_ids: tuple[str, ...]


@record(frozen=True, slots=True)
class CreditResult:
    """How many deliveries there have been since the first Credit of this full JID."""

    served: int


@record(frozen=True, slots=True, kw_only=True)
class ItemsResult:
    """Items of a node; their payloads are in the store.

    Attributes:
        node: the name of the node.
        items: in the order of delivery, as far as it is known.
        count: how many there are in total (XEP-0059); None: too many to be counted.
        now: the time at which this result is true.
        owner: the requester owned the node at that time; only an owner sees the holders
            of items.
        dropped: see `Node.dropped`.
    """

    node: str
    items: tuple[Item, ...]
    count: int | None
    now: float
    owner: bool = False
    dropped: int = 0


@record(frozen=True, slots=True)
class SubscriptionsResult:
    """Subscriptions; owner: with the details for the owner of the node."""

    node: str
    subscriptions: tuple[Subscription, ...]
    owner: bool = False


@record(frozen=True, slots=True)
class AffiliationsResult:
    """Affiliations, each as (node, bare JID, affiliation)."""

    node: str
    affiliations: tuple[tuple[str, str, Affiliation], ...]
    owner: bool = False


@record(frozen=True, slots=True)
class CreateResult:
    """The name of the new node."""

    node: str


@record(frozen=True, slots=True)
class ConfigureResult:
    """The configuration of a node, as a form; None: the default configuration."""

    node: Node | None


@record(frozen=True, slots=True)
class RequeueResult:
    """Dead items were requeued.

    Attributes:
        node: the node.
        item_ids: the ids that they have there.
        last: after which the next request goes on; '': there are no more.
    """

    node: str
    item_ids: tuple[str, ...]
    last: str = ""


Result: TypeAlias = (
    AffiliationsResult
    | ConfigureResult
    | CreateResult
    | CreditResult
    | ExtendResult
    | ItemsResult
    | Ok
    | OptionsResult
    | PublishResult
    | RequeueResult
    | SubscribeResult
    | SubscriptionsResult
)
