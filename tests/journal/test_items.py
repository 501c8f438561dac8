"""The journal lines for changes of a queue service, made by the core's own steps."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from qos.core.queue.effects import Change
from qos.core.queue.item import Item, ItemOutcome
from qos.core.queue.requests import Delete, Purge, Request, Requeue, Retract, Settlement
from qos.journal.items import ItemEvents
from queue_world import ANT, BEE, NODE, OWNER, PLAIN, World


class Journaled(World):
    """A world whose commits are recorded."""

    def boot(self) -> None:
        super().boot()
        self.events = ItemEvents(self.disk)
        self.lines: list[str] = []

    def write(self, changes: Sequence[Change]) -> None:
        entries, again = self.events.of(changes)
        for entry in entries:
            queue = "" if entry.queue == NODE else f" at {entry.queue}"
            said = [
                f"{entry.event.value} {entry.item}{queue}",
                entry.source and f"from {entry.source}",
                entry.to and f"to {entry.to}",
                entry.attempt and f"#{entry.attempt}",
                entry.bytes and f"{entry.bytes} bytes",
                entry.condition and f"({entry.condition})",
            ]
            self.lines.append(" ".join(each for each in said if each))
        super().write([*changes, *again])

    def order(self, request: Request) -> None:
        self.ask(request, OWNER)

    def items(self) -> list[Item]:
        """Those on disk, whoever sees them."""
        return [*self.disk.items.values()]

    def read(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


def published(*item_ids: str) -> list[str]:
    return [f"published {item_id} from shop@x 8 bytes" for item_id in item_ids]


PUBLISHED = published("a")[0]


@pytest.fixture
def world() -> Journaled:
    world = Journaled(
        {**PLAIN, "queue#max_deliveries": "2", "queue#lock_timeout": "10"}
    )
    world.subscribe(BEE)
    world.publish("a")
    assert world.read() == [PUBLISHED, f"acquired a to {BEE} #1"]
    return world


def test_an_item_that_is_done(world: Journaled) -> None:
    """The line names the worker."""
    world.retract("a", BEE)
    assert world.read() == [f"accepted a from {BEE}"]
    world.publish("a")  # deduplicated: no new item
    assert world.read() == []


def test_an_item_that_is_done_and_kept(world: Journaled) -> None:
    """As for one that is not kept."""
    world = Journaled({**PLAIN, "queue#keep_accepted": "60"})
    world.subscribe(BEE)
    world.publish("a")
    world.retract("a", BEE)
    assert world.read()[-1] == f"accepted a from {BEE}"
    world.wait(100)
    assert world.read() == []


def test_an_item_that_is_given_back(world: Journaled) -> None:
    """It does not count; the next delivery has the same number."""
    world.unlock("a", BEE)
    assert world.read() == [f"released a from {BEE}", f"acquired a to {BEE} #1"]
    world.subscribe(ANT)
    world.unlock("a", BEE, outcome=ItemOutcome.MODIFIED, not_here=True)
    assert world.read() == [f"modified a from {BEE}", f"acquired a to {ANT} #1"]


def test_an_item_that_fails_until_it_is_dead(world: Journaled) -> None:
    """The worker's words are left out: they may quote the payload."""
    world.fail("a", BEE)
    assert world.read() == [
        f"modified a from {BEE} (failed)",
        f"acquired a to {BEE} #2",
    ]
    world.unlock(
        *("a", BEE, "", ItemOutcome.MODIFIED), failed=True, reason="card 4711 is bad"
    )
    assert world.read() == [f"modified a from {BEE} (failed)", "dead a (failed)"]


def test_an_item_that_is_rejected(world: Journaled) -> None:
    """There are two lines: the end of the delivery, and of the item."""
    world.reject("a", BEE, "secret")
    assert world.read() == [f"rejected a from {BEE} (rejected)", "dead a (rejected)"]


def test_an_item_whose_worker_is_slow_or_goes(world: Journaled) -> None:
    """Two kinds of failure without a word from the worker."""
    world.wait(10)
    assert world.read() == [f"timed-out a from {BEE} (timed out)"]
    world.heard(BEE)
    assert world.read() == [f"acquired a to {BEE} #2"]
    world.departed(BEE)
    assert world.read() == [f"gone a from {BEE} (gone)", "dead a (gone)"]


def test_an_item_whose_event_bounces(world: Journaled) -> None:
    """It was not delivered, which is the same as being given back."""
    from qos.core.queue.effects import NotifyItem

    (event,) = world.told(NotifyItem)
    world.bounce(event)
    assert world.read() == [f"released a from {BEE}"]


def test_an_extended_lock_is_no_event(world: Journaled) -> None:
    """Otherwise long work would fill the journal."""
    world.extend("a", BEE, world.item("a").token, 60)
    assert world.read() == []


def test_a_durable_lock_that_is_taken_over_is_acquired_anew() -> None:
    """The worker that accepts it is not the one that got it first."""
    world = Journaled(PLAIN)
    world.subscribe(BEE, durable_locks="true")
    world.publish("a")
    world.departed(BEE)
    world.read()
    world.subscribe("bee@x/2", durable_locks="true")
    assert world.read() == ["acquired a to bee@x/2 #1"]


def test_an_item_that_expires() -> None:
    """No worker had it."""
    world = Journaled({**PLAIN, "queue#ttl": "5"})
    world.publish("a")
    world.wait(5)
    assert world.read() == [PUBLISHED, "expired a", "dead a (expired)"]


def test_items_that_are_withdrawn_purged_or_deleted(world: Journaled) -> None:
    """Three ways to end without having been worked on."""
    world.publish("b", "c")
    world.read()
    world.retract("b", OWNER)
    assert world.read() == ["withdrawn b"]
    world.order(Purge(NODE))
    assert world.read() == []
    world.remove_purged()
    assert world.read() == ["purged a", "purged c"]
    world.publish("d")
    world.read()
    world.order(Delete(NODE))
    world.remove_purged()
    assert world.read() == ["purged d"]


IDS_ARE_FREE_AT_ONCE = {**PLAIN, "queue#dedupe_window": "0"}


def test_a_purged_id_that_is_used_again_has_two_lives() -> None:
    """The end of the first one comes before the second one, whenever the rows go."""
    world = Journaled(IDS_ARE_FREE_AT_ONCE)
    world.publish(*"abcde")
    world.order(Purge(NODE))
    world.read()
    world.publish("e", "a")
    # A commit removes three rows, and those whose ids are used again.
    purged = ["purged a", "purged b", "purged c", "purged e"]
    assert world.read() == [*purged, *published("e", "a")]
    world.remove_purged()
    assert world.read() == ["purged d"]
    assert {*world.live()} == {"a", "e"} == {item.item_id for item in world.items()}


@pytest.mark.parametrize("is_written", [True, False])
def test_an_id_that_is_used_again_in_the_commit_of_the_purge(is_written: bool) -> None:
    """Then the store has the row of the first one, or does not even have that."""
    world = Journaled(IDS_ARE_FREE_AT_ONCE)
    world.subscribe(BEE)
    world.publish("a", "b", flush=is_written)
    world.ask(Purge(NODE), OWNER, flush=False)
    first = world.read()
    world.publish("a")
    acquired = [f"acquired a to {BEE} #1"]
    assert first + world.read() == [
        *published("a", "b"),
        *(acquired if is_written else []),
        "purged a",
        *published("a"),
        *acquired,
    ]
    world.retract("a", BEE)
    assert f"accepted a from {BEE}" in world.read()
    world.remove_purged()
    assert world.read() in (["purged b"], [])
    assert world.items() == []


def test_an_id_of_a_deleted_node_is_used_again() -> None:
    """A new node of the same name has nothing to do with what was there."""
    world = Journaled(PLAIN)
    world.publish(*"abcde")
    world.ask(Delete(NODE), OWNER, flush=False)
    world.create(NODE, PLAIN)
    world.read()
    world.publish("e")
    purged = ["purged a", "purged b", "purged c", "purged e"]
    assert world.read() == [*purged, *published("e")]
    world.remove_purged()
    assert world.read() == ["purged d"]
    assert [item.item_id for item in world.items()] == ["e"]


def test_an_id_is_used_again_by_an_item_that_comes_back() -> None:
    """A dead letter comes into a queue that was purged meanwhile."""
    world = Journaled()
    world.create("morgue")
    world.create(NODE, {**IDS_ARE_FREE_AT_ONCE, "queue#dead_letter_node": "morgue"})
    world.subscribe(BEE)
    world.publish("a")
    world.reject("a", BEE)
    world.unsubscribe(BEE)
    world.publish("a", "b")
    world.read()
    world.ask(Purge(NODE), OWNER, flush=False)
    world.order(Requeue(NODE, ("a",)))
    withdrawn = f"withdrawn {NODE}/a at morgue (requeued)"
    assert world.read() == ["purged a", withdrawn, "requeued a"]
    world.remove_purged()
    assert world.read() == ["purged b"]


def test_an_id_that_ends_and_comes_again_beside_a_purge() -> None:
    """No purge has touched it."""
    world = Journaled(IDS_ARE_FREE_AT_ONCE)
    world.create("other")
    world.publish("a")
    world.ask(Purge("other"), OWNER, flush=False)
    world.ask(Purge(NODE), OWNER, flush=False)
    world.publish("b")
    world.read()
    world.ask(Retract(NODE, (Settlement(item_id="b"),)), OWNER, flush=False)
    world.publish("b", flush=False)
    world.order(Purge("other"))
    assert world.read() == ["purged a", "withdrawn b", *published("b")]


def test_a_dead_item_lives_again(world: Journaled) -> None:
    """Even after a restart, when only the store knows it."""
    world.reject("a", BEE)
    world.boot()
    world.order(Requeue(NODE, ("a",)))
    assert world.read() == ["requeued a"]
    world.heard(BEE)
    assert world.read() == [f"acquired a to {BEE} #1"]


def test_a_dead_letter_is_dead_here_and_published_there(world: Journaled) -> None:
    """After a requeue it is the reverse."""
    world.create("morgue")
    world.create("mail", {**PLAIN, "queue#dead_letter_node": "morgue"})
    world.subscribe(ANT, node="mail")
    world.publish("a", node="mail")
    world.read()
    world.reject("a", ANT, node="mail")
    letter = world.read()
    assert letter == [
        f"rejected a at mail from {ANT} (rejected)",
        "dead a at mail (rejected)",
        "published mail/a at morgue from shop@x 8 bytes",
    ]
    world.unsubscribe(ANT, node="mail")
    world.order(Requeue("mail", ("a",)))
    assert world.read() == [
        "withdrawn mail/a at morgue (requeued)",
        "requeued a at mail",
    ]


def test_what_was_live_before_a_restart_is_known_after_it(world: Journaled) -> None:
    """For example, the holder of a lock that timed out."""
    world.boot()
    world.wait(10)
    assert world.read() == [f"timed-out a from {BEE} (timed out)"]


def test_what_the_store_forgets_is_no_event(world: Journaled) -> None:
    """Its end was recorded long ago."""
    from qos.core.queue.effects import ForgetOld, RemoveItem

    changes: list[Change] = [ForgetOld(1e9, 9), RemoveItem(12345)]
    assert world.events.of(changes) == ([], [])
