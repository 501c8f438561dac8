"""The dispatcher of requests: from the type of a request to its handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from qos.core.queue import (
    browsing,
    link_requests,
    owner_requests,
    requeuing,
    subscriber_requests,
)
from qos.core.queue.effects import QueueEffect
from qos.core.queue.requests import (
    Affiliations,
    CloseLink,
    Configure,
    Create,
    Credit,
    DefaultConfig,
    Delete,
    Extend,
    GetConfigure,
    GetOptions,
    Items,
    KeepTerminus,
    OpenLink,
    Publish,
    Purge,
    Refusal,
    Request,
    Requeue,
    Retract,
    SetAffiliations,
    SetOptions,
    Subscribe,
    Subscriptions,
    Suspend,
    Unlock,
    Unsubscribe,
)
from qos.core.queue.results import Result
from qos.core.queue.service import Queues
from qos.core.strings import bare

__all__ = ["handle"]

_Handler: TypeAlias = Callable[
    [Queues, Any, str, float], tuple[Result, list[QueueEffect]]
]

_HANDLERS: Mapping[type, _Handler] = {
    Affiliations: owner_requests.affiliations,
    Configure: owner_requests.configure,
    Create: owner_requests.create,
    DefaultConfig: owner_requests.default_config,
    Delete: owner_requests.delete,
    GetConfigure: owner_requests.get_configure,
    Purge: owner_requests.purge,
    Requeue: requeuing.requeue,
    SetAffiliations: owner_requests.set_affiliations,
    Subscriptions: owner_requests.subscriptions,
    CloseLink: link_requests.close_link,
    Credit: link_requests.credit,
    Extend: subscriber_requests.extend,
    GetOptions: subscriber_requests.get_options,
    Items: browsing.items,
    KeepTerminus: link_requests.keep_terminus,
    OpenLink: link_requests.open_link,
    Publish: subscriber_requests.publish,
    Retract: subscriber_requests.settle,
    SetOptions: subscriber_requests.set_options,
    Subscribe: subscriber_requests.subscribe,
    Suspend: link_requests.suspend,
    Unlock: subscriber_requests.settle,
    Unsubscribe: subscriber_requests.unsubscribe,
}


def handle(
    service: Queues, request: Request, requester: str, now: float
) -> tuple[Result, list[QueueEffect]]:
    """Do what the request asks for, completely or not at all.

    Args:
        service: all nodes.
        request: well-formed.
        requester: the full JID that asks.
        now: the time.

    Returns:
        The answer, and the effects. The answer is sent when the effects are done, in
        this order.

    Raises:
        Refusal: the request is refused, and nothing was changed. For somebody who may not
            use the node, the answer is always that of a node that is not there.
    """
    try:
        return _HANDLERS[type(request)](service, request, requester, now)
    except Refusal:
        node = getattr(request, "node", "")
        if node and not isinstance(request, Create):
            # Whatever is wrong: whoever may not use a node is not told that it exists.
            service.shown(node, bare(requester))
        raise
