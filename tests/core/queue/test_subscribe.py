"""Subscribing, its options and its rights; XEP-0254 §2.1, XEP-0060 §6."""

import pytest

from qos.core.queue.bounds import QueueBounds
from qos.core.queue.effects import (
    NotifyItem,
    NotifySubscription,
    NotifyUnlock,
)
from qos.core.queue.handle import handle
from qos.core.queue.item import Affiliation, ItemOutcome, Subscription
from qos.core.queue.requests import (
    Configure,
    Delete,
    GetOptions,
    Refusal,
    SetAffiliations,
    SetOptions,
    Subscribe,
    Subscriptions,
    Unsubscribe,
)
from qos.core.queue.results import (
    Ok,
    OptionsResult,
    SubscribeResult,
    SubscriptionsResult,
)
from queue_world import (
    ANT,
    BEE,
    BEE_2,
    NODE,
    OWNER,
    PLAIN,
    PUBLISHER,
    STRANGER,
    World,
)

ONE = {"pubsub#queue_requests": "1"}
INVALID_JID = ("bad-request", "modify", "invalid-jid")
NOT_SUBSCRIBED = ("unexpected-request", "cancel", "not-subscribed")
WRONG_SUBID = ("not-acceptable", "modify", "invalid-subid")


def subscribed(
    it: World, jid: str, options: dict[str, str], by: str = ""
) -> Subscription:
    result = it.ask(Subscribe(NODE, jid, options), by or jid)
    assert isinstance(result, SubscribeResult)
    return result.subscription


@pytest.mark.parametrize("options", [None, {}, {"queue#batch": "5"}])
def test_without_queue_requests_the_options_form_is_asked_for(
    options: dict[str, str] | None,
) -> None:
    """docs/design/queue.md X1, X3, X6: a MUST, and never a silent default."""
    it = World(PLAIN)
    request = Subscribe(NODE, BEE, options)
    expected = ("not-acceptable", "modify", "configuration-required")
    assert it.refused(request, BEE) == expected
    with pytest.raises(Refusal) as refused:
        handle(it.core, request, BEE, it.now)
    assert refused.value.form


@pytest.mark.parametrize("value", ["0", "-1", "1001", "1000000000", "many", ""])
def test_a_bad_number_is_an_invalid_option(value: str) -> None:
    """docs/design/queue.md X5: a number is never silently reduced."""
    it = World(PLAIN)
    request = Subscribe(NODE, BEE, {"pubsub#queue_requests": value})
    assert it.refused(request, BEE) == ("bad-request", "modify", "invalid-options")


def test_with_options_it_is_subscribed_and_told_how() -> None:
    """docs/design/queue.md X4: the result has them all."""
    it = World(PLAIN)
    found = subscribed(it, BEE, {**ONE, "queue#batch": "2"})
    assert (found.node, found.jid, found.via) == (NODE, BEE, BEE)
    assert (found.queue_requests, found.batch, found.durable_locks) == (1, 2, False)
    assert found.subid
    assert it.disk.subscriptions == {(NODE, BEE): found}


def test_subscribing_again_changes_the_options_and_nothing_else() -> None:
    """docs/design/queue.md P11: the worker subscribes again at intervals."""
    it = World(PLAIN)
    first = subscribed(it, BEE, ONE)
    it.publish("a")
    token = it.item("a").token
    second = subscribed(it, BEE, {"pubsub#queue_requests": "3", "queue#batch": "2"})
    assert second.subid == first.subid
    assert second.queue_requests == 3
    assert it.item("a").token == token
    assert len(it.disk.subscriptions) == 1


def test_what_it_holds_is_sent_again_once_to_who_subscribes_again() -> None:
    """A worker that lost its events gets them; one that has not knows the token."""
    it = World(PLAIN)
    subscribed(it, BEE, ONE)
    it.publish("a")
    it.boot()
    subscribed(it, BEE, ONE)
    assert it.given() == [("a", BEE)]
    token = it.item("a").token
    subscribed(it, BEE, ONE)
    assert [each.item.token for each in it.told(NotifyItem)] == [token]


def test_a_new_worker_takes_over_the_durable_locks_of_one_that_is_gone() -> None:
    """AMQP's terminus durability: unsettled-state."""
    it = World(PLAIN)
    it.subscribe(BEE, durable_locks="1")
    it.publish("a")
    token = it.item("a").token
    it.departed(BEE)
    assert it.item("a").token == token
    it.sent.clear()
    it.subscribe(BEE_2, durable_locks="1")
    (event,) = it.told(NotifyItem)
    assert (event.to, event.item.holder, event.item.node) == (BEE_2, BEE_2, NODE)
    assert event.item == it.item("a") == it.disk.items[event.item.seq]
    assert (event.item.deadline, event.item.delivery_count) == (1060.0, 0)
    assert event.item.order > 0, "somebody had it before"
    it.subscribe("bee@x/3", durable_locks="1")
    assert it.given() == []


def test_of_two_that_had_a_durable_lock_one_can_settle_it() -> None:
    """The late one may still work.

    Both would be told "done", and the item done twice.
    """
    it = World(PLAIN)
    it.subscribe(BEE, durable_locks="1")
    it.publish("a")
    first = it.item("a").token
    it.departed(BEE)
    it.subscribe(BEE_2, durable_locks="1")
    second = it.item("a").token
    done = 0
    for jid, token in ((BEE, first), (BEE_2, second)):
        try:
            it.retract("a", jid, token)
        except Refusal:
            continue
        done += 1
    assert done == 1


def test_durable_locks_of_one_that_is_at_work_stay_with_it() -> None:
    """The service must never put two workers on one item."""
    it = World(PLAIN)
    it.subscribe(BEE, durable_locks="1")
    it.publish("a")
    it.sent.clear()
    it.subscribe(BEE_2, durable_locks="1")
    assert it.given() == []
    assert it.item("a").holder == BEE


@pytest.mark.parametrize("how", ["silent", "restarted", "no session", "back"])
def test_durable_locks_stay_with_one_that_may_be_at_work(how: str) -> None:
    """Until the deadline, unless it sent unavailable presence and was not heard of
    since.
    """
    it = World(PLAIN)
    it.subscribe(BEE, 2, durable_locks="1")
    it.publish("x", "y")
    token = it.item("x").token
    it.extend("x", BEE, token, 120)
    if how == "silent":
        it.wait(60)
        assert it.item("y").token == ""
    elif how == "restarted":
        it.boot()
    else:
        it.departed(BEE)
        if how == "back":
            it.heard(BEE)
        else:
            it.core.forget_presence()
    it.subscribe(BEE_2, 2, durable_locks="1")
    assert it.item("x").token == token
    it.retract("x", BEE, token)


def test_no_more_is_taken_over_than_was_asked_for() -> None:
    """The rest follows when there is room, or when its time is over."""
    it = World(PLAIN)
    it.subscribe(BEE, 3, durable_locks="1")
    it.publish("x", "y", "z")
    it.departed(BEE)
    it.sent.clear()
    it.subscribe(BEE_2, 1, durable_locks="1")
    assert it.given() == [("x", BEE_2)]
    it.subscribe("bee@x/3", 1, durable_locks="1")
    assert it.given() == [("y", "bee@x/3")]
    it.retract("x", BEE_2)
    it.subscribe(BEE_2, 2, durable_locks="1")
    assert it.given() == [("z", BEE_2)]


def test_an_item_is_not_taken_over_by_whom_it_cannot_be_handled_by() -> None:
    """AMQP 1.0 messaging §3.4.5: undeliverable-here.

    Another worker may take it over.
    """
    it = World(PLAIN)
    it.subscribe(BEE_2, durable_locks="1")
    it.publish("x")
    it.subscribe(BEE, durable_locks="1")
    it.unlock("x", BEE_2, "", ItemOutcome.MODIFIED, not_here=True)
    assert it.item("x").holder == BEE
    it.departed(BEE)
    it.subscribe(BEE_2, durable_locks="1")
    assert it.item("x").holder == BEE
    it.subscribe("bee@x/3", durable_locks="1")
    assert it.item("x").holder == "bee@x/3"


def test_who_wants_no_durable_locks_takes_none_over() -> None:
    """It would keep them when it leaves, which it did not ask for."""
    it = World(PLAIN)
    it.subscribe(BEE, durable_locks="1")
    it.publish("x")
    it.departed(BEE)
    it.subscribe(BEE_2)
    assert it.item("x").holder == BEE


@pytest.mark.parametrize("jid", [ANT, "ant@y", "x/1", "bee@x.org/1"])
def test_nobody_subscribes_another(jid: str) -> None:
    """docs/design/queue.md P10; XEP-0060 §6.1.3.1."""
    it = World(PLAIN)
    assert it.refused(Subscribe(NODE, jid, ONE), BEE) == INVALID_JID
    it.subscribe(ANT)
    for request in (
        Unsubscribe(NODE, ANT),
        GetOptions(NODE, ANT),
        SetOptions(NODE, ANT, ONE),
    ):
        assert it.refused(request, BEE) == ("forbidden", "auth", "")


@pytest.mark.parametrize(
    ("access", "what", "expected"),
    [
        ("open", Affiliation.NONE, None),
        ("open", Affiliation.MEMBER, None),
        ("open", Affiliation.OUTCAST, ("item-not-found", "cancel", "")),
        ("whitelist", Affiliation.NONE, ("item-not-found", "cancel", "")),
        ("whitelist", Affiliation.OUTCAST, ("item-not-found", "cancel", "")),
        ("open", Affiliation.PUBLISH_ONLY, ("forbidden", "auth", "")),
        ("whitelist", Affiliation.PUBLISH_ONLY, ("forbidden", "auth", "")),
        ("whitelist", Affiliation.MEMBER, None),
        ("whitelist", Affiliation.PUBLISHER, None),
        ("whitelist", Affiliation.OWNER, None),
    ],
)
def test_who_may_subscribe(
    access: str, what: Affiliation, expected: tuple[str, str, str] | None
) -> None:
    """docs/design/queue.md P3: an error names the reason."""
    it = World({"pubsub#access_model": access})
    it.ask(SetAffiliations(NODE, {"ant@y": what}), OWNER)
    request = Subscribe(NODE, ANT, ONE)
    if expected is None:
        it.ask(request, ANT)
        assert ANT in it.core.nodes[NODE].subscriptions
    else:
        assert it.refused(request, ANT) == expected


TOO_MANY = ("policy-violation", "wait", "too-many-subscriptions")


def test_one_account_has_so_many_subscriptions_to_all_nodes_and_no_more() -> None:
    """Subscriptions are in memory; existing ones can still be changed."""
    it = World(PLAIN, bounds=QueueBounds(subscriptions_per_account=2))
    it.create("other", PLAIN)
    it.subscribe(BEE)
    it.subscribe(BEE_2, node="other")
    it.subscribe(ANT)
    assert it.refused(Subscribe(NODE, "bee@x", ONE), BEE) == TOO_MANY
    it.subscribe(BEE, 3)
    it.ask(Delete("other"), OWNER)
    it.subscribe(BEE_2)


def test_a_foreign_domain_and_all_have_so_many_subscriptions() -> None:
    """The owner of a server can make accounts at no cost."""
    bounds = QueueBounds(
        subscriptions_per_account=2,
        subscriptions_per_domain=2,
        subscriptions=5,
        own_domains=frozenset({"x"}),
    )
    it = World(PLAIN, bounds=bounds)
    it.subscribe(ANT)
    it.subscribe("fly@y/1")
    assert it.refused(Subscribe(NODE, "gnat@y/1", ONE), "gnat@y/1") == TOO_MANY
    for jid in (BEE, BEE_2, PUBLISHER):
        it.subscribe(jid)
    assert it.refused(Subscribe(NODE, OWNER, ONE), OWNER) == TOO_MANY
    it.unsubscribe(ANT)
    it.subscribe(OWNER)


def test_unsubscribing_leaves_the_locks() -> None:
    """docs/design/queue.md X19: no new items come."""
    it = World(PLAIN)
    first = subscribed(it, BEE, ONE)
    it.publish("a", "b")
    assert it.ask(Unsubscribe(NODE, BEE, first.subid), BEE) == Ok()
    assert it.disk.subscriptions == {}
    assert it.item("a").holder == BEE
    it.retract("a", BEE)
    assert it.item("b").holder == ""
    assert it.refused(Unsubscribe(NODE, BEE), BEE) == NOT_SUBSCRIBED


def test_a_resource_may_unsubscribe_another_of_its_account() -> None:
    """XEP-0060 compares bare JIDs: a person can remove a lost worker."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.unsubscribe(BEE, by=BEE_2)
    assert it.core.nodes[NODE].subscriptions == {}


def test_options_can_be_looked_at_and_changed() -> None:
    """XEP-0060 §6.3."""
    it = World(PLAIN)
    before = subscribed(it, BEE, {**ONE, "queue#batch": "4"})
    result = it.ask(GetOptions(NODE, BEE, before.subid), BEE)
    assert result == OptionsResult(before)
    it.ask(SetOptions(NODE, BEE, {"pubsub#queue_requests": "9"}), BEE_2)
    after = it.disk.subscriptions[NODE, BEE]
    assert (after.queue_requests, after.batch) == (9, 4)
    assert (after.subid, after.via) == (before.subid, BEE)
    request = SetOptions(NODE, BEE, {"queue#batch": "0"})
    assert it.refused(request, BEE) == ("bad-request", "modify", "invalid-options")


def test_a_wrong_subid_is_not_this_subscription() -> None:
    """XEP-0060 §6.2.3.5."""
    it = World(PLAIN)
    it.subscribe(BEE)
    for request in (
        Unsubscribe(NODE, BEE, "other"),
        GetOptions(NODE, BEE, "other"),
        SetOptions(NODE, BEE, ONE, "other"),
    ):
        assert it.refused(request, BEE) == WRONG_SUBID
    assert it.refused(GetOptions(NODE, BEE_2), BEE) == NOT_SUBSCRIBED


def test_subscriptions_are_listed_to_whose_they_are() -> None:
    """XEP-0060 §5.6, §8.8.1."""
    it = World(PLAIN)
    it.create("other", PLAIN)
    for node, jid in ((NODE, BEE), (NODE, ANT), ("other", BEE_2)):
        it.subscribe(jid, node=node)

    def listed(request: Subscriptions, by: str) -> list[tuple[str, str]]:
        result = it.ask(request, by)
        assert isinstance(result, SubscriptionsResult)
        assert (result.node, result.owner) == (request.node, request.owner)
        return [(each.node, each.jid) for each in result.subscriptions]

    assert listed(Subscriptions(""), BEE) == [(NODE, BEE), ("other", BEE_2)]
    assert listed(Subscriptions(NODE), BEE) == [(NODE, BEE)]
    assert listed(Subscriptions(NODE), STRANGER) == []
    owned = Subscriptions(NODE, owner=True)
    assert listed(owned, OWNER) == [(NODE, BEE), (NODE, ANT)]
    assert it.refused(owned, BEE) == ("forbidden", "auth", "")
    gone = ("item-not-found", "cancel", "")
    assert it.refused(Subscriptions("none"), BEE) == gone


# -- taken away ------------------------------------------------------------


@pytest.mark.parametrize("how", ["outcast", "narrowed"])
def test_who_may_not_work_here_any_more_loses_subscription_and_locks(how: str) -> None:
    """docs/design/queue.md §5.11: it is told, and the items go to others."""
    it = World(PLAIN)
    it.subscribe("bee@x", 2, by=BEE)
    it.subscribe(BEE_2, durable_locks="1")
    it.publish("a", "b")
    held = {item.item_id: item.holder for item in it.live().values()}
    assert set(held.values()) == {BEE, BEE_2}
    it.ask(SetAffiliations(NODE, {"ant@y": Affiliation.MEMBER}), OWNER)
    it.subscribe(ANT, 5)
    subids = {jid: one.subid for (_, jid), one in it.disk.subscriptions.items()}
    it.sent.clear()
    if how == "outcast":
        it.ask(SetAffiliations(NODE, {"bee@x": Affiliation.OUTCAST}), OWNER)
    else:
        it.ask(Configure(NODE, {"pubsub#access_model": "whitelist"}), OWNER)
    told = [one for one in it.sent if isinstance(one, NotifySubscription)]
    assert {(one.to, one.node, one.jid, one.subid) for one in told} == {
        (jid, NODE, jid, subids[jid]) for jid in ("bee@x", BEE_2)
    }
    unlocked = [one for one in it.sent if isinstance(one, NotifyUnlock)]
    assert {(one.to, one.item_ids) for one in unlocked} == {
        (jid, (item_id,)) for item_id, jid in held.items()
    }
    assert set(it.given()) == {("a", ANT), ("b", ANT)}
    assert {item.delivery_count for item in it.live().values()} == {0}
    assert set(it.disk.subscriptions) == {(NODE, ANT)}
    it.heard(BEE, available=True)
    it.unlock("a", ANT, "", ItemOutcome.MODIFIED, not_here=True)
    assert it.item("a").holder == ""


def test_who_still_may_keeps_what_it_has() -> None:
    """A change that does not concern the account has no effect on it."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    token = it.item("a").token
    it.ask(SetAffiliations(NODE, {"bee@x": Affiliation.MEMBER}), OWNER)
    it.ask(Configure(NODE, {"pubsub#access_model": "whitelist"}), OWNER)
    assert it.item("a").token == token
