"""The engine of the queues, on a real store: nothing is told before it is on disk."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from qos.core.queue import ready_items
from qos.core.queue.effects import Change, ForgetOld, NotifyUnlock
from qos.core.queue.item import ItemOutcome
from qos.core.queue.requests import (
    Configure,
    Create,
    Delete,
    Items,
    Publish,
    Purge,
    Refusal,
    Requeue,
    Retract,
    Subscribe,
)
from qos.core.queue.results import (
    CreateResult,
    ItemsResult,
    Ok,
    PublishResult,
    RequeueResult,
    Result,
    SubscribeResult,
)
from qos.engine import queue_commit, queue_state
from qos.engine.queue_engine import Answer, Unwritten
from queue_bench import BEE, NODE, OTHER_BEE, OWNER, Bench, Sent, entry, opened
from waiting import until


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with opened(tmp_path / "queues.sqlite") as bench:
        yield bench


async def test_an_answer_and_an_event_wait_for_the_commit(bench: Bench) -> None:
    """After a crash everything that was announced is still there."""
    bench.disk.hold()
    done = bench.ask(Publish(NODE, (entry("a"),)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not bench.out
    bench.disk.release()
    assert isinstance(await done, PublishResult)
    assert await bench.until(2)
    assert bench.out[1] == Sent(BEE, [("a", "<x xmlns='urn:x'/>")])


async def test_an_item_is_published_and_locked_in_one_commit(bench: Bench) -> None:
    """A waiting worker costs no second commit."""
    before = bench.disk.commits
    await bench.ask(Publish(NODE, (entry("a"), entry("b"))))
    await bench.until(3)
    assert bench.disk.commits == before + 1


async def test_what_happens_during_a_commit_is_one_commit_more(bench: Bench) -> None:
    """Group commit: a larger commit costs the disk no more."""
    bench.disk.hold()
    first = bench.ask(Publish(NODE, (entry("a"),)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [bench.ask(Publish(NODE, (entry(f"b{i}"),))) for i in range(50)]
    before = bench.disk.commits
    bench.disk.release()
    await asyncio.gather(first, *others)
    assert bench.disk.commits == before + 2


async def test_the_parts_of_a_refused_request_are_done_in_its_place(
    bench: Bench,
) -> None:
    """At once: nothing that is asked for later goes before them."""
    await bench.ask(Publish(NODE, (entry("b", "<y xmlns='urn:y'/>"),)))
    answers: list[tuple[str, str]] = []

    def answer(name: str) -> Answer:
        def note(result: Result | Refusal, _payloads: object) -> None:
            how = result.condition if isinstance(result, Refusal) else "done"
            answers.append((name, how))

        return note

    def publish(*names: str) -> None:
        bench.engine.request(
            Publish(NODE, tuple(map(entry, names))),
            OWNER,
            answer("".join(names)),
            parts=lambda: [
                (Publish(NODE, (entry(name),)), answer(name)) for name in names
            ],
        )

    publish("a", "b", "c")
    publish("d", "e")
    await bench.ask(Publish(NODE, (entry("f"),)))
    done = [("a", "done"), ("b", "conflict"), ("c", "done"), ("de", "done")]
    assert answers == done
    result = await bench.ask(Items(node=NODE, state="live"))
    assert isinstance(result, ItemsResult)
    assert [each.item_id for each in result.items] == ["b", "a", "c", "d", "e", "f"]


async def test_a_repetition_is_answered_after_the_commit_of_the_first(
    bench: Bench,
) -> None:
    """Otherwise a crash between the two would lose a confirmed item."""
    bench.disk.hold()
    first = bench.ask(Publish(NODE, (entry("a"),)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = bench.ask(Publish(NODE, (entry("a"),)))
    refused = bench.ask(Publish(NODE, (entry("a", "<y xmlns='urn:x'/>"),)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not bench.out
    bench.disk.release()
    assert isinstance(await first, PublishResult)
    assert isinstance(await second, PublishResult)
    refusal = await refused
    assert isinstance(refusal, Refusal)
    assert refusal.condition == "conflict"


async def test_items_that_are_not_stored_again_are_logged_once_a_minute(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Who uses one id for two items by mistake finds a line, and a count."""
    caplog.set_level("INFO", "qos.engine.queue_engine")
    await bench.ask(Create(NODE, {}))
    for _ in range(3):
        await bench.ask(Publish(NODE, (entry("a"), entry("b"), entry("c"))))
    text = "they were there before: 3 of owner@example.org, first 'a'"
    assert [text in line for line in caplog.messages] == [True]


async def test_a_repeated_retract_is_known_before_the_first_is_on_disk(
    bench: Bench,
) -> None:
    """Ends are looked up in the store, and this one is not there yet."""
    await bench.ask(Publish(NODE, (entry("a"),)))
    await bench.until(2)
    retract = bench.accept("a")
    bench.disk.hold()
    first, second = bench.ask(retract, BEE), bench.ask(retract, BEE)
    bench.disk.release()
    assert await first == Ok()
    assert await second == Ok(repeated=True)
    assert await bench.ask(retract, BEE) == Ok(repeated=True)


async def test_an_event_of_a_lock_that_has_ended_by_then_is_not_sent(
    bench: Bench,
) -> None:
    """Otherwise the worker would begin an item that another one has."""
    bench.disk.hold()
    bench.ask(Publish(NODE, (entry("a"),)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    bench.engine.departed(BEE)
    bench.disk.release()
    await bench.until(1)
    await bench.ask(Items(node=NODE))
    assert not [each for each in bench.out if isinstance(each, Sent)]


async def test_a_commit_that_fails_takes_back_all_that_was_built_upon_it(
    bench: Bench,
) -> None:
    """The disk was full, and has room again: nothing half done is left."""
    bench.disk.hold()
    bench.disk.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    first = bench.ask(Publish(NODE, (entry("a"),)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = bench.ask(Publish(NODE, (entry("b"),)))
    bench.disk.release()
    for failed in (await first, await second):
        assert isinstance(failed, Unwritten)
        assert (failed.condition, failed.type) == ("resource-constraint", "wait")
    at_once = await bench.ask(Publish(NODE, (entry("c"),)))
    assert isinstance(at_once, Unwritten)

    bench.disk.error = None
    bench.out.clear()
    bench.clock.advance(1.0)
    assert await bench.until(1) == [f"probe {BEE}"]
    result = await bench.ask(Items(node=NODE))
    assert isinstance(result, ItemsResult)
    assert result.items == ()
    assert isinstance(await bench.ask(Publish(NODE, (entry("a"),))), PublishResult)


async def test_who_looks_while_the_disk_is_full_is_told_so(bench: Bench) -> None:
    """The answer must be neither empty nor "no such node", since neither is known."""
    bench.disk.hold()
    bench.disk.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    made = bench.ask(Create("new"))
    gone = bench.ask(Delete(NODE))
    counts = [bench.look(NODE), bench.look("new")]
    listed = bench.names()
    assert not any(each.done() for each in counts)
    assert not listed.done()
    bench.disk.release()
    for failed in (await made, await gone, *[await each for each in counts]):
        assert isinstance(failed, Unwritten)
    assert isinstance(await listed, Unwritten)
    for name in (NODE, "new"):
        at_once = await bench.look(name)
        assert isinstance(at_once, Unwritten)
        assert (at_once.condition, at_once.type) == ("internal-server-error", "wait")
    assert isinstance(await bench.names(), Unwritten)
    assert not bench.engine.stats("none", OWNER, bench.out.append)

    bench.disk.error = None
    bench.clock.advance(1.0)
    assert await bench.names() == [NODE]
    assert (await bench.stats())["available"] == 0
    assert not bench.engine.stats("new", OWNER, bench.out.append)


async def test_many_nodes_are_listed_in_several_turns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 took 11 ms of everybody's time."""
    monkeypatch.setattr(queue_state, "_STEP_NODES", 2)
    for name in ("e", "a", "c", "b"):
        await bench.ask(Create(name))
    listed = bench.names()
    assert not listed.done()
    # One that is gone meanwhile is no error.
    await bench.ask(Delete("c"))
    assert await listed == ["a", "b", "e", NODE]
    # Nor is what is there known any more when the disk has failed.
    bench.disk.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    failed = bench.ask(Create("new"))
    listed = bench.names()
    assert isinstance(await failed, Unwritten)
    assert isinstance(await listed, Unwritten)


async def test_a_node_is_there_until_its_deletion_is_on_disk(bench: Bench) -> None:
    """Requests in between wait for that."""
    bench.disk.hold()
    deleted, looked, listed = bench.ask(Delete(NODE)), bench.look(NODE), bench.names()
    assert not looked.done()
    bench.disk.release()
    assert await deleted == Ok()
    refusal = await looked
    assert isinstance(refusal, Refusal)
    assert refusal.condition == "item-not-found"
    assert await listed == []
    assert not bench.engine.stats(NODE, OWNER, bench.out.append)


async def test_a_store_that_cannot_be_read_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then every request is refused, and none is forgotten."""
    bench.disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    assert isinstance(await bench.ask(Publish(NODE, (entry("a"),))), Unwritten)
    bench.disk.error = None
    reader, bench.store._reader = bench.store._reader, None
    bench.clock.advance(1.0)
    assert isinstance(await bench.ask(Publish(NODE, (entry("a"),))), Unwritten)
    bench.store._reader = reader
    bench.clock.advance(1.0)
    assert isinstance(await bench.ask(Publish(NODE, (entry("a"),))), PublishResult)


@pytest.mark.parametrize("where", ["contents", "core", "port"])
async def test_whatever_goes_wrong_when_the_queues_start_again_it_is_tried_again(
    where: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory ran out, and the service was there for ever and served nothing."""

    def fail(*_args: object, **_options: object) -> None:
        raise MemoryError

    bench.disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    assert isinstance(await bench.ask(Publish(NODE, (entry("a"),))), Unwritten)
    bench.disk.error = None
    with monkeypatch.context() as patch:
        match where:
            case "contents":
                patch.setattr(bench.engine.store, "contents", fail)
            case "core":
                patch.setattr(bench.engine, "_new_core", fail)
            case _:
                patch.setattr(bench.engine._port, "restarted", fail)
        for _ in range(3):
            bench.clock.advance(1.0)
            assert isinstance(await bench.ask(Publish(NODE, (entry("a"),))), Unwritten)
    bench.clock.advance(1.0)
    assert isinstance(await bench.ask(Publish(NODE, (entry("a"),))), PublishResult)
    assert not bench.engine.given_up.is_set()


async def test_a_service_that_serves_nothing_for_a_minute_is_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that its process ends, and a supervisor starts another."""
    bench.disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    assert isinstance(await bench.ask(Publish(NODE, (entry("a"),))), Unwritten)
    bench.store._reader, reader = None, bench.store._reader
    for _ in range(61):
        assert not bench.engine.given_up.is_set()
        bench.clock.advance(1.0)
    assert bench.engine.given_up.is_set()
    bench.store._reader = reader


async def test_locks_and_tokens_survive_a_restart_and_are_sent_again(
    bench: Bench,
) -> None:
    """docs/design/queue.md §4.5.

    The same token when the holder is heard of, and nothing new.
    """
    await bench.ask(Publish(NODE, tuple(entry(name) for name in "abc")))
    await bench.until(3)
    tokens = dict(bench.tokens)
    await bench.restart()
    bench.out.clear()
    bench.tokens.clear()
    bench.engine.online()
    assert await bench.until(1) == [f"probe {BEE}"]
    bench.engine.heard(BEE)
    await bench.until(3)
    assert bench.tokens == tokens
    assert len(tokens) == 2


async def test_a_lock_times_out_by_the_clock(bench: Bench) -> None:
    """The late worker is told, and the item is there for the next one."""
    await bench.ask(Publish(NODE, (entry("a"),)))
    await bench.until(2)
    await bench.ask(
        Subscribe(NODE, OTHER_BEE, {"pubsub#queue_requests": "1"}), OTHER_BEE
    )
    bench.out.clear()
    bench.clock.advance(60.0)
    assert await bench.until(1) == [NotifyUnlock(BEE, NODE, ("a",))]
    # The backoff after a first failed delivery.
    bench.clock.advance(1.0)
    assert (await bench.until(2))[1] == Sent(OTHER_BEE, [("a", "<x xmlns='urn:x'/>")])


async def test_a_new_selector_is_tried_on_all_items_step_by_step(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else has to do anything for that, and others are served meanwhile."""
    monkeypatch.setattr(ready_items, "SLICE", 1)
    items = tuple(replace(entry(f"i{n}"), properties={"n": n}) for n in range(9))
    await bench.ask(Publish(NODE, items))
    await bench.until(3)
    bench.out.clear()
    options = {"pubsub#queue_requests": "1", "queue#selector": "n = 5"}
    await bench.ask(Subscribe(NODE, OTHER_BEE, options), OTHER_BEE)
    await bench.ask(bench.accept("i0"), BEE)
    assert [each for each in bench.out if isinstance(each, Sent)] == [
        Sent(BEE, [("i2", "<x xmlns='urn:x'/>")])
    ]
    steps = 0

    def has_come() -> bool:
        nonlocal steps
        bench.clock.advance(0.0)
        steps += 1
        return len(bench.out) >= 5

    await until(has_come)
    assert bench.out[-1] == Sent(OTHER_BEE, [("i5", "<x xmlns='urn:x'/>")])
    assert steps > 3
    bench.clock.advance(0.0)
    assert bench.clock.deadline() != bench.clock.now(), "it goes on for ever"


async def test_a_lock_runs_on_from_the_first_session_and_its_end_is_told(
    bench: Bench,
) -> None:
    """XEP-0254 §4: the late worker gets an unlock, which needs a session."""
    await bench.ask(Publish(NODE, (entry("a"),)))
    await bench.until(2)
    await bench.restart(120.0)
    bench.out.clear()
    await asyncio.sleep(1.0)  # By the clock of the loop: nothing else is left to do.
    assert not bench.out
    bench.engine.online()
    assert (await bench.stats())["acquired"] == 1
    bench.out.clear()
    bench.clock.advance(120.0)
    assert NotifyUnlock(BEE, NODE, ("a",)) in await bench.until(1)


async def test_an_event_that_bounces_releases_its_items(bench: Bench) -> None:
    """The worker has not received them, and gets nothing more until it is heard of."""
    await bench.ask(Publish(NODE, (entry("a"),)))
    await bench.until(2)
    ((event_id, _),) = bench.engine._outputs._sent.items()
    bench.engine.bounced(BEE, event_id)
    bench.engine.bounced(BEE, "unknown")
    stats = await bench.stats()
    assert (stats["acquired"], stats["delayed"]) == (0, 1)
    bench.clock.advance(1.0)
    result = await bench.ask(Items(node=NODE))
    assert isinstance(result, ItemsResult)
    assert not result.items[0].holder
    bench.engine.heard(BEE)
    await bench.until(4)


async def test_a_node_made_anew_knows_nothing_of_the_one_before(bench: Bench) -> None:
    """Even while the deletion of the old node is not on disk yet."""
    await bench.ask(Publish(NODE, (entry("a"),)))
    await bench.until(2)
    await bench.ask(bench.reject("a"), BEE)
    bench.disk.hold()
    deleted, made = bench.ask(Delete(NODE)), bench.ask(Create(NODE))
    published = bench.ask(Publish(NODE, (entry("a"),)))
    bench.disk.release()
    await asyncio.gather(deleted, made, published)
    stats = await bench.stats()
    assert (stats["available"], stats["dead"]) == (1, 0)


async def test_what_dies_before_its_node_is_deleted_is_not_requeued_in_a_new_one(
    bench: Bench,
) -> None:
    """The store has no such item; otherwise the commit of everybody would fail."""
    await bench.ask(Publish(NODE, (entry("a"), entry("b"))))
    await bench.until(3)
    cat = "cat@example.org/1"
    stranger = bench.ask(Create("of somebody else"), cat)
    rejected = [bench.ask(bench.reject(name), BEE) for name in "ab"]
    deleted, made = bench.ask(Delete(NODE)), bench.ask(Create(NODE))
    dead = bench.ask(Items(node=NODE, state="dead"))
    named = bench.ask(Items(node=NODE, item_ids=("a",), state="dead"))
    requeued, purged = bench.ask(Requeue(NODE)), bench.ask(Purge(NODE))
    for done in (*rejected, deleted, purged):
        assert await done == Ok()
    for done in (stranger, made):
        assert isinstance(await done, CreateResult)
    for listed in (await dead, await named):
        assert isinstance(listed, ItemsResult)
        assert (listed.items, listed.count) == ((), 0)
    assert await requeued == RequeueResult(NODE, ())


async def test_nothing_is_remembered_in_memory_when_all_is_on_disk(
    bench: Bench,
) -> None:
    """Deleted nodes too: otherwise making and deleting nodes would fill the memory."""
    await bench.ask(Publish(NODE, (entry("a"), entry("b"))))
    await bench.until(3)
    retract = bench.accept("a")
    asked = [bench.ask(retract, BEE), bench.ask(bench.reject("b"), BEE)]
    asked += [bench.ask(Delete(NODE)), bench.ask(Create(NODE))]
    asked += [bench.ask(Publish(NODE, (entry("a"),)))]
    await asyncio.gather(*asked)
    pending = bench.engine._ended_items
    for noted in (pending._ended, pending._items, pending._seqs, pending._deleted):
        assert not noted


async def test_what_settled_an_item_is_known_while_its_id_is_used_again(
    bench: Bench,
) -> None:
    """Whichever of the ends is on disk yet; also after a restart."""
    await bench.ask(Configure(NODE, {"queue#dedupe_window": "0"}))
    retracts: list[Retract] = []
    for number in range(3):
        bench.out.clear()
        await bench.ask(Publish(NODE, (entry("a", f"<x>{number}</x>"),)))
        await bench.until(2)
        retracts.append(bench.accept("a"))
        bench.disk.hold()
        asked = [bench.ask(retract, BEE) for retract in retracts]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asked += [bench.ask(retract, BEE) for retract in retracts]
        bench.disk.release()
        first, again = len(retracts) * [Ok()], len(retracts) * [Ok(repeated=True)]
        # Those of earlier rounds are repeats the first time too.
        first[:-1] = again[:-1]
        assert await asyncio.gather(*asked) == [*first, *again]
    assert (await bench.stats())["accepted"] == 3
    await bench.restart()
    bench.engine.online()
    for retract in retracts:
        assert await bench.ask(retract, BEE) == Ok(repeated=True)


async def test_what_is_settled_is_known_while_another_of_its_id_comes(
    bench: Bench,
) -> None:
    """Both ends may not be on disk yet."""
    await bench.ask(Configure(NODE, {"queue#dedupe_window": "0"}))
    await bench.ask(Publish(NODE, (entry("a"),)))
    await bench.until(3)
    token, retract = bench.tokens["a"], bench.accept("a")
    bench.disk.hold()
    asked = [bench.ask(retract, BEE)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked += [
        bench.ask(Publish(NODE, (entry("a", "<x>2</x>"),))),
        bench.ask(retract, BEE),
    ]
    bench.disk.release()
    assert await asyncio.gather(*asked) == [
        Ok(),
        PublishResult(NODE, ("a",)),
        Ok(repeated=True),
    ]
    assert (await bench.stats())["acquired"] == 1
    assert bench.tokens["a"] != token


async def test_memories_end(bench: Bench) -> None:
    """The store must not grow with everything that ever was."""
    await bench.ask(Publish(NODE, (entry("a"),)))
    await bench.until(2)
    retract = bench.accept("a")
    assert await bench.ask(retract, BEE) == Ok()
    assert bench.engine.store.ended(NODE, "a")
    bench.clock.advance(3601.0)
    await bench.ask(Items(node=NODE))
    assert not bench.engine.store.ended(NODE, "a")
    late = await bench.ask(retract, BEE)
    assert isinstance(late, Refusal)
    assert late.condition == "item-not-found"


async def test_a_page_skips_nothing_though_some_of_it_is_being_changed(
    bench: Bench,
) -> None:
    """Newly dead items come behind those on disk; a purge goes page by page."""
    for name in "abcdef":
        bench.out.clear()
        await bench.ask(Publish(NODE, (entry(name),)))
        await bench.until(2)
        if name != "f":
            await bench.ask(bench.reject(name), BEE)
    bench.disk.hold()
    bench.ask(Requeue(NODE, ("a", "b")))
    bench.ask(bench.reject("f"), BEE)
    waiting = [
        bench.ask(Items(node=NODE, state="dead", max_items=most)) for most in (1, 2, 9)
    ]
    bench.disk.release()
    names = [
        [item.item_id for item in each.items]
        for each in await asyncio.gather(*waiting)
        if isinstance(each, ItemsResult)
    ]
    assert names == [["c"], ["c", "d"], ["c", "d", "e", "f"]]


async def test_what_is_kept_is_shown_until_its_time_is_over(bench: Bench) -> None:
    """Items not on disk yet are shown too.

    Expired ones are not, even if still there.
    """
    await bench.ask(Configure(NODE, {"queue#keep_accepted": "30"}))
    await bench.ask(Publish(NODE, (entry("a"), entry("b"))))
    await bench.until(4)
    await bench.ask(bench.accept("a"), BEE)
    bench.clock.advance(20.0)
    await bench.ask(bench.accept("b"), BEE)
    bench.out.clear()
    await bench.ask(Publish(NODE, (entry("c"),)))
    await bench.until(2)
    bench.clock.advance(10.0)
    bench.disk.hold()
    bench.ask(bench.accept("c"), BEE)
    asked = [
        Items(node=NODE, state="accepted", max_items=1),
        Items(node=NODE, state="accepted", max_items=2),
        Items(node=NODE, state="accepted", item_ids=("a", "b", "c")),
    ]
    waiting = [bench.ask(each) for each in asked]
    bench.disk.release()
    found = [*await asyncio.gather(*waiting), await bench.ask(asked[0])]
    shown = [each for each in found if isinstance(each, ItemsResult)]
    names = [[item.item_id for item in each.items] for each in shown]
    assert names == [["b"], ["b", "c"], ["b", "c"], ["b"]]
    assert shown[-1].count == 2
    assert bench.engine.store.count_archived(NODE, ItemOutcome.ACCEPTED, most=9) == 3


async def test_a_subscription_is_answered_before_its_first_event(bench: Bench) -> None:
    """A worker drops an item of a queue to which it has not subscribed yet."""
    await bench.ask(Publish(NODE, tuple(entry(name) for name in "abc")))
    await bench.until(3)
    bench.out.clear()
    await bench.ask(
        Subscribe(NODE, OTHER_BEE, {"pubsub#queue_requests": "1"}), OTHER_BEE
    )
    out = await bench.until(2)
    assert isinstance(out[0], SubscribeResult)
    assert isinstance(out[1], Sent)
    assert out[1].to == OTHER_BEE


async def test_who_is_heard_of_during_a_commit_gets_items_after_it(
    bench: Bench,
) -> None:
    """No second event is needed: the next one may be an hour away."""
    await bench.restart()
    bench.engine.online()
    bench.out.clear()
    bench.disk.hold()
    bench.ask(Publish(NODE, (entry("a"),)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    bench.engine.heard(BEE)
    bench.disk.release()
    out = await bench.until(3)
    assert Sent(BEE, [("a", "<x xmlns='urn:x'/>")]) in out


async def test_without_a_session_nothing_is_given_out(bench: Bench) -> None:
    """Its lock would time out and count, although no worker has had it."""
    bench.engine.offline()
    await bench.ask(Publish(NODE, (entry("a"),)))
    stats = await bench.stats()
    assert (stats["available"], stats["acquired"]) == (1, 0)


async def test_what_died_in_the_commit_under_way_is_purged_and_requeued(
    bench: Bench,
) -> None:
    """Pipelined requests see the decisions of those before them."""
    await bench.ask(Publish(NODE, (entry("a"), entry("b"))))
    await bench.until(3)
    bench.disk.hold()
    bench.ask(bench.reject("a"), BEE)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    alive = bench.ask(Requeue(NODE))
    bench.ask(bench.reject("b"), BEE)
    dead = bench.ask(Items(node=NODE, item_ids=("b",), state="dead"))
    purged = bench.ask(Purge(NODE))
    bench.disk.release()
    assert await alive == RequeueResult(NODE, ("a",))
    listed = await dead
    assert isinstance(listed, ItemsResult)
    assert [item.item_id for item in listed.items] == ["b"]
    assert await purged == Ok()
    stats = await bench.stats()
    assert (stats["available"], stats["acquired"], stats["dead"]) == (0, 0, 0)
    assert not bench.engine.store.archived(NODE, ItemOutcome.REJECTED, limit=9)


async def test_a_purge_is_one_commit_and_its_rows_go_in_later_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A neighbour's commit waits for some rows, not for all."""
    monkeypatch.setattr(queue_commit, "_PURGED_ROWS", 4)
    names = [f"i{number}" for number in range(20)]
    await bench.ask(Publish(NODE, tuple(map(entry, names))))
    await bench.until(2)
    bench.disk.hold()
    purged = bench.ask(Purge(NODE))
    # Their ends are known at once, and nothing is shown of them.
    again = bench.ask(Publish(NODE, (entry("i0"), entry("i19"))))
    shown = bench.ask(Items(node=NODE, state="live"))
    other = bench.ask(Publish(NODE, (entry("i7", "<y xmlns='urn:y'/>"),)))
    bench.disk.release()
    assert await purged == Ok()
    before = bench.disk.commits
    repeated, page, refused = await again, await shown, await other
    assert isinstance(repeated, PublishResult)
    assert isinstance(page, ItemsResult)
    assert page.items == ()
    assert repeated.repeated == ("i0", "i19")
    assert isinstance(refused, Refusal)
    assert refused.condition == "conflict"
    await until(lambda: not bench.store.has_purged())
    assert bench.disk.commits - before >= 4
    assert bench.store.payloads(range(99)) == {}
    assert len(bench.store.all_ended(NODE, names)) == 20


async def test_what_was_purged_is_removed_after_a_restart_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The purge was confirmed; whoever begins anew goes on where it was."""
    monkeypatch.setattr(queue_commit, "_PURGED_ROWS", 1)
    names = [f"i{number}" for number in range(20)]
    await bench.ask(Publish(NODE, tuple(map(entry, names))))
    await bench.until(2)
    assert await bench.ask(Purge(NODE)) == Ok()
    await bench.restart()
    assert bench.store.has_purged()
    assert bench.store.contents().items == []
    bench.engine.online()
    result = await bench.ask(Publish(NODE, (entry("i3"),)))
    assert isinstance(result, PublishResult)
    assert result.repeated == ("i3",)
    bench.disk.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert isinstance(await bench.ask(Publish(NODE, (entry("new"),))), Unwritten)
    bench.disk.error = None
    bench.clock.advance(1.0)
    # Without more removals at first: these may be what has filled the disk.
    assert isinstance(await bench.ask(Publish(NODE, (entry("new"),))), PublishResult)
    assert bench.store.has_purged()
    bench.clock.advance(60.0)
    await until(lambda: not bench.store.has_purged())
    assert len(bench.store.payloads(range(99))) == 1


async def test_a_delete_is_one_commit_and_its_rows_go_in_later_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for all of them, and they go after a restart too."""
    monkeypatch.setattr(queue_commit, "_PURGED_ROWS", 4)
    names = [f"i{number}" for number in range(20)]
    for _ in range(2):
        await bench.ask(Publish(NODE, tuple(map(entry, names))))
        before = bench.disk.commits
        assert await bench.ask(Delete(NODE)) == Ok()
        assert len(bench.store.payloads(range(99))) > 12
        await until(lambda: not bench.store.has_purged())
        assert bench.disk.commits - before >= 4
        assert bench.store.payloads(range(99)) == {}
        assert isinstance(await bench.ask(Create(NODE, {})), CreateResult)
    await bench.ask(Publish(NODE, tuple(map(entry, names))))
    assert await bench.ask(Delete(NODE)) == Ok()
    await bench.restart()
    assert bench.store.contents().items == []
    bench.engine.online()
    assert isinstance(await bench.ask(Create(NODE, {})), CreateResult)
    result = await bench.ask(Publish(NODE, (entry("i3"),)))
    assert isinstance(result, PublishResult)
    assert result.repeated == ()
    bench.clock.advance(60.0)
    await until(lambda: not bench.store.has_purged())
    assert len(bench.store.payloads(range(99))) == 1


async def test_what_is_old_goes_some_rows_in_a_commit_until_nothing_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A neighbour's commit waits for some rows, not for all; and all of them go."""
    monkeypatch.setattr(queue_commit, "_FORGOTTEN_ROWS", 4)
    names = await _accepted(bench, 20)
    removals = _removals(bench)
    bench.clock.advance(3601.0)
    asked = [bench.ask(Publish(NODE, (entry(f"new {at}"),))) for at in range(3)]
    assert all(isinstance(each, PublishResult) for each in await asyncio.gather(*asked))
    await until(lambda: not bench.store.all_ended(NODE, names))
    await bench.ask(Items(node=NODE))
    # The first commit brings three items and two locks.
    bounds = [each.rows for each in removals]
    assert bounds == [4 + 5, 4, 4, 4]
    assert len({each.now for each in removals}) == 1
    # Nothing is old: a minute later one commit finds that.
    bench.clock.advance(60.0)
    await bench.ask(Items(node=NODE))
    await bench.ask(Items(node=NODE))
    assert len(removals) == len(bounds) + 1


async def test_what_is_old_is_forgotten_after_a_restart_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever begins anew goes on; after a commit that failed, a minute later."""
    monkeypatch.setattr(queue_commit, "_FORGOTTEN_ROWS", 1)
    names = await _accepted(bench, 20)
    bench.clock.advance(3601.0)
    await bench.ask(Items(node=NODE))
    await bench.restart()
    assert bench.store.all_ended(NODE, names)
    bench.engine.online()
    bench.disk.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert isinstance(await bench.ask(Publish(NODE, (entry("new"),))), Unwritten)
    bench.disk.error = None
    bench.clock.advance(1.0)
    removals = _removals(bench)
    assert isinstance(await bench.ask(Publish(NODE, (entry("new"),))), PublishResult)
    assert removals == []
    bench.clock.advance(60.0)
    await until(lambda: not bench.store.all_ended(NODE, names))
    assert {each.rows for each in removals} == {1}


async def test_a_service_that_does_nothing_notes_that_it_is_there(
    bench: Bench,
) -> None:
    """Once a minute; otherwise its locks would last longer after a start."""
    before = bench.disk.commits
    bench.clock.advance(60.0)
    await until(lambda: bench.disk.commits > before)
    await bench.restart(5.0)
    assert bench.store.heard_at == 1060.0


async def _accepted(bench: Bench, count: int) -> list[str]:
    """Publish so many items and accept them; returns their ids."""
    names = [f"i{number}" for number in range(count)]
    for name in names:
        await bench.ask(Publish(NODE, (entry(name),)))
        await until(lambda name=name: name in bench.tokens)
        assert await bench.ask(bench.accept(name), BEE) == Ok()
    assert len(bench.store.all_ended(NODE, names)) == count
    return names


def _removals(bench: Bench) -> list[ForgetOld]:
    """The removals of old rows, as they are written from now on, one a commit at most."""
    removals: list[ForgetOld] = []
    write = bench.store.write

    def noted(changes: Sequence[Change]) -> asyncio.Future[None] | None:
        new = [each for each in changes if isinstance(each, ForgetOld)]
        assert len(new) <= 1
        removals.extend(new)
        return write(changes)

    bench.store.write = noted  # type: ignore[method-assign]
    return removals


# -- gateways --------------------------------------------------------------


async def test_a_gateway_learns_of_a_delivery_that_is_not_sent_after_all(
    bench: Bench,
) -> None:
    """It took credit, and nothing else would give that back."""
    bench.disk.hold()
    bench.ask(Publish(NODE, (entry("a"),)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    bench.engine.departed(BEE)
    bench.disk.release()
    await bench.ask(Items(node=NODE))
    assert bench.dropped_items == [(BEE, "a")]


async def test_a_gateway_learns_that_all_presence_and_credit_is_forgotten(
    bench: Bench,
) -> None:
    bench.disk.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert isinstance(await bench.ask(Publish(NODE, (entry("a"),))), Unwritten)
    bench.disk.error = None
    assert bench.restarts == 0
    bench.clock.advance(2.0)
    assert bench.restarts == 1


async def test_the_clients_of_a_gateway_work_on_without_a_session(
    bench: Bench,
) -> None:
    """Their connections are not those of the XMPP server."""
    bench.clients.append(BEE)
    bench.engine.offline()
    await bench.ask(Publish(NODE, (entry("a"),)))
    assert (await bench.until(2))[1] == Sent(BEE, [("a", "<x xmlns='urn:x'/>")])
