"""Batches: which requests share an iq, when it is sent, and how it is answered."""

from __future__ import annotations

import math
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.message.batch import Answers, BatchQueue, Element, for_each
from qos.core.message.effects import Transmit
from qos.core.message.model import Level, Outgoing, Route
from qos.core.message.sender_table import Reply

PATIENCE_S = 0.25


def element(number: int, size: int = 10) -> Element:
    """The number-th request, of this many bytes."""
    return request(f"r{number}", "x" * size)


def request(iq_id: str, text: str) -> Element:
    record = Outgoing(
        msg_id="m",
        seq=1,
        to="lamp@x/1",
        level=Level.ASSURED,
        payload="",
        size=0,
        created_at=0.0,
        offer_id=iq_id,
        deliver_id="d",
    )
    transmit = Transmit("offer", record, Route(record.to))
    return Element(iq_id, transmit, lambda _: text)


def loads(*, count_max: int = 4, bytes_max: int = 1_000) -> BatchQueue:
    return BatchQueue(count_max=count_max, bytes_max=bytes_max, patience_s=PATIENCE_S)


def gathered(gathering: BatchQueue, numbers: range, size: int = 10) -> BatchQueue:
    for number in numbers:
        gathering.add(element(number, size))
    return gathering


def ids(load: tuple[Element, ...]) -> list[str]:
    return [each.iq_id for each in load]


def busy(gathering: BatchQueue, *, at: float = 0.0) -> BatchQueue:
    """As many stanzas are unanswered as is allowed.

    The second was sent a little later.
    """
    gathering.sent("b1", (), at)
    gathering.sent("b2", (), at + 0.1)
    return gathering


def test_a_request_is_rendered_once_and_not_before_it_is_needed() -> None:
    """A request that is sent alone has no text in a batch."""
    rendered: list[Transmit] = []

    def render(transmit: Transmit) -> str:
        rendered.append(transmit)
        return "<assured/>é"

    transmit = element(1).transmit
    measured = Element("r1", transmit, render)
    assert not rendered
    assert measured.size == len("<assured/>é".encode())
    assert measured.text == measured.text == "<assured/>é"
    assert measured.size == len(measured.text.encode())
    assert rendered == [transmit]


def test_nothing_gathered_is_nothing_to_send() -> None:
    """An empty batch would be refused."""
    gathering = loads()
    assert gathering.idle
    assert gathering.take(0.0) == ()
    assert gathering.next_at() == math.inf


def test_what_has_gathered_on_an_idle_link_goes_at_once_and_together() -> None:
    """No added delay when idle."""
    gathering = gathered(loads(), range(3))
    assert not gathering.idle
    assert ids(gathering.take(0.0)) == ["r0", "r1", "r2"]
    assert gathering.idle
    assert gathering.take(0.0) == ()


def test_one_under_way_leaves_room_for_another() -> None:
    """While the peer works on one stanza, the next is on its way."""
    gathering = loads()
    gathering.sent("b1", (), 0.0)
    gathered(gathering, range(1))
    assert ids(gathering.take(0.0)) == ["r0"]


def test_on_a_busy_link_what_comes_waits_for_an_answer() -> None:
    """The answers are the clock: this is what fills a batch."""
    gathering = gathered(busy(loads()), range(2))
    assert gathering.take(0.1) == ()
    gathering.add(element(2))
    assert gathering.answered("b1") == ()
    assert ids(gathering.take(0.1)) == ["r0", "r1", "r2"]


def test_what_fills_a_stanza_goes_whatever_is_unanswered() -> None:
    """Waiting would gain nothing, so a link with a long delay is not slowed down."""
    gathering = gathered(busy(loads()), range(5))
    assert ids(gathering.take(0.1)) == ["r0", "r1", "r2", "r3"]
    assert gathering.take(0.1) == ()
    gathered(gathering, range(5, 7), 600)
    assert ids(gathering.take(0.1)) == ["r4", "r5"]
    assert gathering.take(0.1) == ()


def test_what_waits_can_be_dropped_and_the_answers_still_come() -> None:
    """When the connection is lost: what was written may be answered, the rest not."""
    under_way = gathered(loads(), range(1))
    under_way.sent("b1", under_way.take(0.0), 0.0)
    under_way.sent("b2", (), 0.0)
    assert not gathered(under_way, range(1, 4)).take(0.0)
    assert under_way.drop() == ["r1", "r2", "r3"]
    assert under_way.drop() == []
    assert under_way.take(PATIENCE_S) == ()
    assert under_way.answered("b1") == ("r0",)


def test_an_unanswered_stanza_keeps_others_waiting_for_a_while_only() -> None:
    """A peer that never answers must not block its later messages."""
    gathering = gathered(busy(loads()), range(1))
    assert gathering.next_at() == PATIENCE_S
    assert gathering.take(PATIENCE_S - 0.01) == ()
    assert ids(gathering.take(PATIENCE_S)) == ["r0"]
    assert gathering.next_at() == math.inf


def test_a_load_has_no_more_bytes_than_it_may_but_for_a_single_request() -> None:
    """A server closes the stream at its limit. A single request cannot be divided."""
    gathering = gathered(loads(bytes_max=25), range(3))
    gathering.add(element(3, 100))
    gathering.add(request("r4", "é" * 9))
    gathering.add(element(5))
    found = []
    while load := gathering.take(0.0):
        found.append(ids(load))
    assert found == [["r0", "r1"], ["r2"], ["r3"], ["r4"], ["r5"]]


def test_an_answer_gives_the_ids_that_were_sent_once() -> None:
    """A second answer, or an answer to no request, has no effect."""
    gathering = loads()
    gathering.sent("b1", (element(1), element(2)), 0.0)
    assert not gathering.idle
    assert gathering.answered("b1") == ("r1", "r2")
    assert gathering.answered("b1") == ()
    assert gathering.idle


def test_a_peer_that_never_answers_costs_a_bounded_memory() -> None:
    """A request that was forgotten is repeated anyway."""
    gathering = loads()
    forgotten = [gathering.sent(f"b{number}", (), 0.0) for number in range(66)]
    assert forgotten == [None] * 64 + ["b0", "b1"]
    assert gathering.answered("b0") == ()


STEPS = st.lists(
    st.one_of(
        st.integers(1, 400).map(lambda size: ("add", size)),
        st.just(("answer", 0)),
        st.integers(1, 30).map(lambda hundredths: ("wait", hundredths)),
    ),
    max_size=60,
)


@given(steps=STEPS, count_max=st.integers(2, 6))
def test_each_request_is_sent_once_in_order_within_its_patience(
    steps: list[tuple[str, int]], count_max: int
) -> None:
    """Whatever is answered, no request is lost, doubled, stuck, or too large."""
    gathering = loads(count_max=count_max, bytes_max=500)
    now, numbers, stanzas = 0.0, count(), count()
    added: list[tuple[Element, float]] = []
    sent: list[Element] = []
    unanswered: list[str] = []

    def flush() -> None:
        while load := gathering.take(now):
            assert len(load) <= count_max
            assert len(load) == 1 or sum(each.size for each in load) <= 500
            iq_id = f"b{next(stanzas)}"
            gathering.sent(iq_id, load, now)
            unanswered.append(iq_id)
            sent.extend(load)

    for step, value in [*steps, ("wait", 1_000)]:
        if step == "add":
            added.append((element(next(numbers), value), now))
            gathering.add(added[-1][0])
        elif step == "answer" and unanswered:
            gathering.answered(unanswered.pop())
        elif step == "wait":
            until = now + value / 100
            while gathering.next_at() <= until:
                now = gathering.next_at()
                flush()
            now = until
        flush()
        for each, at in added[len(sent) :]:
            assert now - at < PATIENCE_S, each
    assert sent == [each for each, _ in added]


@pytest.mark.parametrize(
    ("error", "counts_as"),
    [
        ("service-unavailable", "service-unavailable"),
        ("resource-constraint", "resource-constraint"),
        ("not-allowed", "not-allowed"),
        # In its second step an error would end a message, but this error is not about
        # one.
        ("bad-request", "undefined-condition"),
    ],
)
def test_an_error_for_a_batch_ends_no_message(error: str, counts_as: str) -> None:
    """It may concern the whole batch.

    Each request is repeated alone, with its own answer.
    """
    reply = Reply("b1", "lamp@x/1", error=error, error_type="cancel")
    assert list(for_each(reply, ["r1", "r2"])) == [
        Reply(iq_id, "lamp@x/1", error=counts_as, error_type="wait")
        for iq_id in ("r1", "r2")
    ]


def test_answers_go_out_together_when_all_are_there() -> None:
    """All answers share one stanza."""
    answers = Answers(2)
    assert answers.take() == ()
    assert answers.add("a")
    assert answers.take() == ()
    assert answers.missing == 1
    assert answers.add("b")
    assert answers.take() == ("a", "b")
    assert answers.take() == ()


def test_a_late_answer_does_not_hold_up_the_others() -> None:
    """A slow application delays its own message only."""
    answers = Answers(3)
    assert answers.add("a")
    answers.waited()
    assert answers.take() == ("a",)
    assert not answers.add("b")
    assert answers.take() == ()


def test_with_no_answer_in_time_the_first_goes_when_it_comes() -> None:
    """An empty answer would cost a stanza and carry nothing."""
    answers = Answers(2)
    answers.waited()
    assert answers.take() == ()
    assert answers.add("a")
    assert answers.take() == ("a",)


def test_answers_that_would_make_the_stanza_too_long_go_alone() -> None:
    """Answers repeat text that the peer chose.

    It must not make us break our own stream.
    """
    answers = Answers(3, bytes_max=10)
    assert answers.add("é" * 4)
    assert not answers.add("long")
    assert answers.add("xx")
    assert answers.take() == ("é" * 4, "xx")
