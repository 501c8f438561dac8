"""A worker keeps its locks while it works, and knows when it has lost one."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP

from qos.core.queue.item import ItemOutcome
from qos.errors import JobLost, LocalProtocolError, NoAnswer, RequestRefused
from qos.testing import LoopbackServer
from qos.worker import Job, Worker, leases, settlements
from qos.worker.away_time import AwayTime
from qos.worker.unlock_requests import UnlockRequests
from raw_client import local
from worker_setup import NODE, QUEUE, LogIn, Queue, ScriptedService, token_in
from xep_0254 import XEP_0254
from xep_0254.events import DeliveredItem, Event

NEVER_S = 3600.0


# -- extending -------------------------------------------------------------


async def test_a_lock_is_extended_when_a_third_of_it_is_over(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """Two requests may be lost before a slow job loses its lock."""
    clock = asyncio.get_running_loop().time
    async with scripted.worker(bee, lock_timeout_s=90) as worker:
        await scripted.subscribe()
        began = clock()
        await scripted.deliver("i", "t")
        job = await anext(worker)
        first = await scripted.asked("extend")
        assert clock() - began == pytest.approx(30, abs=0.001)
        assert token_in(first) == "t"
        (extend,) = (each for each in first.iter() if local(each) == "extend")
        assert extend.get("seconds") == "90"
        # The granted time counts, not the requested one.
        await scripted.extended(first, 15)
        began = clock()
        second = await scripted.asked("extend")
        assert clock() - began == pytest.approx(5, abs=0.001)
        await scripted.extended(second, NEVER_S)
        await scripted.in_step()
        assert not job.lost.is_set()


async def test_the_first_extension_does_not_need_to_know_how_long_a_lock_is(
    bee: ClientXMPP, scripted: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No event has the duration, and only owners can look it up."""
    monkeypatch.setattr(leases, "_EXTEND_AFTER_S", 0.05)
    async with scripted.worker(bee) as worker:
        await scripted.subscribe()
        await scripted.deliver("i", "t")
        await anext(worker)
        (extend,) = (
            each
            for each in (await scripted.asked("extend")).iter()
            if local(each) == "extend"
        )
        assert extend.get("seconds") == "60"


async def test_a_job_that_waits_for_its_turn_keeps_its_lock(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """Otherwise it would count as failed, though no worker has tried."""
    async with scripted.worker(bee, parallel=2, lock_timeout_s=0.1):
        await scripted.subscribe()
        await scripted.deliver("i", "t")
        assert token_in(await scripted.asked("extend")) == "t"


async def test_an_extension_without_an_answer_is_repeated(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """A stanza can be lost; there is time for another one."""
    async with scripted.holding(bee, lock_timeout_s=3) as (_, job):
        await scripted.asked("extend")
        await scripted.extended(await scripted.asked("extend"), NEVER_S)
        await scripted.in_step()
        assert not job.lost.is_set()


@pytest.mark.parametrize(
    "condition", ["item-not-found", "conflict", "unexpected-request", "forbidden"]
)
async def test_a_job_whose_extension_is_refused_is_lost(
    bee: ClientXMPP, scripted: ScriptedService, condition: str
) -> None:
    """The worker was not told that its lock had ended, but now it knows."""
    async with scripted.holding(bee, lock_timeout_s=0.9) as (_, job):
        await scripted.refuse(await scripted.asked("extend"), condition)
        await job.lost.wait()
        with pytest.raises(JobLost) as caught:
            await job.accept()
        assert caught.value.condition == condition


async def test_a_service_that_knows_no_extensions_is_not_asked_again(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """It is a foreign service; the job goes on as long as its lock lasts."""
    async with scripted.holding(bee, parallel=2, lock_timeout_s=0.3) as (_, job):
        request = await scripted.asked("extend")
        await scripted.refuse(request, "feature-not-implemented")
        await job.lost.wait()
        with pytest.raises(JobLost, match="timed out"):
            await job.accept()


async def test_an_application_can_extend_by_itself(
    bee: ClientXMPP, queue: Queue
) -> None:
    """It may know better than the worker how long the job will take."""
    await queue.create(lock_timeout=30)
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE, extend=False) as worker:
        job = await anext(worker)
        assert await job.extend(600) == 600
        async with job:
            await asyncio.sleep(40)
            assert (await queue.stats())["acquired"] == 1
    assert job.outcome is ItemOutcome.ACCEPTED


async def test_an_extension_that_is_refused_for_another_reason_is_only_that(
    bee: ClientXMPP, queue: Queue
) -> None:
    """The job still belongs to the worker."""
    await queue.create()
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE) as worker:
        job = await anext(worker)
        with pytest.raises(RequestRefused, match="bad-request"):
            await job.extend(1e9)
        async with job:
            pass
    assert job.outcome is ItemOutcome.ACCEPTED


# -- losing ----------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        f"<items node='{NODE}'>"
        "<unlock xmlns='urn:xmpp:pubsub:queueing:0' id='i'/></items>",
        f"<items node='{NODE}'><unlock xmlns='urn:xmpp:queueing:0' id='i'/></items>",
        f"<items node='{NODE}'><retract id='i'/></items>",
        f"<purge node='{NODE}'/>",
        f"<delete node='{NODE}'/>",
    ],
    ids=["unlock", "unlock, old", "retract", "purge", "delete"],
)
async def test_a_job_is_lost_when_an_event_says_so(
    bee: ClientXMPP, scripted: ScriptedService, event: str
) -> None:
    """Its handler can stop, and its effects must be dropped."""
    async with scripted.holding(bee) as (_, job):
        await scripted.event(event)
        await job.lost.wait()
        with pytest.raises(JobLost):
            await job.accept()
        await scripted.in_step()
        requests = scripted.component.received(lambda each: local(each) == "iq")
        assert not any("retract" in map(local, each.iter()) for each in requests)


async def test_a_job_is_lost_at_its_deadline(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """Even without an event: the worker watches the deadline itself."""
    async with scripted.holding(bee, lock_timeout_s=0.1, extend=False) as (_, job):
        await job.lost.wait()
        with pytest.raises(JobLost, match="timed out"):
            await job.reject("late")


async def test_the_deadline_is_what_was_granted_last(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """A service may grant less than the requested time."""
    async with scripted.holding(bee, lock_timeout_s=NEVER_S) as (_, job):
        extending = asyncio.create_task(job.extend(60))
        await scripted.extended(await scripted.asked("extend"), 0.1)
        assert await extending == 0.1
        # Although an extension that has no answer is still waited for.
        began = asyncio.get_running_loop().time()
        await job.lost.wait()
        assert asyncio.get_running_loop().time() - began == pytest.approx(
            0.1, abs=0.001
        )
        with pytest.raises(JobLost, match="timed out"):
            await job.accept()


async def test_a_job_that_is_lost_before_it_was_begun_is_not_begun(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """Another worker has it."""
    async with scripted.worker(bee, parallel=2) as worker:
        await scripted.subscribe()
        await scripted.deliver("a", "t1")
        await scripted.deliver("b", "t2")
        await scripted.event(
            f"<items node='{NODE}'>"
            "<unlock xmlns='urn:xmpp:pubsub:queueing:0' id='a'/></items>"
        )
        await scripted.in_step()
        assert (await anext(worker)).id == "b"


# -- what comes twice ------------------------------------------------------


async def test_a_delivery_that_is_known_is_not_handled_again(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """A service that restarted sends the items that we hold, with the same tokens."""
    async with scripted.holding(bee, parallel=3) as (worker, job):
        await scripted.deliver("i", "t")
        await scripted.in_step()
        accepting = asyncio.create_task(job.accept())
        await scripted.answer(await scripted.asked("retract"))
        await accepting
        # An event that arrives after the end of its item.
        await scripted.deliver("i", "t")
        await scripted.deliver("other", "t2")
        assert (await anext(worker)).id == "other"
        assert not job.lost.is_set()


async def test_a_new_delivery_of_an_item_ends_the_one_before(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """The new delivery has a new token; the old one is worthless."""
    async with scripted.worker(bee, parallel=2) as worker:
        await scripted.subscribe()
        await scripted.deliver("i", "t1")
        first = await anext(worker)
        await scripted.deliver("i", "t2")
        second = await anext(worker)
        assert first.lost.is_set()
        assert (second.id, second.token) == ("i", "t2")
        assert not second.lost.is_set()


# -- settling --------------------------------------------------------------


async def test_an_accept_without_an_answer_is_repeated_with_its_token(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """By the token the service knows that it is already done, and answers the same."""
    XEP_0254.of(bee).timeout_s = 0.2
    async with scripted.holding(bee) as (_, job):
        accepting = asyncio.create_task(job.accept())
        first = await scripted.asked("retract")
        # An event about our own retract decides nothing; the answer does.
        await scripted.event(f"<items node='{NODE}'><retract id='i'/></items>")
        second = await scripted.asked("retract")
        assert token_in(first) == token_in(second) == "t"
        await scripted.refuse(second, "service-unavailable")
        await scripted.answer(await scripted.asked("retract"))
        await accepting
        assert job.outcome is ItemOutcome.ACCEPTED
        assert not job.lost.is_set()


async def test_an_accept_is_repeated_at_once_when_the_item_is_sent_again(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """The service has restarted and does not know of it; meanwhile the lock runs."""
    async with scripted.holding(bee) as (_, job):
        accepting = asyncio.create_task(job.accept())
        await scripted.asked("retract")
        clock = asyncio.get_running_loop().time
        began = clock()
        await scripted.deliver("i", "t")
        await scripted.answer(await scripted.asked("retract"))
        assert clock() - began < settlements._ANSWER_S_MIN
        await accepting
    assert job.outcome is ItemOutcome.ACCEPTED


async def test_an_item_that_is_sent_again_twice_at_once_takes_nothing_with_it(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """No other worker gets the other items of the second event while their locks last."""
    async with scripted.holding(bee, parallel=2) as (worker, job):
        accepting = asyncio.create_task(job.accept())
        await scripted.asked("retract")
        again = DeliveredItem(item_id="i", token=job.token)
        other = DeliveredItem(item_id="other")
        worker._on_event(Event(node=NODE, items=(again,)))
        # The time-out is over, but its task does not know yet.
        await asyncio.sleep(0)
        worker._on_event(Event(node=NODE, items=(again, other)))
        assert (await anext(worker)).id == "other"
        await scripted.answer(await scripted.asked("retract"))
        await accepting
    assert job.outcome is ItemOutcome.ACCEPTED


@pytest.mark.parametrize(
    ("condition", "by"), [("forbidden", ""), ("item-not-found", "localhost")]
)
async def test_what_a_server_says_in_the_place_of_the_service_loses_no_job(
    bee: ClientXMPP, scripted: ScriptedService, condition: str, by: str
) -> None:
    """The service is restarting; it has the item and the lock."""
    async with scripted.holding(bee, lock_timeout_s=0.9) as (_, job):
        await scripted.refuse(await scripted.asked("extend"), condition, "auth", by=by)
        await scripted.extended(await scripted.asked("extend"), NEVER_S)
        accepting = asyncio.create_task(job.accept())
        await scripted.refuse(await scripted.asked("retract"), condition, "auth", by=by)
        await scripted.answer(await scripted.asked("retract"))
        await accepting
    assert job.outcome is ItemOutcome.ACCEPTED


@pytest.mark.parametrize(
    ("condition", "type_"),
    [
        ("item-not-found", "cancel"),
        ("conflict", "cancel"),
        ("unexpected-request", "wait"),
    ],
)
async def test_an_accept_that_is_refused_loses_the_job_at_once(
    bee: ClientXMPP, scripted: ScriptedService, condition: str, type_: str
) -> None:
    """Its effects must be dropped; a repeat does not help, whatever the error type."""
    async with scripted.holding(bee) as (_, job):
        accepting = asyncio.create_task(job.accept())
        await scripted.refuse(await scripted.asked("retract"), condition, type_)
        with pytest.raises(JobLost) as caught:
            await accepting
        assert caught.value.condition == condition
        assert job.lost.is_set()
        assert job.outcome is None


async def test_an_accept_that_is_never_answered_is_in_doubt_at_the_end(
    bee: ClientXMPP, scripted: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker cannot wait for ever, and must not claim what it does not know."""
    XEP_0254.of(bee).timeout_s = 0.1
    monkeypatch.setattr(settlements, "_SETTLE_S_MIN", 0.2)
    async with scripted.holding(bee, lock_timeout_s=0.3) as (_, job):
        with pytest.raises(JobLost, match="may have been accepted") as caught:
            await job.accept()
        assert caught.value.condition is None
        assert isinstance(caught.value.__cause__, NoAnswer)


async def test_an_accept_goes_on_when_who_waits_for_it_is_cancelled(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """It is already sent; the caller can wait again for its result."""
    async with scripted.holding(bee) as (_, job):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(job.accept(), 0.05)
        request = await scripted.asked("retract")
        # An event from the service decides nothing here either.
        await scripted.event(f"<items node='{NODE}'><retract id='i'/></items>")
        await scripted.in_step()
        with pytest.raises(LocalProtocolError, match="being accepted"):
            await job.release()
        accepting = asyncio.create_task(job.accept())
        await scripted.answer(request)
        await accepting
    assert job.outcome is ItemOutcome.ACCEPTED


async def test_a_late_accept_is_refused_and_the_other_worker_has_the_item(
    bee: ClientXMPP, queue: Queue, log_in: LogIn
) -> None:
    """The token is the fence: with it a late worker can do no harm."""
    await queue.create(lock_timeout=30)
    other = await log_in("bee/2")
    async with Worker(bee, QUEUE, NODE, extend=False) as slow:
        await slow.subscribed()
        await queue.publish("i")
        late = await anext(slow)
        # This worker does not get the event that its lock has ended.
        slow._plugin.remove_listener(QUEUE, NODE, slow._on_event)
        async with Worker(other, QUEUE, NODE, lock_timeout_s=30) as quick:
            job = await anext(quick)
            assert (job.id, job.delivery_count) == ("i", 1)
            with pytest.raises(JobLost) as caught:
                await late.accept()
            assert caught.value.condition == "conflict"
            async with job:
                pass
    assert job.outcome is ItemOutcome.ACCEPTED
    assert (await queue.stats())["accepted"] == 1


@pytest.mark.looptime(end=None)
async def test_a_slow_job_is_kept_by_a_worker_that_lives(
    bee: ClientXMPP, queue: Queue, log_in: LogIn
) -> None:
    """It takes three times the lock's duration, and no other worker gets it."""
    await queue.create(lock_timeout=30)
    other = await log_in("bee/2")
    async with (
        Worker(bee, QUEUE, NODE, lock_timeout_s=30) as slow,
        Worker(other, QUEUE, NODE, lock_timeout_s=30) as quick,
    ):
        await slow.subscribed()
        await quick.subscribed()
        await queue.publish("a", "b")
        async with await anext(slow) as job:
            async with await anext(quick):
                pass
            await asyncio.sleep(90)
            assert (await queue.stats())["acquired"] == 1
        assert job.outcome is ItemOutcome.ACCEPTED
    assert (await queue.stats())["accepted"] == 2


async def test_an_item_that_comes_anew_before_its_release_is_answered_was_released(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """The event overtook the answer.

    Nothing was lost, and there are two separate jobs.
    """
    async with scripted.holding(bee, parallel=2) as (worker, job):
        releasing = asyncio.ensure_future(job.release())
        request = await scripted.asked("unlock")
        await scripted.deliver("i", "anew")
        again = await anext(worker)
        await scripted.answer(request)
        await releasing
        assert not job.lost.is_set()
        assert job.outcome is ItemOutcome.RELEASED
        assert (again.token, again.held) == ("anew", True)


async def end(job: Job, outcome: ItemOutcome) -> None:
    """End a delivery so that its item comes again."""
    await (job.release() if outcome is ItemOutcome.RELEASED else job.modify())


GIVEN_BACK = pytest.mark.parametrize(
    "outcome", [ItemOutcome.RELEASED, ItemOutcome.MODIFIED]
)


@GIVEN_BACK
async def test_an_item_that_is_sent_again_while_it_is_given_back_was_given_back(
    bee: ClientXMPP, queue: Queue, outcome: ItemOutcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has subscribed anew just before: the event crosses the unlock.

    The service does not know a repeated unlock, and refuses it.
    """
    await queue.create(max_deliveries=2)
    await queue.publish("i")
    events: list[Event] = []
    unlocks: list[XEP_0254] = []
    handle, unlock = leases.Leases.handle, XEP_0254.unlock

    async def unlock_while_the_event_comes(
        plugin: XEP_0254, *words: str, **options: Any
    ) -> None:
        unlocks.append(plugin)
        if len(unlocks) == 1:
            loop = asyncio.get_running_loop()
            loop.call_soon(handle, worker._leases, events[0])
        await unlock(plugin, *words, **options)

    async with Worker(bee, QUEUE, NODE) as worker:
        job = await anext(worker)
        with monkeypatch.context() as patch:
            patch.setattr(
                leases.Leases, "handle", lambda _, event: events.append(event)
            )
            await worker.ask()
            ((again,),) = (event.items for event in events)
            assert again.token == job.token
            patch.setattr(XEP_0254, "unlock", unlock_while_the_event_comes)
            await end(job, outcome)
        assert len(unlocks) == 2
        assert job.outcome is outcome
        assert not job.lost.is_set()


@GIVEN_BACK
@pytest.mark.parametrize("why", ["sent again", "late"])
async def test_an_answer_to_the_first_of_two_unlocks_is_the_answer(
    bee: ClientXMPP, scripted: ScriptedService, outcome: ItemOutcome, why: str
) -> None:
    """It comes first, since it was asked for first; the second unlock is refused."""
    async with scripted.holding(bee) as (_, job):
        ending = asyncio.create_task(end(job, outcome))
        first = await scripted.asked("unlock")
        if why == "sent again":
            await scripted.deliver("i", "t")
        second = await scripted.asked("unlock")
        assert token_in(first) == token_in(second) == "t"
        await scripted.answer(first)
        await scripted.refuse(second, "unexpected-request", "wait")
        await ending
        assert job.outcome is outcome
        assert not job.lost.is_set()


async def test_an_unlock_that_is_refused_after_one_without_an_answer_is_in_doubt(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """The service may have done the first one, and its answer is lost."""
    async with scripted.holding(bee) as (_, job):
        releasing = asyncio.create_task(job.release())
        await scripted.asked("unlock")
        second = await scripted.asked("unlock")
        await scripted.refuse(second, "unexpected-request", "wait")
        with pytest.raises(JobLost, match="may have been released") as caught:
            await releasing
        assert caught.value.condition is None


async def test_an_unlock_whose_session_is_lost_may_be_done_if_it_was_sent(
    bee: ClientXMPP, scripted: ScriptedService, server: LoopbackServer
) -> None:
    """Also if nobody waits for its answer when the session is lost."""
    plugin = XEP_0254.of(bee)

    def unlocks() -> UnlockRequests:
        return UnlockRequests(
            plugin, QUEUE, lambda: plugin.unlock(QUEUE, NODE, "i", "t")
        )

    sent, unsent = unlocks(), unlocks()
    with pytest.raises(NoAnswer):
        await sent.ask(0.1)
    await scripted.asked("unlock")
    assert not sent.may_be_done
    server.disconnect("bee@localhost/1")
    await bee.wait_until("disconnected")
    assert plugin.own is None
    for requests in (unsent, sent):
        with pytest.raises(NoAnswer, match="session"):
            await requests.ask(0.1)
    assert (sent.may_be_done, unsent.may_be_done) == (True, False)
    await asyncio.gather(sent.end(), unsent.end())


async def test_a_refusal_of_the_first_of_two_unlocks_is_certain(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """Nothing was asked for before."""
    async with scripted.holding(bee) as (_, job):
        releasing = asyncio.create_task(job.release())
        first = await scripted.asked("unlock")
        await scripted.asked("unlock")
        await scripted.refuse(first, "unexpected-request", "wait")
        with pytest.raises(JobLost, match="was not released") as caught:
            await releasing
        assert caught.value.condition == "unexpected-request"


# -- a service that is away ------------------------------------------------


async def away(
    scripted: ScriptedService,
    what: str,
    times: int,
    how: tuple[str, str] = ("service-unavailable", ""),
) -> ET.Element:
    """A server answers requests in the place of the service; returns the next one."""
    condition, by = how
    for _ in range(times):
        request = await scripted.asked(what)
        await scripted.refuse(request, condition, "wait", by=by)
    return await scripted.asked(what)


@pytest.mark.parametrize(
    "how",
    [
        ("service-unavailable", ""),
        ("recipient-unavailable", "localhost"),
        ("remote-server-timeout", QUEUE),
        ("remote-server-not-found", ""),
    ],
    ids=["of an account", "of a server", "Prosody's component", "ejabberd's component"],
)
async def test_a_job_outlasts_the_absence_of_its_service(
    bee: ClientXMPP, scripted: ScriptedService, how: tuple[str, str]
) -> None:
    """The service gives back what its own connection has lost."""
    clock = asyncio.get_running_loop().time
    async with scripted.holding(bee, lock_timeout_s=3) as (_, job):
        began = clock()
        request = await away(scripted, "extend", 20, how)
        assert clock() - began > 2 * 3
        assert not job.lost.is_set()
        await scripted.extended(request, 3)
        began = clock()
        await scripted.asked("extend")
        # What was lost before is over.
        await job.lost.wait()
        assert clock() - began == pytest.approx(3, abs=0.1)


@pytest.mark.parametrize(
    ("condition", "by"),
    [("forbidden", ""), ("service-unavailable", QUEUE)],
    ids=["nobody knows who says it", "the service says it"],
)
async def test_a_job_is_lost_in_time_where_the_service_may_be_there(
    bee: ClientXMPP, scripted: ScriptedService, condition: str, by: str
) -> None:
    """Another worker may have the item by then."""
    clock = asyncio.get_running_loop().time
    async with scripted.holding(bee, lock_timeout_s=3) as (_, job):
        began = clock()

        async def refuse() -> None:
            while True:
                request = await scripted.asked("extend")
                await scripted.refuse(request, condition, "wait", by=by)

        refusing = asyncio.create_task(refuse())
        await job.lost.wait()
        refusing.cancel()
        assert clock() - began == pytest.approx(3, abs=0.1)


async def test_a_foreign_service_may_mean_that_it_has_no_extensions(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """It gives no tokens, and its locks run on."""
    clock = asyncio.get_running_loop().time
    async with scripted.holding(bee, item=("i", ""), lock_timeout_s=3) as (_, job):
        began = clock()

        async def refuse() -> None:
            while True:
                request = await scripted.asked("extend")
                await scripted.refuse(request, "service-unavailable", by="")

        refusing = asyncio.create_task(refuse())
        await job.lost.wait()
        refusing.cancel()
        assert clock() - began == pytest.approx(3, abs=0.1)


async def test_an_accept_outlasts_the_absence_of_its_service(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """Its work is done, and the lock is still its own."""
    clock = asyncio.get_running_loop().time
    async with scripted.holding(bee, lock_timeout_s=3) as (_, job):
        began = clock()
        accepting = asyncio.create_task(job.accept())
        request = await away(scripted, "retract", 20)
        assert clock() - began > 3 * settlements._SETTLE_S_MIN
        await scripted.answer(request)
        await accepting
        assert job.outcome is ItemOutcome.ACCEPTED


def test_trouble_between_two_servers_is_not_the_absence_of_a_service() -> None:
    """Its own connection may be there, and its locks run on."""
    job = cast(Job, SimpleNamespace(token="t"))  # noqa: S106 - of a lock
    refused = RequestRefused("remote-server-timeout", to=QUEUE, what="", type="wait")
    for own, is_away in (
        ("bee@localhost", True),
        ("bee@alhost", False),
        ("bee@else.example", False),
    ):
        away = AwayTime(QUEUE, job, own=own)
        assert (away.note(refused, 1.0), away.is_away) == (0.0, is_away)
        assert (away.note(refused, 3.0), away.lost_s) == (2.0 * is_away,) * 2
