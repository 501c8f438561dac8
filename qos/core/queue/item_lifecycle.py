"""The life of a queue item: XEP-0254 with the states and outcomes of AMQP 1.0.

::

                 acquire                     accept
    AVAILABLE ─────────────▶ ACQUIRED ─────────────────────▶ ARCHIVED
      ▲  ▲  │                 │  │ │   reject, the last fail    ▲ │
      │  │  │                 │  │ └───────────────────────────┘ │
      │  └──┼─ release, modify, fail                           │ │
      │     │                    └ extend                      │ │
      │     └──────────────── expire, withdraw ────────────────┘ │
      └─────────────────────────── requeue ──────────────────────┘

A *fail* is a failed delivery: a modified outcome with delivery-failed, a lock that
timed out, or a holder that left. It counts towards the maximum. A locked item does not
expire, since a worker must be able to finish what it has begun (AMQP 1.0 messaging
§3.2.1 says otherwise).

The crash argument: each function returns what to write, and no worker is notified
before that is on disk (`qos.core.queue.effects`). A lock that was written but never
announced times out. A lock that was announced has been written with its token, so a
worker that returns with this token is recognized.

Everything that concerns several items, such as the choice of the next worker, is in
`qos.core.queue.node`.
"""

from __future__ import annotations

from collections.abc import Mapping

from qos.core.queue.item import (
    EndedItem,
    Failure,
    Item,
    ItemOutcome,
    ItemState,
    Node,
)
from qos.core.queue.node_options import NodeOptions
from qos.core.queue.requests import Refusal, Settlement
from qos.core.quick_enum import QuickEnum
from qos.core.record import replace
from qos.core.strings import bare

__all__ = [
    "HOLD_S_MAX",
    "TRANSITIONS",
    "ItemInput",
    "accepted",
    "acquired",
    "check_settlement",
    "dead",
    "ended",
    "expired",
    "extended",
    "forget_at",
    "given_back",
    "requeued",
    "taken_over",
    "unheard",
    "unsent",
]

#: The longest time that an item can be held, with any number of extensions; or the lock
#: time-out, if that is longer. A worker that needs more time is taken to be hung.
HOLD_S_MAX = 24 * 3600.0

#: The settling token of an ended item is remembered for at least this long, even if the
#: dedupe window is shorter: a worker repeats its retract until it has an answer.
SETTLEMENT_S_MIN = 3600.0

#: The number of failures kept in an item's history: the first one, and the latest ones.
_HISTORY_MAX = 20

#: The number of workers that an item may exclude. Resources change, so most exclusions
#: become stale; at the maximum all earlier ones are dropped, since nothing tells which.
_EXCLUDED_MAX = 100


class ItemInput(QuickEnum):
    """The inputs of an item."""

    ACQUIRE = "acquire"
    ACCEPT = "accept"
    RELEASE = "release"
    MODIFY = "modify"
    FAIL = "fail"
    LOSE = "lose"
    REJECT = "reject"
    EXTEND = "extend"
    EXPIRE = "expire"
    WITHDRAW = "withdraw"
    REQUEUE = "requeue"


_AVAILABLE, _ACQUIRED, _ARCHIVED = ItemState

#: The transitions. A missing pair cannot happen: the caller checks first
#: (`check_settlement`).
TRANSITIONS: Mapping[tuple[ItemState, ItemInput], ItemState] = {
    (_AVAILABLE, ItemInput.ACQUIRE): _ACQUIRED,
    (_AVAILABLE, ItemInput.EXPIRE): _ARCHIVED,
    (_AVAILABLE, ItemInput.WITHDRAW): _ARCHIVED,
    (_ACQUIRED, ItemInput.ACCEPT): _ARCHIVED,
    (_ACQUIRED, ItemInput.RELEASE): _AVAILABLE,
    (_ACQUIRED, ItemInput.MODIFY): _AVAILABLE,
    # If this was the last delivery allowed, the item is dead: see given_back.
    (_ACQUIRED, ItemInput.FAIL): _AVAILABLE,
    (_ACQUIRED, ItemInput.LOSE): _AVAILABLE,
    (_ACQUIRED, ItemInput.REJECT): _ARCHIVED,
    (_ACQUIRED, ItemInput.EXTEND): _ACQUIRED,
    # Purge and delete remove locked items too.
    (_ACQUIRED, ItemInput.WITHDRAW): _ARCHIVED,
    (_ARCHIVED, ItemInput.REQUEUE): _AVAILABLE,
}


# -- steps -----------------------------------------------------------------


def acquired(
    item: Item,
    *,
    holder: str,
    token: str,
    durable: bool = False,
    resumable: bool = False,
    now: float,
    timeout_s: float,
) -> Item:
    """The item, locked for a worker.

    Args:
        item: available.
        holder: the full JID that gets it.
        token: random, never used before.
        durable: the lock belongs to the holder's account; see Item.
        resumable: the lock belongs to the worker that has the token; see Item.
        now: the time.
        timeout_s: how long the lock lasts, in seconds.
    """
    return replace(
        item,
        state=_next(item, ItemInput.ACQUIRE),
        receivers=item.receivers | {bare(holder)},
        token=token,
        holder=holder,
        last_holder=holder,
        durable=durable,
        resumable=resumable,
        locked_at=now,
        deadline=now + timeout_s,
    )


def taken_over(item: Item, *, holder: str, token: str, order: int) -> Item:
    """The item with its durable lock moved to another full JID of the same account.

    The lock gets a new token. With the old one both workers could settle the item, and
    each would be told that it did. The deadline stays.

    Args:
        item: locked.
        holder: the full JID that gets it.
        token: random, never used before.
        order: as for given_back: this is a redelivery.
    """
    return replace(item, holder=holder, last_holder=holder, token=token, order=order)


def extended(
    item: Item, *, by: str, seconds: float, now: float, timeout_s: float
) -> Item:
    """The item, locked for this many seconds from now.

    The total time of the hold limits the new deadline, which is never earlier than the
    old one. The token stays: a resumable lock is taken up by the worker that has it,
    which may have another full JID since its connection was lost.

    Args:
        item: locked.
        by: the full JID that asks; it may settle the item.
        seconds: that it asks for.
        now: the time.
        timeout_s: the lock time-out of the node, in seconds.
    """
    if item.resumable:
        item = replace(item, holder=by, last_holder=by)
    cap = item.locked_at + max(HOLD_S_MAX, timeout_s)
    deadline = max(item.deadline, min(now + seconds, cap))
    return replace(item, state=_next(item, ItemInput.EXTEND), deadline=deadline)


def unheard(item: Item, *, since: float, now: float) -> Item:
    """The item with its lock moved by a time in which its worker could not be heard.

    What is left of the lock, and of the longest time of a hold, is what it was then.

    Args:
        item: locked.
        since: when that time began; a later lock has lost only the rest of it.
        now: the end of that time.
    """
    lost_s = now - max(since, item.locked_at)
    return replace(
        item, locked_at=item.locked_at + lost_s, deadline=item.deadline + lost_s
    )


def accepted(item: Item, *, now: float, keep_s: float) -> Item:
    """The item as accepted; it can be browsed for `keep_s` seconds."""
    return _unlocked(
        item,
        state=_next(item, ItemInput.ACCEPT),
        outcome=ItemOutcome.ACCEPTED,
        ended_at=now,
        forget_at=now + keep_s,
    )


def given_back(
    item: Item,
    input_: ItemInput,
    *,
    now: float,
    order: int,
    options: NodeOptions,
    reason: str = "",
    excluded: bool = False,
) -> Item:
    """The item, given back by its worker: available again, perhaps later, or dead.

    AMQP 1.0 messaging §3.4: released does not count as a delivery, modified counts if
    the delivery failed, and rejected ends the item. What this service has lost by its own
    death counts as a delivery, since the worker may have handled it, but it kills no item.

    Args:
        item: locked.
        input_: RELEASE, MODIFY, FAIL, LOSE or REJECT.
        now: the time.
        order: a number larger than that of any earlier redelivery.
        options: of its node.
        reason: of a FAIL or REJECT.
        excluded: do not deliver it to this holder again.
    """
    fails = input_ in {ItemInput.FAIL, ItemInput.REJECT}
    is_lost = input_ is ItemInput.LOSE
    count, lost = item.delivery_count + (fails or is_lost), item.lost + is_lost
    state = _next(item, input_)
    if fails:
        item = _failed(item, reason, now)
    # This applies to a release too: the maximum may have been lowered meanwhile.
    if state is _ARCHIVED or count - lost >= options.max_deliveries:
        return dead(replace(item, delivery_count=count, lost=lost), now=now)
    releases = 0 if fails or is_lost else item.releases + 1
    # Nobody waits for what was no failure of a worker.
    delay_s = 0.0 if is_lost else options.delay_s(count - lost if fails else releases)
    return _unlocked(
        item,
        state=state,
        delivery_count=count,
        lost=lost,
        releases=releases,
        excluded=_and_holder(item) if excluded else item.excluded,
        order=order,
        available_at=now + delay_s,
    )


def unsent(item: Item, *, order: int) -> Item:
    """The item as available again, since its worker could not be sent it.

    Nothing was delivered and nothing given back, so it neither counts nor waits. Only its
    place in the order is that of a redelivery.

    Args:
        item: locked.
        order: as for given_back.
    """
    return _unlocked(item, state=_next(item, ItemInput.RELEASE), order=order)


def expired(item: Item, *, now: float) -> Item:
    """The item as dead, since its ttl is over."""
    _next(item, ItemInput.EXPIRE)
    return dead(_failed(item, "expired", now), now=now)


def dead(item: Item, *, now: float) -> Item:
    """The item as dead: it ended without being accepted, and is kept where it is."""
    return _unlocked(item, state=_ARCHIVED, outcome=ItemOutcome.REJECTED, ended_at=now)


def requeued(
    item: Item,
    *,
    node: Node,
    item_id: str,
    origin: Node | None = None,
) -> Item:
    """The item as available again, for a new life.

    Payload, publisher and history stay the same.

    Args:
        item: dead, or a dead letter that is not locked.
        node: the node where it is to live.
        item_id: its id there.
        origin: of a dead letter, the node where it died.
    """
    assert item.state is not _ACQUIRED
    if item.state is _ARCHIVED:
        _next(item, ItemInput.REQUEUE)
    return replace(
        item,
        node=node.name,
        gen=node.gen,
        item_id=item_id,
        origin="" if origin is None else origin.name,
        origin_id="" if origin is None else item.item_id,
        origin_identity="" if origin is None else origin.identity,
        state=_AVAILABLE,
        # It has no delay: see Item.has_delay.
        available_at=item.published_at,
        # The ttl is over or nearly over by now, and the item must not expire at once.
        expires_at=None,
        delivery_count=0,
        lost=0,
        releases=0,
        order=0,
        receivers=frozenset(),
        excluded=frozenset(),
        last_holder="",
        outcome=None,
        ended_at=None,
        forget_at=None,
    )


def ended(
    item: Item,
    *,
    now: float,
    dedupe_s: float,
    by: str = "",
    outcome: ItemOutcome | None = None,
) -> EndedItem:
    """The record of the item's end.

    Args:
        item: as it was when it was settled.
        now: the time of its end.
        dedupe_s: the node's dedupe window, in seconds.
        by: the full JID that settled it with its token; '': no worker did.
        outcome: the outcome that the worker asked for.
    """
    return EndedItem(
        seq=item.seq,
        node=item.node,
        item_id=item.item_id,
        publisher=item.publisher,
        digest=item.digest,
        ended_at=now,
        forget_at=forget_at(now, dedupe_s),
        token=item.token if by else "",
        account=bare(by),
        outcome=outcome,
        gen=item.gen,
    )


def forget_at(now: float, dedupe_s: float) -> float:
    """When an end is forgotten that is remembered now; see `ended`."""
    return now + max(dedupe_s, SETTLEMENT_S_MIN)


# -- who may ---------------------------------------------------------------


def check_settlement(
    item: Item | None,
    ended_item: EndedItem | None,
    settlement: Settlement,
    *,
    requester: str,
    may_withdraw: bool,
) -> bool:
    """Whether a retract or unlock is still to be done (XEP-0254 §2.3, §2.4).

    The conditions of the XEP overlap. They are checked in one fixed order, and the
    first that matches decides.

    Args:
        item: the item of this id, if it is available or locked; else None.
        ended_item: the remembered end with this token. It may be of an earlier item with
            this id, or of an earlier life of this item.
        settlement: the request.
        requester: the full JID that asks.
        may_withdraw: the requester owns the node or published the item, and asks for a
            retract. A retract with a token means one delivery, and withdraws nothing.

    Returns:
        False when it was already done with the same token: the answer is the same
        again.

    Raises:
        Refusal: the request is not allowed, or comes too late.
    """
    token, account = settlement.token, bare(requester)
    name = settlement.item_id
    if ended_item is not None and _is_repeat(ended_item, settlement, account):
        return False
    if item is None:
        raise Refusal(
            f"there is no item {name!r}", condition="item-not-found", type="cancel"
        )
    locked = item.state is _ACQUIRED
    if may_withdraw and not locked and not token:
        return True
    if account not in item.receivers and not may_withdraw:
        raise Refusal(
            f"{account} has not received {name!r}", condition="forbidden", type="auth"
        )
    if locked and not _holds(item, requester, token):
        raise _conflict(name)
    if not locked or token not in {"", item.token}:
        raise _unexpected(name)
    return True


def _is_repeat(ended_item: EndedItem, settlement: Settlement, account: str) -> bool:
    return (
        settlement.token != ""
        and settlement.token == ended_item.token
        and account == ended_item.account
        and settlement.outcome is ended_item.outcome
    )


def _holds(item: Item, requester: str, token: str) -> bool:
    if item.holder == requester:
        return True
    if bare(item.holder) != bare(requester):
        return False
    # Its worker is known by the token, and nothing else is.
    return token == item.token if item.resumable else item.durable and token != ""


def _conflict(name: str) -> Refusal:
    return Refusal(
        f"{name!r} is locked by another subscriber", condition="conflict", type="cancel"
    )


def _unexpected(name: str) -> Refusal:
    return Refusal(
        f"{name!r} is not locked by you any more",
        condition="unexpected-request",
        type="wait",
    )


# -- helpers ---------------------------------------------------------------


def _next(item: Item, input_: ItemInput) -> ItemState:
    return TRANSITIONS[item.state, input_]


def _unlocked(item: Item, **changes: object) -> Item:
    return replace(
        item,
        token="",
        holder="",
        durable=False,
        resumable=False,
        locked_at=0.0,
        deadline=0.0,
        **changes,  # type: ignore[arg-type]  # each by the name of its field
    )


def _failed(item: Item, reason: str, now: float) -> Item:
    history = (*item.history, Failure(now, item.holder, reason))
    if len(history) > _HISTORY_MAX:
        history = (history[0], *history[2:])
    return replace(item, history=history)


def _and_holder(item: Item) -> frozenset[str]:
    if len(item.excluded) >= _EXCLUDED_MAX:
        return frozenset({item.holder})
    return item.excluded | {item.holder}
