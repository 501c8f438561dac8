"""What each request to a queue service is handled by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from qos.core import queue_owners, queue_users
from qos.core.queue_effects import QueueEffect
from qos.core.queue_requests import (
    Affiliations,
    Configure,
    Create,
    DefaultConfig,
    Delete,
    Extend,
    GetConfigure,
    GetOptions,
    Items,
    Publish,
    Purge,
    Request,
    Requeue,
    Result,
    Retract,
    SetAffiliations,
    SetOptions,
    Subscribe,
    Subscriptions,
    Unlock,
    Unsubscribe,
)
from qos.core.queue_service import Queues

__all__ = ["handle"]

_Handler: TypeAlias = Callable[
    [Queues, Any, str, float], tuple[Result, list[QueueEffect]]
]

_HANDLERS: Mapping[type, _Handler] = {
    Affiliations: queue_owners.affiliations,
    Configure: queue_owners.configure,
    Create: queue_owners.create,
    DefaultConfig: queue_owners.default_config,
    Delete: queue_owners.delete,
    GetConfigure: queue_owners.get_configure,
    Purge: queue_owners.purge,
    Requeue: queue_owners.requeue,
    SetAffiliations: queue_owners.set_affiliations,
    Subscriptions: queue_owners.subscriptions,
    Extend: queue_users.extend,
    GetOptions: queue_users.get_options,
    Items: queue_users.items,
    Publish: queue_users.publish,
    Retract: queue_users.settle,
    SetOptions: queue_users.set_options,
    Subscribe: queue_users.subscribe,
    Unlock: queue_users.settle,
    Unsubscribe: queue_users.unsubscribe,
}


def handle(
    service: Queues, request: Request, requester: str, now: float
) -> tuple[Result, list[QueueEffect]]:
    """Do what is asked for, all of it or nothing.

    Args:
        service: all nodes.
        request: well-formed.
        requester: the full JID that asks.
        now: the time.

    Returns:
        What to answer when the effects, in this order, are done.

    Raises:
        Refusal: nothing was changed.
    """
    return _HANDLERS[type(request)](service, request, requester, now)
