"""The inbox alone: when it answers, and what it counts and remembers."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Literal

import pytest

from inbox_bench import PAYLOAD, Bench, request
from qos.core.message.effects import Answer
from qos.core.message.model import IncomingState
from qos.core.message.receiver import NOT_NOW, UNSURE
from qos.core.message.receiver_table import Request
from qos.core.quota import Quotas
from qos.engine import InboxLimits
from qos.engine.inbox_message import Arrival
from simulation.disks import COMMIT_S
from two_ends import settle

NO_ROOM = Answer("error", "", "resource-constraint", "wait")
#: NOT_NOW for a message at level acknowledged: its repeats are answered with it.
NOT_TAKEN = replace(NOT_NOW, repeats=True)

STOPPED = Answer("error", "", "service-unavailable", "cancel")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench(InboxLimits())
    yield made
    made.inbox.stop()


async def test_received_is_said_after_the_write(bench: Bench) -> None:
    """Never before, not even for a repeated offer."""
    for _ in range(3):
        bench.inbox.request(request(), trusted=True)
    await settle()
    assert not bench.port.events
    bench.clock.advance(COMMIT_S)
    await settle()
    assert bench.port.events == [("received", "assured")] * 3
    assert len({answer.hold for answer in bench.port.answers}) == 1
    assert bench.inbox.used("door@example.org") == (1, len(PAYLOAD))


async def test_releasing_is_written_then_handed_over_then_answered(
    bench: Bench,
) -> None:
    """The order is the crash argument."""
    received = await bench.take(request())
    assert received is not None
    bench.inbox.request(request("deliver", hold=received.hold), trusted=True)
    await settle()
    assert not bench.port.handed
    bench.clock.advance(COMMIT_S)
    await settle()
    assert bench.port.events[1:] == [("hand over", "m1"), ("result", "deliver")]
    assert bench.port.answers[-1].hold == received.hold
    await bench.commit()
    assert [record.state for record in bench.store.incoming()] == [IncomingState.DONE]
    assert bench.inbox.used() == (0, 0)


async def test_a_repeated_deliver_is_answered_alike_and_hands_over_once(
    bench: Bench,
) -> None:
    """Even while it is being written, and after a restart."""
    received = await bench.take(request())
    assert received is not None
    deliver = request("deliver", hold=received.hold)
    for _ in range(5):
        bench.inbox.request(deliver, trusted=True)
    await bench.commit()
    bench.restart()
    await bench.take(deliver)
    assert len(bench.port.handed) == 1
    assert bench.port.events.count(("result", "deliver")) == 6


async def test_what_was_being_released_is_handed_over_again_with_the_mark(
    bench: Bench,
) -> None:
    """After a kill between the two writes, only the application can know."""
    received = await bench.take(request())
    assert received is not None
    bench.inbox.request(request("deliver", hold=received.hold), trusted=True)
    await settle()
    bench.clock.advance(COMMIT_S)
    await settle()
    bench.restart()
    await bench.commit()
    assert [record.redelivered for record in bench.port.handed] == [False, True]
    answer = await bench.take(request("deliver", hold=received.hold))
    assert answer == Answer("result", received.hold)
    assert len(bench.port.handed) == 2


async def test_a_guessed_hold_releases_nothing(bench: Bench) -> None:
    """The answer is item-not-found with the hold of the request, and the message stays."""
    await bench.take(request())
    answer = await bench.take(request("deliver", hold="a guess"))
    assert answer == Answer("error", "a guess", "item-not-found", "cancel")
    assert not bench.port.handed
    assert bench.inbox.used("door@example.org")[0] == 1


async def test_an_unmarked_deliver_for_nothing_is_acknowledged(bench: Bench) -> None:
    """As the proto-XEP has it; it is reported."""
    answer = await bench.take(request("deliver", mark=""))
    assert answer == Answer("result")
    assert bench.port.events[-1] == ("report", "")


async def test_acknowledged_is_written_handed_over_and_answered(bench: Bench) -> None:
    """In this order; then nothing is left of it."""
    bench.inbox.request(request("acknowledged"), trusted=True)
    await settle()
    assert not bench.port.events
    await bench.commit()
    assert bench.port.events == [
        ("hand over", "iq-acknowledged-m1"),
        ("result", "acknowledged"),
    ]
    assert not list(bench.store.incoming())
    assert bench.inbox.used() == (0, 0)


async def test_two_acknowledged_with_one_iq_id_are_two_messages(bench: Bench) -> None:
    """A peer that counts its ids from 1 after each start would lose messages."""
    for _ in range(2):
        await bench.take(request("acknowledged"))
    assert len(bench.port.handed) == 2


async def test_refusals_are_reported_and_hold_nothing(bench: Bench) -> None:
    """A sender that is not trusted gets not-allowed before anything else is looked at."""
    answer = await bench.take(request(), trusted=False)
    assert answer == Answer("error", "", "not-allowed", "cancel")
    assert bench.port.events[-1] == ("report", "not-allowed")
    assert not list(bench.store.incoming())
    assert not bench.inbox._messages


async def test_a_quota_counts_what_is_being_written(bench: Bench) -> None:
    """Otherwise a burst could pass while the first write is not done."""
    bench.inbox.stop()
    bench.limits = InboxLimits(quotas=Quotas(messages=2))
    bench.inbox = bench.start()
    for number in range(5):
        bench.inbox.request(request(msg_id=f"m{number}"), trusted=True)
    await bench.commit(6)
    kinds = [kind for kind, _ in bench.port.events]
    assert kinds.count("received") == 2
    assert kinds.count("error") == 3


async def test_a_full_disk_is_answered_with_wait_and_gives_the_room_back(
    bench: Bench,
) -> None:
    """The peer comes again; nothing is counted meanwhile."""
    bench.store.disk.full = True
    answer = await bench.take(request())
    assert answer == Answer("error", "", "resource-constraint", "wait")
    assert bench.inbox.used() == (0, 0)
    bench.store.disk.full = False
    answer = await bench.take(request())
    assert answer is not None
    assert answer.kind == "received"


async def test_a_release_that_cannot_be_written_hands_nothing_over(
    bench: Bench,
) -> None:
    """The message is still held, and is released when the disk works again."""
    received = await bench.take(request())
    assert received is not None
    deliver = request("deliver", hold=received.hold)
    bench.store.disk.full = True
    answer = await bench.take(deliver)
    assert answer == Answer("error", "", "resource-constraint", "wait")
    assert not bench.port.handed
    bench.store.disk.full = False
    assert await bench.take(deliver) == Answer("result", received.hold)


async def test_held_messages_expire_and_are_remembered_as_expired(
    bench: Bench,
) -> None:
    """Otherwise a withdrawn message would fill a quota for ever."""
    received = await bench.take(request())
    assert received is not None
    bench.clock.advance(bench.limits.hold_ttl_s)
    await bench.commit()
    assert bench.inbox.used() == (0, 0)
    deliver = request("deliver", hold=received.hold)
    answer = await bench.take(deliver)
    assert answer == Answer("error", received.hold, "item-not-found", "cancel")
    again = await bench.take(request())
    assert again is not None
    assert again.kind == "received"
    assert again.hold != received.hold
    assert await bench.take(request("deliver", hold=again.hold)) is not None
    assert len(bench.port.handed) == 1


async def test_an_expiry_that_cannot_be_written_is_tried_again(bench: Bench) -> None:
    """Until then the message counts."""
    await bench.take(request())
    bench.store.disk.full = True
    bench.clock.advance(bench.limits.hold_ttl_s)
    await bench.commit()
    assert bench.inbox.used()[0] == 1
    bench.store.disk.full = False
    bench.clock.advance(120)
    await bench.commit()
    assert bench.inbox.used()[0] == 0


async def test_tombstones_are_bounded_in_number_and_time(bench: Bench) -> None:
    """On disk as well: forgotten tombstones are removed."""
    bench.inbox.stop()
    bench.limits = InboxLimits(tombstones=4, tombstone_ttl_s=100.0)
    bench.inbox = bench.start()
    for number in range(10):
        taken = request(msg_id=f"m{number}")
        received = await bench.take(taken)
        assert received is not None
        await bench.take(
            replace(request("deliver", msg_id=f"m{number}"), hold=received.hold)
        )
        await bench.commit()
    assert len(list(bench.store.incoming())) == 2  # half of the total for one account
    bench.clock.advance(100)
    await bench.commit()
    assert not list(bench.store.incoming())


def test_an_inbox_can_be_made_before_the_loop_runs() -> None:
    """Killed before an eviction was written, or with fewer tombstones than before."""

    async def remember() -> Bench:
        bench = Bench(InboxLimits())
        for msg_id in ("m1", "m2", "m3"):
            received = await bench.take(request(msg_id=msg_id))
            assert received is not None
            await bench.take(request("deliver", msg_id=msg_id, hold=received.hold))
        bench.inbox.stop()
        bench.store = bench.store.kill()
        return bench

    bench = asyncio.run(remember())
    bench.limits = InboxLimits(tombstones=4)
    bench.inbox = bench.start()

    async def run() -> None:
        bench.inbox.restart()
        await bench.commit()
        bench.inbox.stop()

    assert len(list(bench.store.incoming())) == 3
    asyncio.run(run())
    assert [record.msg_id for record in bench.store.incoming()] == ["m2", "m3"]


async def test_each_of_a_thousand_requests_at_once_has_one_answer_and_fills_no_memory(
    bench: Bench,
) -> None:
    """RFC 6120 §8.2.3. The same offer, while it is being written."""
    for _ in range(1000):
        bench.inbox.request(request(), trusted=True)
    (message,) = bench.inbox._messages.values()
    waiting = [each for each in message.inputs if isinstance(each, Arrival)]
    assert len(waiting) == len(message.inputs) <= 16
    assert not any(each.request.payload for each in waiting)
    assert bench.port.answers == [NO_ROOM] * (999 - len(waiting)), "at once"
    await bench.commit()
    received = [each for each in bench.port.answers if each.kind == "received"]
    assert len(bench.port.answers) == 1000
    assert len(received) == 1 + len(waiting)
    assert bench.inbox.used()[0] == 1
    hold = received[0].hold
    for _ in range(1000):
        bench.inbox.request(request("deliver", hold=hold), trusted=True)
    await bench.commit()
    assert len(bench.port.answers) == 2000
    assert bench.port.answers.count(Answer("result", hold)) == 1 + len(waiting)


async def test_repeats_of_what_could_not_be_written_are_refused_like_it(
    bench: Bench,
) -> None:
    """They are kept without payload: there is nothing to hold."""
    bench.store.disk.full = True
    for _ in range(5):
        bench.inbox.request(request(), trusted=True)
    await bench.commit()
    assert bench.port.answers == [NO_ROOM] * 5
    assert bench.inbox.used() == (0, 0)


async def test_an_id_that_is_used_again_while_it_is_forgotten_is_held_at_once(
    bench: Bench,
) -> None:
    """A small device may use one id for all messages, and has the result before it is
    written.
    """
    for _ in range(2):
        await bench.take(request(mark=""))
        bench.inbox.request(request("deliver", mark=""), trusted=True)
        await settle()
        bench.clock.advance(COMMIT_S)
        await settle()
        assert bench.port.answers[-1] == Answer("result")
        # The tombstone is being forgotten now.
        answers = len(bench.port.answers)
        for _ in range(3):
            bench.inbox.request(request(mark=""), trusted=True)
        await bench.commit()
        kinds = [each.kind for each in bench.port.answers[answers:]]
        assert kinds == ["received"] * 3
        await bench.take(request("deliver", mark=""))


async def test_a_stopped_inbox_hands_nothing_over_and_answers_what_comes(
    bench: Bench,
) -> None:
    """Requests are answered with "try again"; the session may live on for a while."""
    received = await bench.take(request())
    assert received is not None
    deliver = request("deliver", hold=received.hold)
    for _ in range(2):
        bench.inbox.request(deliver, trusted=True)
    bench.inbox.request(request("acknowledged"), trusted=True)
    await settle()
    bench.inbox.stop()
    await bench.commit()
    answers = [NOT_NOW, STOPPED, NOT_TAKEN]
    assert bench.port.answers[1:] == answers, "what was being written, or behind it"
    assert await bench.take(request(msg_id="m2")) == STOPPED
    assert not bench.port.handed
    bench.restart()
    assert await bench.take(deliver) == Answer("result", received.hold)
    assert [record.redelivered for record in bench.port.handed] == [False]
    assert len(list(bench.store.incoming())) == 1


async def test_a_stopped_inbox_confirms_what_it_has_handed_over(bench: Bench) -> None:
    """Else its sender does not know that it has arrived before somebody receives again.

    A message in hand, and one that has ended, are no new work.
    """
    ended = await bench.take(request(msg_id="m2"))
    assert ended is not None
    await bench.take(request("deliver", msg_id="m2", hold=ended.hold))
    received = await bench.take(request())
    assert received is not None
    deliver = request("deliver", hold=received.hold)
    bench.port.until = asyncio.get_running_loop().create_future()
    assert await bench.take(deliver) is None
    assert await bench.take(deliver) is None
    bench.inbox.stop()
    assert await bench.take(deliver) is None
    assert await bench.take(request()) is None
    before = len(bench.port.answers)
    bench.port.until.set_result(None)
    await bench.commit()
    result = Answer("result", received.hold, repeats=False)
    assert bench.port.answers[before:][:3] == [result] * 3
    assert [each.kind for each in bench.port.answers[before + 3 :]] == ["received"]
    assert await bench.take(deliver) == result
    lately = request("deliver", msg_id="m2", hold=ended.hold)
    assert await bench.take(lately) == Answer("result", ended.hold)
    again = await bench.take(request(msg_id="m2"))
    assert again is not None
    assert (again.kind, again.hold) == ("received", ended.hold)
    unmarked = replace(request(msg_id="m3"), mark="")
    assert await bench.take(unmarked) == STOPPED
    assert len(bench.port.handed) == 2


async def test_a_stopped_inbox_refuses_what_waits_for_a_taker(bench: Bench) -> None:
    """Nobody comes any more."""
    received = await bench.take(request())
    assert received is not None
    deliver = request("deliver", hold=received.hold)
    bench.inbox.request(deliver, trusted=True)
    await bench.commit(1)
    bench.port.takes = False
    bench.restart()
    await bench.commit()
    bench.inbox.stop()
    assert await bench.take(deliver) == NOT_NOW
    bench.restart()
    await bench.commit()
    bench.inbox.request(deliver, trusted=True)
    await settle()
    bench.port.takes = True
    bench.clock.advance(10)
    await bench.commit()
    assert bench.port.answers[-1] == Answer("result", received.hold)


async def test_who_is_handed_over_again_is_awaited_until_its_sender_asks(
    bench: Bench,
) -> None:
    """The sender asks when it notices that we are back."""
    received = await bench.take(request())
    assert received is not None
    deliver = request("deliver", hold=received.hold)
    bench.port.until = asyncio.get_running_loop().create_future()
    assert await bench.take(deliver) is None
    bench.port.until = None
    bench.restart()
    await bench.commit()
    assert len(bench.inbox.unasked.keys) == 1
    assert not await bench.inbox.unasked.none(0.0)
    bench.inbox.stop()
    waiting = asyncio.create_task(bench.inbox.unasked.none(3600.0))
    assert await bench.take(deliver) == Answer("result", received.hold)
    assert await waiting
    assert await bench.inbox.unasked.none(3600.0)


async def test_what_is_written_when_the_inbox_has_closed_goes_no_further(
    bench: Bench,
) -> None:
    """The store closes; the next start continues from there."""
    received = await bench.take(request())
    assert received is not None
    bench.inbox.request(request("deliver", hold=received.hold), trusted=True)
    await settle()
    await bench.inbox.aclose()
    await bench.commit()
    assert len(bench.port.answers) == 1
    bench.restart()
    await bench.commit()
    assert [record.redelivered for record in bench.port.handed] == [True]


async def test_a_message_that_nobody_takes_is_held_and_handed_over_when_asked_again(
    bench: Bench,
) -> None:
    """Without a taker there is no confirmation, and no redelivered mark."""
    bench.port.takes = False
    received = await bench.take(request())
    assert received is not None
    deliver = request("deliver", hold=received.hold)
    for _ in range(2):
        assert await bench.take(deliver) == NOT_NOW
    assert [record.state for record in bench.store.incoming()] == [IncomingState.HELD]
    bench.port.takes = True
    assert await bench.take(deliver) == Answer("result", received.hold)
    assert [record.redelivered for record in bench.port.handed] == [False] * 3


async def test_an_acknowledged_message_that_nobody_takes_is_refused_and_forgotten(
    bench: Bench,
) -> None:
    """Its sender sends it again, as a new message."""
    bench.port.takes = False
    assert await bench.take(request("acknowledged")) == NOT_TAKEN
    assert not list(bench.store.incoming())
    assert bench.inbox.used() == (0, 0)


async def test_a_refusal_that_cannot_be_written_leaves_its_sender_in_doubt(
    bench: Bench,
) -> None:
    """A restart may hand over a message that was not taken now."""
    bench.port.takes = False
    bench.inbox.request(request("acknowledged"), trusted=True)
    await settle()
    bench.clock.advance(COMMIT_S)
    bench.store.disk.full = True
    await bench.commit()
    assert bench.port.answers == [UNSURE]


async def in_hand(bench: Bench, kind: Literal["acknowledged", "assured"]) -> Request:
    """Release a message that is being handled when its process dies.

    Returns its `deliver`.
    """
    bench.port.until = asyncio.get_running_loop().create_future()
    answer = await bench.take(request(kind))
    deliver = request("deliver", hold=answer.hold if answer else "")
    if kind == "assured":
        assert await bench.take(deliver) is None
    bench.port.until, bench.port.takes = None, False
    bench.restart()
    await bench.commit()
    return deliver


@pytest.mark.parametrize("kind", ["acknowledged", "assured"])
async def test_what_nobody_takes_after_a_restart_is_handed_over_until_somebody_does(
    bench: Bench, kind: Literal["acknowledged", "assured"]
) -> None:
    """There may be no further request: its sender may have heard that it arrived."""
    await in_hand(bench, kind)
    bench.clock.advance(10.0)
    await bench.commit()
    bench.port.takes = True
    bench.clock.advance(10.0)
    await bench.commit()
    handed = [record.redelivered for record in bench.port.handed]
    assert handed == [False, True, True, True]
    bench.clock.advance(100.0)
    await bench.commit()
    assert len(bench.port.handed) == 4
    assert bench.inbox.used() == (0, 0)


async def test_who_asks_for_what_nobody_takes_after_a_restart_is_answered_at_once(
    bench: Bench,
) -> None:
    """Without waiting for the next attempt."""
    deliver = await in_hand(bench, "assured")
    assert await bench.take(request()) == NOT_NOW
    assert len(bench.port.handed) == 2, "an offer has had its answer"
    assert await bench.take(deliver) == NOT_NOW
    assert len(bench.port.handed) == 3
    bench.port.takes = True
    assert (await bench.take(deliver)) == Answer("result", deliver.hold)
    assert bench.port.handed[-1].redelivered, "the process that died had it in hand"


async def test_a_message_that_is_taken_later_is_answered_then(bench: Bench) -> None:
    """An application that first writes it elsewhere has not taken it before that."""
    bench.port.until = asyncio.get_running_loop().create_future()
    received = await bench.take(request())
    assert received is not None
    deliver = request("deliver", hold=received.hold)
    assert await bench.take(deliver) is None
    assert await bench.take(deliver) is None
    bench.port.until.set_result(None)
    await bench.commit()
    assert bench.port.events[1:] == [
        ("hand over", "m1"),
        ("result", "deliver"),
        ("result", "deliver"),
    ]
    assert [record.state for record in bench.store.incoming()] == [IncomingState.DONE]


async def test_an_acknowledged_message_is_answered_when_it_is_taken(
    bench: Bench,
) -> None:
    """Each request for it, however often it comes meanwhile; it is handed over once."""
    bench.port.until = asyncio.get_running_loop().create_future()
    asked = request("acknowledged")
    for _ in range(3):
        assert await bench.take(asked) is None
    bench.port.until.set_result(None)
    await bench.commit()
    assert bench.port.answers == [Answer("result", repeats=True)] * 3
    assert len(bench.port.handed) == 1
    assert not list(bench.store.incoming())
    assert bench.inbox.used() == (0, 0)


async def test_repeats_that_wait_for_a_write_are_answered_with_the_message(
    bench: Bench,
) -> None:
    """They may all come before the first write is done."""
    for _ in range(3):
        bench.inbox.request(request("acknowledged"), trusted=True)
    await bench.commit()
    assert bench.port.answers == [Answer("result", repeats=True)] * 3
    assert len(bench.port.handed) == 1


async def test_repeats_of_an_acknowledged_message_that_nobody_takes_are_refused(
    bench: Bench,
) -> None:
    """All of them: none was handed over."""
    bench.port.takes = False
    for _ in range(3):
        bench.inbox.request(request("acknowledged"), trusted=True)
    await bench.commit()
    assert bench.port.answers == [NOT_TAKEN] * 3


async def test_repeats_of_an_acknowledged_message_that_cannot_be_written_come_again(
    bench: Bench,
) -> None:
    """It was not handed over, and nothing of it is kept."""
    bench.store.disk.full = True
    for _ in range(2):
        bench.inbox.request(request("acknowledged"), trusted=True)
    await bench.commit()
    kinds = {(each.condition, each.error_type) for each in bench.port.answers}
    assert (len(bench.port.answers), kinds) == (2, {("resource-constraint", "wait")})
    assert not bench.port.handed


async def test_an_acknowledged_message_of_the_text_alone_is_answered_in_hand(
    bench: Bench,
) -> None:
    """Its repeat would be another message, and the proto-XEP answers on receipt."""
    bench.port.until = asyncio.get_running_loop().create_future()
    asked = request("acknowledged", mark="")
    assert await bench.take(asked) == Answer("result", repeats=True)
    assert await bench.take(asked) == Answer("result", repeats=True)
    assert len(bench.port.handed) == 2


async def test_an_acknowledged_message_on_which_its_handler_failed_is_uncertain(
    bench: Bench,
) -> None:
    """It comes again after a restart: so its sender must not hear that it will not."""
    bench.port.until = asyncio.get_running_loop().create_future()
    asked = request("acknowledged")
    assert await bench.take(asked) is None
    bench.port.until.set_exception(OSError("no disk"))
    await bench.commit()
    assert bench.port.answers == [UNSURE]
    assert await bench.take(asked) == UNSURE
    bench.port.until = None
    bench.restart()
    await bench.commit()
    assert [record.redelivered for record in bench.port.handed] == [False, True]
    assert await bench.take(asked) == Answer("result", repeats=True)
    assert len(bench.port.handed) == 2, "a repeat, which is known as one"
    assert [record.state for record in bench.store.incoming()] == [IncomingState.DONE]


async def test_an_acknowledged_message_is_asked_for_after_a_restart(
    bench: Bench,
) -> None:
    """The request that comes then is a repeat, and is answered with the message."""
    await in_hand(bench, "acknowledged")
    bench.port.takes = True
    answer = await bench.take(request("acknowledged"))
    assert answer == Answer("result")
    assert [record.redelivered for record in bench.port.handed] == [False, True, True]
    assert [record.state for record in bench.store.incoming()] == [IncomingState.DONE]


async def test_unwritten_acknowledged_messages_in_hand_fill_the_quota() -> None:
    """They fill memory for as long as the application works on them."""
    quotas = Quotas(messages=2)
    bench = Bench(InboxLimits(quotas, write_acknowledged=False))
    bench.port.until = asyncio.get_running_loop().create_future()
    for number in range(2):
        assert await bench.take(request("acknowledged", msg_id=f"m{number}")) is None
    answer = await bench.take(request("acknowledged", msg_id="m2"))
    assert answer is not None
    assert answer.condition == "resource-constraint"
    bench.port.until.set_result(None)
    await bench.commit()
    assert bench.inbox.used() == (0, 0)


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_a_message_that_could_not_be_taken_comes_again_after_a_restart(
    bench: Bench, how: str
) -> None:
    """Until then each request for it gets one answer: try again."""
    bench.port.until = asyncio.get_running_loop().create_future()
    received = await bench.take(request())
    assert received is not None
    deliver = request("deliver", hold=received.hold)
    for _ in range(2):
        assert await bench.take(deliver) is None
    if how == "fails":
        bench.port.until.set_exception(OSError("no disk"))
    else:
        bench.port.until.cancel()
    await bench.commit()
    assert bench.port.answers[1:] == [NOT_NOW, NOT_NOW]
    assert await bench.take(deliver) == NOT_NOW
    bench.port.until = None
    bench.restart()
    await bench.commit()
    assert [record.redelivered for record in bench.port.handed] == [False, True]
    assert await bench.take(deliver) == Answer("result", received.hold)
