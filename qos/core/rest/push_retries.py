"""Retries of a push subscriber: when a delivery is over, and what then becomes of it.

A delivery is one or more attempts to send one message, under one lock. Another attempt
follows only if the last one has failed, or had no connection. HornetQ names the
rules: `maxRetries`, `retryWaitMillis`, `disableOnFailure`.
"""

from __future__ import annotations

from collections.abc import Sequence

from qos.core.queue.item import Item, ItemOutcome
from qos.core.queue.push import PushSubscriber
from qos.core.queue.requests import Request, Retract, Settlement, Unlock
from qos.core.record import replace
from qos.core.rest.forwarding import Fate, Verdict

__all__ = ["disables", "retry_wait_s", "settlement_of", "verdict_of"]

_RETRIED = frozenset({Fate.FAILED, Fate.UNSENT})

_OUTCOMES = {
    Fate.ACCEPTED: ItemOutcome.ACCEPTED,
    Fate.REJECTED: ItemOutcome.REJECTED,
    Fate.FAILED: ItemOutcome.MODIFIED,
}


def retry_wait_s(subscriber: PushSubscriber, fates: Sequence[Fate]) -> float | None:
    """The seconds until the next attempt of a delivery; None: the delivery is over.

    Args:
        subscriber: whose delivery it is.
        fates: of its attempts, one or more.
    """
    if fates[-1] in _RETRIED and len(fates) <= subscriber.max_retries:
        return subscriber.retry_wait_s
    return None


def verdict_of(
    subscriber: PushSubscriber, last: Verdict, fates: Sequence[Fate]
) -> Verdict:
    """The verdict of a delivery that is over.

    Args:
        subscriber: whose delivery it is.
        last: the verdict of the last attempt.
        fates: of its attempts, one or more.
    """
    if last.fate not in _RETRIED:
        return last
    if subscriber.disable_on_failure:
        reason = f"{len(fates)} attempts failed; the last: {last.reason}"
        return replace(last, fate=Fate.DISABLED, reason=reason)
    # A message that brings its target down has failed, though the target cannot be
    # reached after that.
    fate = Fate.FAILED if Fate.FAILED in fates else last.fate
    return replace(last, fate=fate)


def settlement_of(node: str, item: Item, verdict: Verdict) -> Request:
    """The request that settles the item of a delivery that is over.

    What has not failed, and was not refused for good, goes back as it was.
    """
    settlement = Settlement(
        item_id=item.item_id,
        token=item.token,
        outcome=_OUTCOMES.get(verdict.fate, ItemOutcome.RELEASED),
        delivery_failed=verdict.fate is Fate.FAILED,
        reason=verdict.reason if verdict.fate is Fate.REJECTED else "",
    )
    if verdict.fate is Fate.ACCEPTED:
        return Retract(node, (settlement,), notify=False)
    return Unlock(node, (settlement,))


def disables(subscriber: PushSubscriber, failures: int, failures_max: int) -> bool:
    """Whether so many failed deliveries in a row disable a subscriber.

    Each of its sessions has its own part of them: docs/rest-checklist.md U8.
    """
    most = failures_max * subscriber.sessions
    return subscriber.disable_on_failure is None and failures >= most
