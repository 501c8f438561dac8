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

A *fail* is a modified outcome that says so, a lock that timed out, or a holder that
went: it counts. Only an item that is not locked can expire (AMQP 1.0 messaging §3.2.1
says otherwise, but a worker must be able to finish what it has begun).

The crash argument: each function returns what to write, and nobody is told before
that is on disk (`qos.core.queue.effects`). A lock that was written and not told of
times out; one that was told of has been written, token included, so whoever comes
back with it is recognized.

What belongs to several items, such as who gets one next, is in `queue_node`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from qos.core.queue.item import EndedItem, Failure, Item, ItemOutcome, ItemState
from qos.core.queue.node_options import NodeOptions
from qos.core.queue.requests import Refusal, Settlement
from qos.core.replace import replace
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
    "given_back",
    "requeued",
    "taken_over",
]

#: How long an item can be held in all, by extending the lock again and again; where
#: the lock time-out is longer, that. A worker that needs more time is not alive.
HOLD_S_MAX = 24 * 3600.0

#: The settling token of an ended item is remembered at least so long, however short
#: the dedupe window: a worker repeats its retract until it has an answer.
SETTLEMENT_S_MIN = 3600.0

#: Failures kept in an item's history: the first, and the latest.
_HISTORY_MAX = 20

#: Workers that an item may exclude. Resources change: the oldest exclusions are of
#: workers that do not come back, and which they are is not known.
_EXCLUDED_MAX = 100


class ItemInput(enum.Enum):
    """The inputs of an item."""

    ACQUIRE = "acquire"
    ACCEPT = "accept"
    RELEASE = "release"
    MODIFY = "modify"
    FAIL = "fail"
    REJECT = "reject"
    EXTEND = "extend"
    EXPIRE = "expire"
    WITHDRAW = "withdraw"
    REQUEUE = "requeue"


_AVAILABLE, _ACQUIRED, _ARCHIVED = ItemState

#: A pair that is not here cannot be; the caller has looked (`check_settlement`).
TRANSITIONS: Mapping[tuple[ItemState, ItemInput], ItemState] = {
    (_AVAILABLE, ItemInput.ACQUIRE): _ACQUIRED,
    (_AVAILABLE, ItemInput.EXPIRE): _ARCHIVED,
    (_AVAILABLE, ItemInput.WITHDRAW): _ARCHIVED,
    (_ACQUIRED, ItemInput.ACCEPT): _ARCHIVED,
    (_ACQUIRED, ItemInput.RELEASE): _AVAILABLE,
    (_ACQUIRED, ItemInput.MODIFY): _AVAILABLE,
    # At the last of them it is dead: see given_back.
    (_ACQUIRED, ItemInput.FAIL): _AVAILABLE,
    (_ACQUIRED, ItemInput.REJECT): _ARCHIVED,
    (_ACQUIRED, ItemInput.EXTEND): _ACQUIRED,
    # Purge and delete take locked items too.
    (_ACQUIRED, ItemInput.WITHDRAW): _ARCHIVED,
    (_ARCHIVED, ItemInput.REQUEUE): _AVAILABLE,
}


# -- steps -----------------------------------------------------------------


def acquired(
    item: Item, *, holder: str, token: str, durable: bool, now: float, timeout_s: float
) -> Item:
    """Locked for a worker.

    Args:
        item: available.
        holder: the full JID that gets it.
        token: random, never used before.
        durable: the lock outlives the holder's presence.
        now: the time.
        timeout_s: how long the lock lasts.
    """
    return replace(
        item,
        state=_next(item, ItemInput.ACQUIRE),
        receivers=item.receivers | {bare(holder)},
        token=token,
        holder=holder,
        last_holder=holder,
        durable=durable,
        locked_at=now,
        deadline=now + timeout_s,
    )


def taken_over(item: Item, *, holder: str, token: str, order: int) -> Item:
    """A durable lock, now with another full JID of its account.

    Under a new token, or two of them could settle it, and each would be told that it
    has. The deadline stays.

    Args:
        item: locked.
        holder: the full JID that gets it.
        token: random, never used before.
        order: as for given_back: this is a redelivery.
    """
    return replace(item, holder=holder, last_holder=holder, token=token, order=order)


def extended(item: Item, *, seconds: float, now: float, timeout_s: float) -> Item:
    """Locked for so many seconds from now, as far as the total hold allows; never less."""
    cap = item.locked_at + max(HOLD_S_MAX, timeout_s)
    deadline = max(item.deadline, min(now + seconds, cap))
    return replace(item, state=_next(item, ItemInput.EXTEND), deadline=deadline)


def accepted(item: Item, *, now: float, keep_s: float) -> Item:
    """Done with; kept for a while to be looked at."""
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
    """Not done: available again after a while, or dead.

    AMQP 1.0 messaging §3.4: released does not count, modified does if the delivery
    failed, rejected is the end.

    Args:
        item: locked.
        input_: RELEASE, MODIFY, FAIL or REJECT.
        now: the time.
        order: a number larger than that of any redelivery before.
        options: of its node.
        reason: of a FAIL or REJECT.
        excluded: it is not for this holder again.
    """
    counts = input_ in {ItemInput.FAIL, ItemInput.REJECT}
    count = item.delivery_count + counts
    state = _next(item, input_)
    if counts:
        item = _failed(item, reason, now)
    # Also where this one does not count: the maximum may be lower than it was.
    if state is _ARCHIVED or count >= options.max_deliveries:
        return dead(replace(item, delivery_count=count), now=now)
    releases = 0 if counts else item.releases + 1
    return _unlocked(
        item,
        state=state,
        delivery_count=count,
        releases=releases,
        excluded=_and_holder(item) if excluded else item.excluded,
        order=order,
        available_at=now + options.delay_s(count if counts else releases),
    )


def expired(item: Item, *, now: float) -> Item:
    """Dead, since its ttl is over."""
    _next(item, ItemInput.EXPIRE)
    return dead(_failed(item, "expired", now), now=now)


def dead(item: Item, *, now: float) -> Item:
    """At its end without having been accepted, and kept where it is."""
    return _unlocked(item, state=_ARCHIVED, outcome=ItemOutcome.REJECTED, ended_at=now)


def requeued(
    item: Item,
    *,
    node: str,
    item_id: str,
    now: float,
    origin: str = "",
    origin_id: str = "",
) -> Item:
    """Alive again, in a life of its own; payload, publisher and history are the same.

    Args:
        item: dead, or a dead letter that nobody has locked.
        node: where it is to live.
        item_id: its id there.
        now: the time.
        origin: of a dead letter, where it died.
        origin_id: its id there.
    """
    assert item.state is not _ACQUIRED
    if item.state is _ARCHIVED:
        _next(item, ItemInput.REQUEUE)
    return replace(
        item,
        node=node,
        item_id=item_id,
        origin=origin,
        origin_id=origin_id,
        state=_AVAILABLE,
        available_at=now,
        # What has waited so long is not to expire at once.
        expires_at=None,
        delivery_count=0,
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
    """What is remembered of it.

    Args:
        item: as it was when it was settled.
        now: the time of its end.
        dedupe_s: the node's dedupe window.
        by: the full JID that settled it, with its token; '': nobody did.
        outcome: the one it asked for.
    """
    return EndedItem(
        seq=item.seq,
        node=item.node,
        item_id=item.item_id,
        publisher=item.publisher,
        digest=item.digest,
        ended_at=now,
        forget_at=now + max(dedupe_s, SETTLEMENT_S_MIN),
        token=item.token if by else "",
        account=bare(by),
        outcome=outcome,
    )


# -- who may ---------------------------------------------------------------


def check_settlement(
    item: Item | None,
    ended: EndedItem | None,
    settlement: Settlement,
    *,
    requester: str,
    may_withdraw: bool,
) -> bool:
    """Whether a retract or unlock is still to be done (XEP-0254 §2.3, §2.4).

    One order, the first that matches; it is section 2 of our decisions, since the
    text's own conditions overlap.

    Args:
        item: of this id, if it is available or locked; else None.
        ended: what is remembered of an end by this token, were it of another item that
            had this id, or in another life.
        settlement: what is asked for.
        requester: the full JID that asks.
        may_withdraw: it owns the node, or has published the item, and asks for a
            retract. With a token it means a delivery, and withdraws nothing.

    Returns:
        False when it was done before, for the same token: the same result again.

    Raises:
        Refusal: it cannot be.
    """
    token, account = settlement.token, bare(requester)
    name = settlement.item_id
    if ended is not None and _is_repeat(ended, settlement, account):
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
    if locked and _holds(item, requester, token):
        if token in {"", item.token}:
            return True
        raise _unexpected(name)
    if locked:
        raise _conflict(name)
    raise _unexpected(name)


def _is_repeat(ended: EndedItem, settlement: Settlement, account: str) -> bool:
    return (
        settlement.token != ""
        and settlement.token == ended.token
        and account == ended.account
        and settlement.outcome is ended.outcome
    )


def _holds(item: Item, requester: str, token: str) -> bool:
    if item.holder == requester:
        return True
    return item.durable and token != "" and bare(item.holder) == bare(requester)


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
