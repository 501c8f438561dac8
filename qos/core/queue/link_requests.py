"""The requests of a gateway about its links (AMQP 1.0); XMPP clients cannot send them."""

from __future__ import annotations

from qos.core.queue.effects import QueueEffect
from qos.core.queue.requests import (
    CloseLink,
    Credit,
    KeepTerminus,
    OpenLink,
    Suspend,
)
from qos.core.queue.results import CreditResult, Ok
from qos.core.queue.service import Queues
from qos.core.queue.subscriber_requests import subscription_of
from qos.core.strings import bare

__all__ = ["close_link", "credit", "keep_terminus", "open_link", "suspend"]

_Effects = list[QueueEffect]


def credit(
    service: Queues, request: Credit, requester: str, _now: float
) -> tuple[CreditResult, _Effects]:
    """Limit the deliveries to this full JID, a subscriber; see `Credit`."""
    queue = service.queue(request.node)
    subscription_of(queue, requester, "", requester)
    served = queue.live.holders.set_credit(requester, request.limit)
    return CreditResult(served), []


def open_link(
    service: Queues, request: OpenLink, requester: str, _now: float
) -> tuple[Ok, _Effects]:
    """Count a link; see `OpenLink`."""
    queue = service.queue(request.node)
    queue.links.opened(requester, creator=request.made)
    return Ok(), []


def close_link(
    service: Queues, request: CloseLink, requester: str, _now: float
) -> tuple[Ok, _Effects]:
    """Stop counting a link; see `CloseLink`."""
    queue = service.queue(request.node)
    queue.links.closed(requester)
    return Ok(), []


def suspend(
    service: Queues, request: Suspend, requester: str, now: float
) -> tuple[Ok, _Effects]:
    """Keep what the requester has while it is away; see `Suspend`."""
    service.queue(request.node)
    until = None if request.seconds is None else now + request.seconds
    return Ok(), service.suspend(requester, until, request)


def keep_terminus(
    service: Queues, request: KeepTerminus, requester: str, now: float
) -> tuple[Ok, _Effects]:
    """Keep a terminus; see `KeepTerminus`."""
    terminus = request.terminus
    assert terminus.jid == requester
    service.shown(terminus.node, bare(requester))
    service.termini.check(terminus)
    before = service.termini.named(terminus.name)
    effects: _Effects = []
    if before is not None and before.jid != requester:
        effects += service.departed(before.jid, now)
    return Ok(), effects + service.termini.keep(terminus)
