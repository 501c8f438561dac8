"""Creating, configuring, purging and deleting nodes; XEP-0060 §8."""

import pytest

from qos.core.queue import owner_requests
from qos.core.queue.bounds import QueueBounds
from qos.core.queue.effects import NotifyNode, PurgeNode, SaveNode
from qos.core.queue.handle import handle
from qos.core.queue.item import Affiliation, ItemOutcome, Node
from qos.core.queue.requests import (
    Affiliations,
    Configure,
    Create,
    DefaultConfig,
    Delete,
    GetConfigure,
    Items,
    Purge,
    Request,
    Requeue,
    SetAffiliations,
    Subscribe,
    Subscriptions,
)
from qos.core.queue.results import (
    AffiliationsResult,
    ConfigureResult,
    CreateResult,
    ItemsResult,
)
from queue_world import (
    ANT,
    BEE,
    NODE,
    OWNER,
    PLAIN,
    PUBLISHER,
    STRANGER,
    World,
    entry,
    retraction,
)

ONE = {"pubsub#queue_requests": "1"}

FORBIDDEN = ("forbidden", "auth", "")
NOT_FOUND = ("item-not-found", "cancel", "")
NOT_ACCEPTABLE = ("not-acceptable", "modify", "")

OWNERS_ONLY: tuple[Request, ...] = (
    GetConfigure(NODE),
    Configure(NODE, {}),
    Delete(NODE),
    Purge(NODE),
    SetAffiliations(NODE, {"cat@z": Affiliation.OWNER}),
    Affiliations(NODE, owner=True),
    Subscriptions(NODE, owner=True),
    Requeue(NODE),
)


@pytest.mark.parametrize("request_", OWNERS_ONLY)
@pytest.mark.parametrize(
    "what", [each for each in Affiliation if each is not Affiliation.OWNER]
)
def test_only_an_owner_may(request_: Request, what: Affiliation) -> None:
    """XEP-0060 §8: to others the node is not theirs to change."""
    it = World(PLAIN)
    it.ask(SetAffiliations(NODE, {"cat@z": what}), OWNER)
    hidden = what is Affiliation.OUTCAST
    assert it.refused(request_, STRANGER) == (NOT_FOUND if hidden else FORBIDDEN)


@pytest.mark.parametrize("request_", OWNERS_ONLY)
def test_what_is_not_there_is_not_found(request_: Request) -> None:
    """Even by the owner of other nodes."""
    it = World()
    assert it.refused(request_, OWNER) == NOT_FOUND


# -- create ----------------------------------------------------------------


def test_who_creates_a_node_owns_it() -> None:
    """No other account has an affiliation."""
    it = World()
    assert it.ask(Create("n", {"queue#ttl": "60"}), OWNER) == CreateResult("n")
    assert it.disk.nodes == {
        "n": Node(
            name="n",
            identity="id-1",
            created_at=1000.0,
            creator="boss@x",
            config={"queue#ttl": "60"},
            affiliations={"boss@x": Affiliation.OWNER},
        )
    }


def test_a_node_without_a_name_gets_one() -> None:
    """XEP-0060 §8.1.2: instant nodes."""
    it = World()
    result = it.ask(Create(""), OWNER)
    assert isinstance(result, CreateResult)
    assert result.node in it.disk.nodes


def test_a_name_is_taken_once() -> None:
    """Even by its owner."""
    it = World(PLAIN)
    assert it.refused(Create(NODE), OWNER) == ("conflict", "cancel", "")


def test_who_may_create_nodes_can_be_said() -> None:
    """By account; with an empty list, nobody."""
    it = World(creators={"boss@x"})
    it.create("n")
    assert it.refused(Create("m"), STRANGER) == FORBIDDEN
    it = World(creators=set())
    assert it.refused(Create("n"), OWNER) == FORBIDDEN


def test_all_accounts_of_a_domain_may_create_nodes_if_that_is_said() -> None:
    """The default of the service: accounts of its own domain, and no others."""
    it = World(creators={"@x", "ant@y"})
    it.create("n")
    it.create("m", by=ANT)
    assert it.refused(Create("o"), "bee@y/1") == FORBIDDEN
    assert it.refused(Create("o"), "bee@sub.x/1") == FORBIDDEN


def test_an_account_a_foreign_domain_and_all_have_so_many_nodes() -> None:
    """Nodes are in memory: one account must not take the room of the others."""
    bounds = QueueBounds(
        nodes_per_account=2,
        nodes_per_domain=3,
        nodes=6,
        own_domains=frozenset({"x"}),
    )
    it = World(bounds=bounds)
    no_room = ("resource-constraint", "wait", "")
    for name in ("a", "b"):
        it.create(name, by=STRANGER)
    assert it.refused(Create("c"), STRANGER) == no_room
    it.create("c", by="dog@z/1")
    assert it.refused(Create("d"), "dog@z/1") == no_room
    for name, by in (("d", OWNER), ("e", OWNER), ("f", PUBLISHER)):
        it.create(name, by=by)
    assert it.refused(Create("g"), PUBLISHER) == no_room
    it.boot()
    assert it.refused(Create("g"), PUBLISHER) == no_room
    it.ask(Delete("a"), STRANGER)
    assert it.refused(Create("g"), OWNER) == no_room
    it.create("g", by=PUBLISHER)


def test_a_node_counts_for_who_created_it_whoever_owns_it_later() -> None:
    """An account can be made owner without its consent.

    That must not use up its limit.
    """
    it = World(bounds=QueueBounds(nodes_per_account=1))
    it.create("a", by=STRANGER)
    it.ask(SetAffiliations("a", {"boss@x": Affiliation.OWNER}), STRANGER)
    it.ask(SetAffiliations("a", {"cat@z": Affiliation.NONE}), OWNER)
    it.create("b", by=OWNER)
    assert it.refused(Create("c"), STRANGER) == ("resource-constraint", "wait", "")


@pytest.mark.parametrize(
    "config",
    [
        {"pubsub#access_model": "authorize"},
        {"queue#ttl": "-1"},
        {"queue#max_items": "text"},
        {"queue#no_such": "1"},
    ],
)
def test_a_bad_configuration_is_refused_and_nothing_is_made(
    config: dict[str, str],
) -> None:
    """A clear error for options that are not offered."""
    it = World(PLAIN)
    assert it.refused(Create("n", config), OWNER) == NOT_ACCEPTABLE
    assert it.refused(Configure(NODE, config), OWNER) == NOT_ACCEPTABLE
    assert set(it.disk.nodes) == {NODE}


# -- configure -------------------------------------------------------------


def test_what_is_not_given_stays_and_what_is_the_default_is_not_kept() -> None:
    """So a default that we change also changes for nodes that never set it."""
    it = World({"queue#ttl": "60", "queue#backoff": "3"})
    it.ask(Configure(NODE, {"queue#backoff": "1.0", "queue#max_items": "7"}), OWNER)
    node = it.disk.nodes[NODE]
    assert node.config == {"queue#ttl": "60", "queue#max_items": "7"}
    assert it.ask(GetConfigure(NODE), OWNER) == ConfigureResult(node)
    assert it.ask(DefaultConfig(), STRANGER) == ConfigureResult(None)


def test_a_configuration_holds_from_then_on_and_after_a_start() -> None:
    """An answered configuration is on disk."""
    it = World(PLAIN)
    it.ask(Configure(NODE, {"queue#lock_timeout": "5"}), OWNER)
    it.boot()
    it.subscribe(BEE)
    it.publish("a")
    assert it.item("a").deadline == 1005.0


@pytest.mark.parametrize("request_", [Affiliations(NODE), Subscriptions(NODE)])
def test_who_may_not_use_a_node_does_not_learn_that_it_is_there(
    request_: Affiliations | Subscriptions,
) -> None:
    """XEP-0060 has no other answer for this account.

    An outcast learns that it is one.
    """
    it = World({})
    assert it.refused(request_, STRANGER) == NOT_FOUND
    for what in (Affiliation.OUTCAST, Affiliation.MEMBER):
        it.ask(SetAffiliations(NODE, {"cat@z": what}), OWNER)
        it.ask(request_, STRANGER)


# -- affiliations ----------------------------------------------------------


def test_affiliations_are_changed_by_account_and_listed() -> None:
    """XEP-0060 §8.9; NONE removes an affiliation."""
    it = World(PLAIN)
    it.create("other", PLAIN, by=ANT)
    given = {
        "ant@y/1": Affiliation.PUBLISHER,
        "bee@x": Affiliation.MEMBER,
        "cat@z": Affiliation.OUTCAST,
    }
    it.ask(SetAffiliations(NODE, given), OWNER)
    it.ask(
        SetAffiliations(
            NODE, {"bee@x": Affiliation.NONE, "nobody@x": Affiliation.NONE}
        ),
        OWNER,
    )
    expected = {
        (NODE, "boss@x", Affiliation.OWNER),
        (NODE, "ant@y", Affiliation.PUBLISHER),
        (NODE, "cat@z", Affiliation.OUTCAST),
    }
    listed = it.ask(Affiliations(NODE, owner=True), OWNER)
    assert isinstance(listed, AffiliationsResult)
    assert set(listed.affiliations) == expected
    assert listed.owner
    assert it.disk.nodes[NODE].affiliations.keys() == {"boss@x", "ant@y", "cat@z"}
    mine = it.ask(Affiliations(""), ANT)
    assert isinstance(mine, AffiliationsResult)
    assert set(mine.affiliations) == {
        (NODE, "ant@y", Affiliation.PUBLISHER),
        ("other", "ant@y", Affiliation.OWNER),
    }
    here = it.ask(Affiliations(NODE), ANT)
    assert isinstance(here, AffiliationsResult)
    assert here.affiliations == ((NODE, "ant@y", Affiliation.PUBLISHER),)


def test_a_domain_stands_for_its_accounts_that_have_no_affiliation() -> None:
    """Not for those of a domain below it, nor of one that ends the same way."""
    it = World({**PLAIN, "pubsub#access_model": "whitelist"})
    given = {
        "y": Affiliation.MEMBER,
        "ant@y": Affiliation.PUBLISH_ONLY,
        "fly@y": Affiliation.OUTCAST,
    }
    it.ask(SetAffiliations(NODE, given), OWNER)
    members = ("cat@y/1", "y/1", "y")
    for jid in members:
        it.subscribe(jid)
    assert it.refused(Subscribe(NODE, "ant@y/1", ONE), "ant@y/1") == FORBIDDEN
    for jid in ("fly@y/1", "cat@a.y/1", "cat@yy/1", "y@z/1"):
        assert it.refused(Subscribe(NODE, jid, ONE), jid) == NOT_FOUND
    own = it.ask(Affiliations(""), "cat@y/1")
    assert isinstance(own, AffiliationsResult)
    assert own.affiliations == ((NODE, "cat@y", Affiliation.MEMBER),)
    assert it.ask(Affiliations(NODE), "cat@y/1") == AffiliationsResult(
        NODE, own.affiliations
    )
    it.ask(SetAffiliations(NODE, {"y": Affiliation.NONE}), OWNER)
    assert not it.core.nodes[NODE].subscriptions
    for jid in members:
        assert it.refused(Affiliations(NODE), jid) == NOT_FOUND


def test_a_node_keeps_an_owner() -> None:
    """Otherwise nobody could delete it."""
    it = World(PLAIN)
    request = SetAffiliations(NODE, {"boss@x": Affiliation.MEMBER})
    assert it.refused(request, OWNER) == NOT_ACCEPTABLE
    it.ask(
        SetAffiliations(NODE, {"boss@x": Affiliation.NONE, "ant@y": Affiliation.OWNER}),
        OWNER,
    )
    assert it.refused(GetConfigure(NODE), OWNER) == FORBIDDEN
    it.ask(GetConfigure(NODE), ANT)


def test_affiliations_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is written with the node."""
    monkeypatch.setattr(owner_requests, "_AFFILIATIONS_MAX", 2)
    it = World(PLAIN)
    it.ask(SetAffiliations(NODE, {"ant@y": Affiliation.MEMBER}), OWNER)
    request = SetAffiliations(NODE, {"bee@x": Affiliation.MEMBER})
    assert it.refused(request, OWNER) == NOT_ACCEPTABLE


# -- purge and delete ------------------------------------------------------


def test_a_purge_takes_all_that_is_there() -> None:
    """docs/design/queue.md §5.9: locked items too; a later retract finds none."""
    it = World(PLAIN)
    it.subscribe(BEE, 2)
    it.publish("dead", "locked", "waits", entry("later", delay=9.0))
    it.reject("dead", BEE)
    it.unsubscribe(BEE)
    it.subscribe(ANT)
    token = it.item("locked").token
    it.sent.clear()
    it.ask(Purge(NODE), OWNER)
    assert it.live() == {}
    assert (it.stats()["dead"], it.stats()["bytes"]) == (0, 0)
    assert set(it.told(NotifyNode)) == {
        NotifyNode(BEE, NODE, "purge"),
        NotifyNode(ANT, NODE, "purge"),
    }
    assert it.refused(retraction("locked", token), BEE) == NOT_FOUND
    it.publish("locked")
    assert it.live() == {}
    it.publish("new")
    assert it.item("new").holder == ANT
    it.remove_purged()
    assert [item.item_id for item in it.disk.items.values()] == ["new"]
    assert it.disk.payloads.keys() == it.disk.items.keys()


def test_a_purge_is_one_change_however_many_items_there_are() -> None:
    """All other nodes wait for it."""
    it = World(PLAIN)
    it.publish(*(f"i{number}" for number in range(50)))
    it.add(handle(it.core, Purge(NODE), OWNER, it.now)[1])
    purge, node = it.pending
    assert isinstance(purge, PurgeNode)
    assert len(purge.items) == 50
    assert node == SaveNode(it.core.nodes[NODE].node)
    it.flush()
    # Nothing is left, so another one has nothing to do.
    it.ask(Purge(NODE), OWNER)
    assert len(it.disk.purged) == 1


def test_what_comes_after_a_purge_is_there_whatever_it_was_before() -> None:
    """A requeued item and a dead letter keep their old numbers."""
    it = World({**PLAIN, "queue#max_deliveries": "1"})
    graves = {**PLAIN, "queue#dead_letter_node": "graves"}
    it.create("graves", PLAIN)
    it.create("jobs", graves)
    it.subscribe(BEE, 9, node="jobs")
    it.publish("a", "b", node="jobs")
    it.publish("c", node="graves")
    it.reject("b", BEE, node="jobs")
    for node in ("graves", "jobs"):
        it.ask(Purge(node), OWNER)
        it.publish("d", "e", "f", "g", "h", node=node)
        it.remove_purged()
    it.reject("h", BEE, node="jobs")
    it.ask(Purge("jobs"), OWNER)
    # The removal of the rows has not come to this id.
    assert it.disk.purged
    it.ask(Requeue("jobs", ("h",)), OWNER)
    for _ in range(2):
        assert it.live("jobs").keys() == {"h"}
        assert it.live("graves").keys() == set("defgh")
        it.remove_purged()
        it.boot()


def test_a_purged_id_is_remembered_over_any_crash() -> None:
    """Its publisher may repeat it; whether the rows are gone by then makes no difference."""
    it = World(PLAIN)
    it.publish("a", "b", "c", "d", "e", "f", "g")
    it.ask(Purge(NODE), OWNER)
    while it.disk.purged:
        it.boot()
        it.publish("a", "g")
        assert it.live() == {}
    it.publish("a", "g")
    assert it.live() == {}


def test_a_purge_leaves_what_was_accepted_and_is_kept() -> None:
    """It is no item of the queue any more; its time ends it."""
    it = World({**PLAIN, "queue#keep_accepted": "60"})
    it.subscribe(BEE, 9)
    it.publish("a", "b")
    it.retract("a", BEE)
    it.ask(Purge(NODE), OWNER)
    it.remove_purged()
    assert [item.item_id for item in it.disk.items.values()] == ["a"]
    shown = it.ask(Items(node=NODE, state="accepted"), OWNER)
    assert isinstance(shown, ItemsResult)
    assert [item.item_id for item in shown.items] == ["a"]


def test_a_worker_that_waits_gets_what_is_published_after_a_purge() -> None:
    """With its selector, its turn, and without what excluded it before."""
    it = World(PLAIN)
    it.subscribe(BEE, selector="n > 1")
    it.subscribe(ANT, durable_locks="1")
    it.publish(*(entry(name, properties={"n": 2}) for name in "abc"))
    holders = {item.holder for item in it.live().values()}
    assert holders == {BEE, ANT, ""}
    it.ask(Purge(NODE), OWNER)
    assert it.stats()["acquired"] == 0
    it.publish(entry("d", properties={"n": 2}), entry("e", properties={"n": 2}))
    assert {item.holder for item in it.live().values()} == {BEE, ANT}


def test_a_requeue_that_cannot_read_has_changed_nothing() -> None:
    """Items requeued in memory but not on disk would be dead after the next start."""
    it = World(PLAIN)
    it.publish("a")

    class Broken(Exception):
        pass

    class Unreadable:
        def __getattr__(self, name: str) -> object:
            raise Broken

    it.core.ended_items = Unreadable()  # type: ignore[assignment]  # it fails at any read
    with pytest.raises(Broken):
        it.ask(Requeue(NODE), OWNER)
    assert list(it.live().values()) == it.disk.live(NODE)


def test_a_deleted_node_is_gone_with_all_that_was_in_it() -> None:
    """Locked items too; a new node of its name begins empty."""
    it = World(PLAIN)
    it.create("other", PLAIN)
    it.publish("kept", node="other")
    it.subscribe(BEE)
    it.publish("a", "b")
    it.retract("a", BEE)
    assert it.item("b").holder == BEE
    it.ask(Delete(NODE), OWNER)
    assert set(it.disk.nodes) == {"other"}
    assert it.live() == {}
    assert (it.disk.subscriptions, it.disk.all_ends()) == ({}, [])
    assert it.refused(retraction("b"), BEE) == NOT_FOUND
    it.create(NODE, PLAIN, by=STRANGER)
    assert it.stats()["accepted"] == 0
    it.publish("a", by=PUBLISHER)
    assert set(it.live()) == {"a"}


def test_a_delete_is_one_change_and_what_was_there_goes_in_slices() -> None:
    """Whatever is still there, over any crash, is nothing to a new node of its name."""
    keeping = {**PLAIN, "queue#keep_accepted": "60"}
    it = World(keeping)
    it.create("graves", PLAIN)
    it.create("other", {**PLAIN, "queue#dead_letter_node": "graves"})
    it.subscribe(BEE, 9, node="other")
    it.publish("old", node="other")
    for round_ in range(3):
        names = [f"{round_}{letter}" for letter in "abcdefghijklmnopqrstuvwx"]
        it.publish(*names, "again")
        it.subscribe(BEE, 2)
        held = [item_id for item_id, item in it.live().items() if item.holder == BEE]
        it.retract(held[0], BEE)
        it.reject(held[1], BEE)
        if round_ == 1:
            it.ask(Purge(NODE), OWNER)
        it.ask(Delete(NODE), OWNER)
        it.create(NODE, keeping)
        # What was remembered, accepted or counted was that of another node.
        assert it.stats()["available"] == 0
        it.publish("again", "last", "gone")
        it.ask(retraction("gone"), OWNER)
        for _ in range(2):
            it.publish("gone")
            assert it.live().keys() == {"again", "last"}
            it.boot()
        assert it.disk.has_purged()
    it.remove_purged()
    assert it.live().keys() == {"again", "last"}
    assert {item.node for item in it.disk.items.values()} == {NODE, "other"}
    assert len(it.disk.items) == 3
    assert [end.item_id for end in it.disk.ended.values()] == ["gone"]


def test_a_letter_with_an_old_number_is_of_the_new_node() -> None:
    """It came after the delete, though it was published before."""
    it = World({**PLAIN, "queue#max_deliveries": "1"})
    it.create("graves", PLAIN)
    it.create("jobs", {**PLAIN, "queue#dead_letter_node": "graves"})
    it.subscribe(BEE, 9, node="jobs")
    it.publish("old", node="jobs")
    it.publish(*"abcdefgh", node="graves")
    it.ask(Delete("graves"), OWNER)
    it.create("graves", PLAIN)
    config = {"queue#dead_letter_node": "graves"}
    it.ask(Configure("jobs", config), OWNER)
    it.reject("old", BEE, node="jobs")
    for _ in range(2):
        assert it.live("graves").keys() == {"jobs/old"}
        it.remove_purged()
        it.boot()


def test_a_delete_tells_subscribers_and_holders() -> None:
    """An account that has unsubscribed may still work on an item, now for nothing."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    it.unsubscribe(BEE)
    it.subscribe("ant@y", by=ANT)
    assert it.item("a").holder == BEE
    it.sent.clear()
    it.ask(Delete(NODE), OWNER)
    assert it.told(NotifyNode) == [
        NotifyNode("ant@y", NODE, "delete"),
        NotifyNode(BEE, NODE, "delete"),
    ]


def test_an_accepted_item_is_kept_if_it_is_to_be() -> None:
    """It is kept for inspection, although it has ended."""
    it = World({**PLAIN, "queue#keep_accepted": "30"})
    it.subscribe(BEE)
    it.publish("a")
    it.retract("a", BEE)
    (kept,) = it.disk.items.values()
    assert (kept.outcome, kept.forget_at) == (ItemOutcome.ACCEPTED, 1030.0)
    assert it.refused(retraction("a"), BEE) == NOT_FOUND
    assert it.stats()["accepted"] == 1
    it.boot()
    assert (it.live(), it.stats()["accepted"]) == ({}, 1)
