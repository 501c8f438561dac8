"""docs/rest-checklist.md H14: retries within a delivery, as a table."""

from collections.abc import Sequence

import pytest

from qos.core.queue.item import ItemOutcome
from qos.core.queue.push import PushSubscriber
from qos.core.queue.requests import Retract, Unlock
from qos.core.rest.forwarding import Fate, Verdict
from qos.core.rest.push_retries import (
    disables,
    retry_wait_s,
    settlement_of,
    verdict_of,
)
from qos.testing.queue_store_records import item


def subscriber(
    max_retries: int = 2, *, disable: bool | None = None, sessions: int = 1
) -> PushSubscriber:
    return PushSubscriber(
        subscriber_id="id",
        node="orders",
        account="alice@example.org",
        rel="push",
        href="https://example.org/in",
        base="",
        created_at=0.0,
        max_retries=max_retries,
        retry_wait_s=7.0,
        disable_on_failure=disable,
        sessions=sessions,
    )


@pytest.mark.parametrize("fate", Fate)
def test_only_what_has_failed_or_was_not_sent_is_tried_again(fate: Fate) -> None:
    again = fate in {Fate.FAILED, Fate.UNSENT}
    for fates in ([fate], [Fate.FAILED, fate]):
        assert retry_wait_s(subscriber(2), fates) == (7.0 if again else None)
    # So many retries, and no more.
    assert retry_wait_s(subscriber(2), [fate] * 3) is None
    assert retry_wait_s(subscriber(0), [fate]) is None


ENDS: Sequence[tuple[Sequence[Fate], Fate]] = [
    *(([fate], fate) for fate in Fate),
    ([Fate.FAILED, Fate.UNSENT], Fate.FAILED),
    ([Fate.UNSENT, Fate.FAILED], Fate.FAILED),
    ([Fate.UNSENT, Fate.UNSENT], Fate.UNSENT),
    *(([Fate.FAILED, fate], fate) for fate in Fate if fate is not Fate.UNSENT),
]


@pytest.mark.parametrize(("fates", "end"), ENDS)
def test_the_last_attempt_decides_but_a_failure_stays_one(
    fates: Sequence[Fate], end: Fate
) -> None:
    last = Verdict(fates[-1], "down", "7", "next")
    for disable in (None, False):
        found = verdict_of(subscriber(disable=disable), last, fates)
        assert found == Verdict(end, "down", "7", "next")


@pytest.mark.parametrize(("fates", "end"), ENDS)
def test_a_failed_delivery_disables_if_that_is_wanted(
    fates: Sequence[Fate], end: Fate
) -> None:
    """Its message has not failed then: it waits for the subscriber."""
    found = verdict_of(subscriber(disable=True), Verdict(fates[-1], "down"), fates)
    if end in {Fate.FAILED, Fate.UNSENT}:
        reason = f"{len(fates)} attempts failed; the last: down"
        assert found == Verdict(Fate.DISABLED, reason)
    else:
        assert found == Verdict(end, "down")


def test_u8_many_failures_in_a_row_disable_unless_it_is_said_otherwise() -> None:
    assert not disables(subscriber(), 29, 30)
    assert disables(subscriber(), 30, 30)
    assert not disables(subscriber(sessions=2), 59, 30)
    assert disables(subscriber(sessions=2), 60, 30)
    assert not disables(subscriber(disable=False), 1000, 30)


SETTLEMENTS = {
    Fate.REJECTED: (ItemOutcome.REJECTED, False, "why"),
    Fate.FAILED: (ItemOutcome.MODIFIED, True, ""),
}


@pytest.mark.parametrize("fate", Fate)
def test_a_delivery_that_is_over_settles_its_item(fate: Fate) -> None:
    """Only a failure counts as one, and only a refusal tells its reason."""
    delivered = item(1)
    request = settlement_of("orders", delivered, Verdict(fate, "why"))
    if fate is Fate.ACCEPTED:
        assert isinstance(request, Retract)
        assert not request.notify
        outcome = ItemOutcome.ACCEPTED, False, ""
    else:
        assert isinstance(request, Unlock)
        outcome = SETTLEMENTS.get(fate, (ItemOutcome.RELEASED, False, ""))
    (settled,) = request.settlements
    assert (request.node, settled.item_id, settled.token) == (
        "orders",
        delivered.item_id,
        delivered.token,
    )
    assert (settled.outcome, settled.delivery_failed, settled.reason) == outcome
