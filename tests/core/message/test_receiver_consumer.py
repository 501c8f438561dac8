"""The receiver's machine with a consumer that takes the message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qos.core.message.effects import (
    Answer,
    Consume,
    Deliver,
    Forget,
    Refund,
    Retry,
    Save,
)
from qos.core.message.model import Incoming, Level
from qos.core.message.model import IncomingState as S
from qos.core.message.receiver import key_of, step
from qos.core.message.receiver_table import At, Request
from qos.core.message.receiver_table import ReceiverInput as I

NOW, LATER = 1_000.0, 1_007.0
MAX = 3

DELIVER = Request(
    kind="deliver",
    iq_id="iq-1",
    source="door@example.org/a",
    to="lamp@example.org/1",
    namespace="urn:xmpp:qos",
    msg_id="m1",
    mark="store-1",
    hold="h1",
)


def releasing(handovers: int = 1, *, mark: str = "store-1") -> Incoming:
    """A message that has been handed over this many times."""
    return Incoming(
        key=key_of(replace(DELIVER, mark=mark)),
        msg_id="m1",
        source=DELIVER.source,
        to=DELIVER.to,
        level=Level.ASSURED,
        payload="<message/>",
        size=10,
        received_at=500.0,
        changed_at=500.0,
        state=S.RELEASING,
        mark=mark,
        hold="h1",
        handovers=handovers,
    )


def at(handovers_max: int = MAX) -> At:
    """The circumstances."""
    return At(NOW, handovers_max=handovers_max, retry_at=LATER)


@pytest.mark.parametrize("mark", ["store-1", ""])
@pytest.mark.parametrize("asked", [True, False])
def test_what_a_consumer_did_is_on_disk_before_the_sender_is_told(
    asked: bool, mark: str
) -> None:
    """Otherwise a process could die after the answer, without the consumer's writes."""
    record = releasing(mark=mark)
    deliver = replace(DELIVER, mark=mark) if asked else None
    after, effects = step(record, I.CONSUMED, at(), deliver)
    told = (Answer("result", "h1"),) if asked else ()
    if mark:
        assert after == replace(record, state=S.DONE, payload="", changed_at=NOW)
        assert effects == (Save(after), *told, Refund(record))
    else:
        assert after is None
        assert effects == (Forget(record), *told, Refund(record))


def test_a_hand_over_that_failed_is_tried_again_later() -> None:
    """Its payload and its place stay; only time must pass."""
    after, effects = step(releasing(MAX - 1), I.FAILED, at())
    assert after == releasing(MAX - 1)
    assert effects == (Retry(LATER),)


@pytest.mark.parametrize("before", [0, 1])
def test_each_hand_over_is_counted_on_disk_before_it_begins(before: int) -> None:
    """Otherwise a message that kills its process would do so for ever."""
    record = releasing(before)
    after, effects = step(record, I.CONSUME, at())
    assert after == replace(record, handovers=before + 1, redelivered=before > 0)
    assert effects == (Save(after), Consume(after))


def test_neither_its_release_nor_a_restart_counts_as_a_hand_over() -> None:
    """It may wait behind another message, and must not be parked for that one's
    failures.
    """
    held = replace(releasing(0), state=S.HELD)
    after, _ = step(held, I.DELIVER, at(), DELIVER)
    assert after is not None
    after, effects = step(after, I.RESTART, at())
    assert after is not None
    assert after.handovers == 0
    assert effects == (Deliver(after),)


def test_its_place_among_the_others_is_that_of_its_release() -> None:
    """`changed_at` orders them after a restart: a retry must not move it back."""
    after, _ = step(releasing(1), I.CONSUME, at())
    assert after is not None
    assert after.changed_at == releasing(1).changed_at


@pytest.mark.parametrize("input_", [I.FAILED, I.CONSUME])
def test_it_is_parked_after_so_many_hand_overs(input_: I) -> None:
    """It is not handed over again, even after a crash in the last hand-over."""
    record = releasing(MAX)
    after, effects = step(record, input_, at())
    assert after == replace(record, state=S.PARKED, changed_at=NOW)
    assert effects == (Save(after),)


@pytest.mark.parametrize("before", [0, MAX - 1])
def test_a_loop_counts_each_hand_over_but_the_first(before: int) -> None:
    """A message that is well costs no write; one that kills its process is counted."""
    first = replace(releasing(before), redelivered=False)
    assert step(first, I.BEGIN, at(0)) == (first, ())
    again = replace(first, redelivered=True)
    after, effects = step(again, I.BEGIN, at())
    assert after == replace(again, handovers=before + 1)
    assert effects == (Save(after),)


@pytest.mark.parametrize("level", [Level.ACKNOWLEDGED, Level.ASSURED])
def test_a_loop_parks_a_message_too(level: Level) -> None:
    record = replace(releasing(MAX), redelivered=True, level=level)
    after, effects = step(record, I.BEGIN, at())
    assert after == replace(record, state=S.PARKED, changed_at=NOW)
    assert effects == (Save(after),)


def parked() -> Incoming:
    """A message on which a consumer has failed too often."""
    record, _ = step(releasing(MAX), I.FAILED, at())
    assert record is not None
    return record


def test_a_parked_message_is_released_as_if_it_were_new() -> None:
    """An operator who has repaired the consumer wants all attempts again."""
    after, effects = step(parked(), I.RELEASE, at())
    assert after is not None
    assert (after.state, after.handovers) == (S.RELEASING, 0)
    assert after.redelivered
    assert effects == (Save(after), Deliver(after))
    after, effects = step(after, I.CONSUME, at(1))
    assert after is not None
    assert after.redelivered, "it was handed over before it was parked"
    assert effects == (Save(after), Consume(after))


@pytest.mark.parametrize("state", [S.HELD, S.PARKED])
def test_a_message_that_is_dropped_leaves_a_memory_and_gives_its_room_back(
    state: S,
) -> None:
    """Its sender still asks.

    It must neither hear "delivered" nor get the message in again.
    """
    record = replace(parked(), state=state)
    dropped, effects = step(record, I.DROP, at())
    assert dropped == replace(record, state=S.DROPPED, payload="", changed_at=NOW)
    assert effects == (Refund(record), Save(dropped))

    _, effects = step(dropped, I.DELIVER, at(), DELIVER)
    assert effects[0] == Answer("error", "h1", "item-not-found", "cancel")
    offer = replace(DELIVER, kind="assured", hold="", payload="<message/>", size=10)
    again, effects = step(dropped, I.ASSURED, at(), offer)
    assert again == dropped, "offered again, it would be handed over again"
    assert effects[0] == Answer("error", "", "not-allowed", "cancel")
