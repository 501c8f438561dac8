"""Browsing, which locks nothing; XEP-0060 §6.5."""

import pytest

from qos.core.queue import browsing
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import (
    Configure,
    Items,
    SetAffiliations,
)
from qos.core.queue.results import ItemsResult
from queue_world import ANT, BEE, NODE, OWNER, PLAIN, PUBLISHER, STRANGER, World, entry


def browse(
    it: World, *, by: str = OWNER, **asked: object
) -> tuple[list[str], int | None]:
    """The ids of a page, and the total."""
    before = repr(it.disk)
    result = it.ask(Items(node=NODE, **asked), by)  # type: ignore[arg-type]
    assert isinstance(result, ItemsResult)
    assert (result.node, result.now) == (NODE, it.now)
    assert repr(it.disk) == before, "looking has changed something"
    return [item.item_id for item in result.items], result.count


def test_it_shows_what_waits_what_is_locked_and_what_is_delayed() -> None:
    """docs/design/queue.md P6: in the order of publishing, without ended items."""
    it = World({**PLAIN, "queue#keep_accepted": "60"})
    it.subscribe(BEE)
    it.publish(
        "done", "dead", "locked", entry("first", priority=9), entry("l", delay=9)
    )
    for item_id in ("first", "done"):
        it.retract(item_id, BEE)
    it.reject("dead", BEE)
    assert it.item("locked").holder == BEE
    assert browse(it) == (["locked", "l"], 2)
    assert browse(it, state="dead") == (["dead"], 1)
    assert browse(it, state="accepted") == (["done", "first"], 2)


def test_it_shows_the_items_that_are_asked_for() -> None:
    """By id; of each state."""
    it = World({**PLAIN, "queue#keep_accepted": "60"})
    it.publish("a", "b", "c")
    assert browse(it, item_ids=("c", "a", "none")) == (["a", "c"], 2)
    assert browse(it, item_ids=("c", "a", "b"), last=True, max_items=2) == (
        ["b", "c"],
        3,
    )
    it.subscribe(BEE, 5)
    it.retract("a", BEE)
    it.reject("b", BEE)
    assert browse(it, item_ids=("a", "b"), state="accepted") == (["a"], 1)
    assert browse(it, item_ids=("a", "b"), state="dead") == (["b"], 1)


@pytest.mark.parametrize("state", ["live", "dead"])
def test_page_by_page_each_item_comes_once(state: str) -> None:
    """AMQP 1.0 messaging §3.5.2; also those that have gone to the dead-letter node."""
    it = World({**PLAIN, "queue#dedupe_window": "0"})
    it.create("graves", PLAIN)
    it.publish(*"abcdefg")
    if state == "dead":
        it.subscribe(BEE, 100)
        for item_id in "aceg":
            it.reject(item_id, BEE)
        it.ask(Configure(NODE, {"queue#dead_letter_node": "graves"}), OWNER)
        for item_id in "bdf":
            it.reject(item_id, BEE)
    seen, after = list[str](), ""
    while True:
        result = it.ask(Items(node=NODE, max_items=2, after=after, state=state), OWNER)
        assert isinstance(result, ItemsResult)
        assert result.count == 7
        if not result.items:
            break
        seen += [item.origin_id or item.item_id for item in result.items]
        after = str(result.items[-1].seq)
    assert seen == list("abcdefg")


def test_what_is_not_kept_any_longer_takes_no_place_on_a_page() -> None:
    """Otherwise an empty page would look like the end, until expired items are removed."""
    it = World({**PLAIN, "queue#keep_accepted": "60"})
    it.subscribe(BEE, 9)
    it.publish(*"abcdefg")
    for item_id in "abde":
        it.retract(item_id, BEE)
    it.wait(30)
    for item_id in "cfg":
        it.retract(item_id, BEE)
    assert browse(it, state="accepted", max_items=2) == (["a", "b"], 7)
    it.wait(30)
    assert browse(it, state="accepted", max_items=2) == (["c", "f"], 3)
    after = str(it.core.next_seq())
    assert browse(it, state="accepted", after=after) == ([], 3)
    named = ("a", "c", "g")
    assert browse(it, state="accepted", item_ids=named) == (["c", "g"], 2)
    it.wait(30)
    assert browse(it, state="accepted") == ([], 0)
    assert browse(it, state="accepted", item_ids=named) == ([], 0)


def test_a_page_has_an_end_whatever_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole page goes into one stanza."""
    monkeypatch.setattr(browsing, "_PAGE_MAX", 3)
    it = World(PLAIN)
    it.publish(*"abcde")
    assert browse(it) == (["a", "b", "c"], 5)
    assert browse(it, max_items=100) == (["a", "b", "c"], 5)
    assert browse(it, max_items=1) == (["a"], 5)
    assert browse(it, max_items=0) == ([], 5)


def test_the_items_of_a_page_are_not_too_large_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All their payloads are read in one turn of the loop; but one item always comes."""
    it = World(PLAIN)
    it.publish(*(entry(name, payload="x" * 40) for name in "abcde"))
    monkeypatch.setattr(browsing, "_PAGE_BYTES_MAX", 100)
    assert browse(it) == (["a", "b"], 5)
    assert browse(it, last=True) == (["d", "e"], 5)
    assert browse(it, max_items=0) == ([], 5)
    monkeypatch.setattr(browsing, "_PAGE_BYTES_MAX", 10)
    assert browse(it) == (["a"], 5)
    assert browse(it, last=True) == (["e"], 5)


@pytest.mark.parametrize("state", ["live", "dead", "accepted"])
@pytest.mark.parametrize("after", ["none", "-1", "²", "٣", "9" * 19, "9" * 5000])
def test_a_cursor_that_was_never_given_out_is_none(after: str, state: str) -> None:
    """Any text may come: SQLite counts to 2**63, and int() has limits."""
    it = World(PLAIN)
    it.publish("a")
    expected = (["a"], 1) if state == "live" else ([], 0)
    assert browse(it, after=after, state=state) == expected


@pytest.mark.parametrize(
    ("access", "publish", "what", "expected"),
    [
        ("open", "publishers", Affiliation.NONE, None),
        ("open", "publishers", Affiliation.OUTCAST, ("item-not-found", "cancel", "")),
        (
            "whitelist",
            "publishers",
            Affiliation.NONE,
            ("item-not-found", "cancel", ""),
        ),
        ("whitelist", "publishers", Affiliation.MEMBER, None),
        ("whitelist", "open", Affiliation.PUBLISHER, None),
        ("open", "open", Affiliation.PUBLISH_ONLY, ("forbidden", "auth", "")),
    ],
)
def test_who_may_look(
    access: str,
    publish: str,
    what: Affiliation,
    expected: tuple[str, str, str] | None,
) -> None:
    """Accounts that may subscribe see live items.

    An owner sees ended ones too.
    """
    it = World({"pubsub#access_model": access, "pubsub#publish_model": publish})
    it.ask(SetAffiliations(NODE, {"ant@y": what}), OWNER)
    request = Items(node=NODE)
    if expected is None:
        shown = it.ask(request, ANT)
        assert isinstance(shown, ItemsResult)
        assert not shown.owner
    else:
        assert it.refused(request, ANT) == expected
    for state in ("dead", "accepted"):
        asked = Items(node=NODE, state=state)
        hidden = expected is not None and expected[0] == "item-not-found"
        refused = expected if hidden else ("forbidden", "auth", "")
        assert it.refused(asked, ANT) == refused
        shown = it.ask(asked, OWNER)
        assert isinstance(shown, ItemsResult)
        assert shown.owner
    gone = ("item-not-found", "cancel", "")
    for jid in (PUBLISHER, STRANGER):
        assert it.refused(Items(node="none"), jid) == gone


@pytest.mark.parametrize(("most", "count"), [(3, 3), (2, None), (0, None)])
def test_accepted_items_are_counted_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch, most: int, count: int | None
) -> None:
    """Each of them would be read, for every page."""
    monkeypatch.setattr(browsing, "_COUNTED_MAX", most)
    it = World({**PLAIN, "queue#keep_accepted": "60"})
    it.subscribe(BEE, 100)
    it.publish("a", "b", "c")
    for item_id in "abc":
        it.retract(item_id, BEE)
    assert browse(it, state="accepted") == (["a", "b", "c"], count)
