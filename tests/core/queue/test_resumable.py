"""Locks that belong to a worker: a connection that is lost is not a worker that died.

docs/design/queue.md §4.10.
"""

import pytest

from qos.core.queue.effects import NotifyItem, NotifyUnlock
from qos.core.queue.item import ItemState
from qos.core.queue.requests import Extend, GetOptions, Subscribe
from qos.core.queue.results import OptionsResult
from queue_world import ANT, BEE, BEE_2, NODE, PLAIN, World, entry

#: One failure, and an item is dead.
ONCE = PLAIN | {"queue#max_deliveries": "1"}
CONFLICT = ("conflict", "cancel", "")


def working(
    *item_ids: str, requests: int = 1, config: dict[str, str] | None = None
) -> World:
    """A worker with these items."""
    it = World(ONCE if config is None else config)
    it.subscribe(BEE, requests, resumable_locks="1")
    it.publish(*item_ids)
    assert {it.item(item_id).holder for item_id in item_ids} == {BEE}
    it.sent.clear()
    return it


def tokens(it: World, *item_ids: str) -> list[str]:
    return [it.item(item_id).token for item_id in item_ids]


def test_a_lock_outlives_the_connection_and_goes_to_nobody_else() -> None:
    """Not to another worker of the account either: that may not know of the work."""
    it = working("a")
    before = it.item("a")
    it.departed(BEE)
    it.subscribe(BEE_2, resumable_locks="1")
    it.subscribe("bee@x/3", durable_locks="1")
    it.subscribe(ANT)
    assert it.given() == []
    assert it.item("a") == before == it.disk.items[before.seq]


def test_it_does_not_outlive_its_time() -> None:
    """A worker that has died says nothing, and another one has to do its work."""
    it = working("a", config=PLAIN)
    it.departed(BEE)
    it.subscribe(ANT)
    it.wait(59.9)
    assert it.given() == []
    it.wait(0.1)
    assert it.given() == [("a", ANT)]
    assert it.item("a").delivery_count == 1
    assert not it.item("a").resumable


@pytest.mark.parametrize("back", [BEE, BEE_2])
def test_the_worker_takes_it_up_by_its_token_under_any_full_jid(back: str) -> None:
    """The server gives a session another resource, unless one is asked for."""
    it = working("a", config=PLAIN)
    (token,) = tokens(it, "a")
    it.departed(BEE)
    it.wait(50)
    assert it.extend("a", back, token, 60) == 60
    after = it.item("a")
    assert (after.holder, after.token, after.delivery_count) == (back, token, 0)
    assert after == it.disk.items[after.seq]
    it.sent.clear()
    it.subscribe(back, resumable_locks="1")
    # A worker that knows the token ignores it.
    assert [event.item.token for event in it.told(NotifyItem)] == [token]
    it.wait(59)
    it.retract("a", back, token)
    assert it.live() == {}


def test_what_it_takes_up_counts_for_its_new_full_jid() -> None:
    """It has said how much it can do."""
    it = working("a", "b", requests=2)
    it.departed(BEE)
    it.extend("a", BEE_2, tokens(it, "a")[0], 60)
    it.subscribe(BEE_2, 2, resumable_locks="1")
    it.sent.clear()
    it.publish("c", "d")
    assert it.given() == [("c", BEE_2)]


def test_it_is_settled_by_its_token_alone() -> None:
    """A worker that has come back may have nothing to extend any more."""
    it = working("a")
    (token,) = tokens(it, "a")
    it.departed(BEE)
    it.retract("a", BEE_2, token)
    assert it.live() == {}


@pytest.mark.parametrize(
    ("by", "token", "refusal"),
    [
        pytest.param(BEE_2, "wrong", CONFLICT, id="another token"),
        pytest.param(BEE_2, "", CONFLICT, id="no token"),
        pytest.param(ANT, None, ("forbidden", "auth", ""), id="another account"),
    ],
)
def test_nobody_takes_it_up_without_its_token(
    by: str, token: str | None, refusal: tuple[str, str, str]
) -> None:
    """The token shows that it is the same worker, and its account that it may work."""
    it = working("a")
    token = it.item("a").token if token is None else token
    it.departed(BEE)
    assert it.refused(Extend(NODE, 60, (("a", token),)), by) == refusal
    assert it.item("a").holder == BEE


def test_a_durable_lock_stays_with_its_holder_when_another_resource_extends_it() -> (
    None
):
    """It changes hands under a new token only, when the next worker subscribes."""
    it = World(PLAIN)
    it.subscribe(BEE, durable_locks="1")
    it.publish("a")
    it.extend("a", BEE_2, it.item("a").token, 60)
    assert it.item("a").holder == BEE


def test_it_outlives_the_service() -> None:
    """A service that restarts gives the locks back in the same way."""
    it = working("a")
    (token,) = tokens(it, "a")
    it.boot()
    it.subscribe(BEE_2, resumable_locks="1")
    assert it.given() == []
    it.extend("a", BEE_2, token, 60)
    assert it.item("a").holder == BEE_2


def test_a_lost_event_is_sent_again_to_a_worker_that_has_come_back() -> None:
    """It has not begun, and the delivery has not failed."""
    it = working("a")
    (token,) = tokens(it, "a")
    it.departed(BEE)
    it.heard(BEE, available=True)
    # Whether it is the same worker it says when it subscribes.
    assert it.given() == []
    it.subscribe(BEE, resumable_locks="1")
    assert [event.item.token for event in it.told(NotifyItem)] == [token]


def test_a_worker_that_answers_a_probe_gets_it_again() -> None:
    """After a start of the service, to which it need not subscribe."""
    it = working("a")
    (token,) = tokens(it, "a")
    it.boot()
    it.heard(BEE)
    assert [event.item.token for event in it.told(NotifyItem)] == [token]


def test_a_worker_that_asks_before_it_subscribes_gets_nothing_yet() -> None:
    """It may be a new one, which settles what its predecessor has prepared."""
    it = working("a")
    it.departed(BEE)
    it.heard(BEE)
    assert it.given() == []


@pytest.mark.parametrize("how", ["left", "restarted"])
def test_a_new_worker_of_its_full_jid_ends_it(how: str) -> None:
    """An item that kills its worker must end, also where that is started at once."""
    it = working("a")
    if how == "left":
        it.departed(BEE)
    else:
        it.boot()
    it.heard(BEE, available=True)
    it.subscribe(BEE, resumable_locks="1", new_worker="1")
    assert it.given() == []
    assert it.live() == {}
    (dead,) = it.dead()
    assert [event.reason for event in dead.history] == ["gone"]


def test_a_new_worker_ends_no_lock_that_it_got_itself() -> None:
    """Its predecessor's subscription may be there still, and bring it an item."""
    it = World(ONCE)
    it.subscribe(BEE, resumable_locks="1")
    it.boot()
    it.publish("a")
    it.heard(BEE, available=True)
    assert it.given() == [("a", BEE)]
    it.subscribe(BEE, resumable_locks="1", new_worker="1")
    assert it.given() == [("a", BEE)]
    assert it.dead() == []


def test_a_new_worker_ends_no_lock_of_one_that_came_back() -> None:
    """The same client can have another worker later: what it has was taken up."""
    it = working("a", "b", requests=2)
    it.departed(BEE)
    it.extend("a", BEE, tokens(it, "a")[0], 60)
    it.subscribe(BEE, 2, resumable_locks="1")
    it.subscribe(BEE, 2, resumable_locks="1", new_worker="1")
    assert {item.state for item in it.live().values()} == {ItemState.ACQUIRED}


def test_an_event_that_comes_back_late_ends_nothing_that_was_taken_up() -> None:
    """A server may return what it had for the old session."""
    it = World(PLAIN)
    it.subscribe(BEE, resumable_locks="1")
    it.publish("a")
    (event,) = it.told(NotifyItem)
    it.departed(BEE)
    it.extend("a", BEE_2, event.item.token, 60)
    it.bounce(event)
    assert it.item("a").holder == BEE_2


def test_a_worker_that_says_goodbye_has_given_all_back_first() -> None:
    """That is a release, which costs nothing."""
    it = working("a")
    it.unsubscribe(BEE)
    it.unlock("a", BEE, tokens(it, "a")[0])
    it.departed(BEE)
    assert it.item("a").state is ItemState.AVAILABLE
    assert it.item("a").delivery_count == 0


def test_who_may_not_work_any_more_has_lost_it() -> None:
    """As any other lock."""
    it = working("a")
    it.core.nodes[NODE].release_all("bee@x", it.now)
    it.departed(BEE)
    assert it.item("a").token == ""
    assert it.told(NotifyUnlock) == []


def test_other_locks_end_with_the_connection() -> None:
    """XEP-0254 §4, for everybody who has not asked for more."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish(entry("a"))
    it.departed(BEE)
    assert it.item("a").delivery_count == 1


def test_a_lock_is_its_worker_s_or_its_account_s() -> None:
    """Both would mean that the next worker of the account has it, and that it has not."""
    it = World(PLAIN)
    both = {"queue#durable_locks": "1", "queue#resumable_locks": "1"}
    request = Subscribe(NODE, BEE, {"pubsub#queue_requests": "1", **both})
    assert it.refused(request, BEE) == ("bad-request", "modify", "invalid-options")


def test_its_option_is_kept_and_that_of_a_new_worker_is_not() -> None:
    """The second is about one moment."""
    it = World(PLAIN)
    it.subscribe(BEE, resumable_locks="1", new_worker="1")
    result = it.ask(GetOptions(NODE, BEE), BEE)
    assert isinstance(result, OptionsResult)
    assert result.subscription.resumable_locks
