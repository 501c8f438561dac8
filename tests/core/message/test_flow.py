"""The window of messages in flight to one account, and their order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.message.flow import WINDOW_FIRST, Flow
from qos.core.message.model import Level, Outgoing, OutgoingState


def outgoing(
    seq: int, level: Level = Level.ASSURED, *, ordered: bool = False
) -> Outgoing:
    """The seq-th message to one account."""
    return Outgoing(
        msg_id=f"m{seq}",
        seq=seq,
        to="lamp@x/1",
        level=level,
        payload="<message/>",
        size=10,
        created_at=0.0,
        ordered=ordered,
        offer_id=f"o{seq}",
        deliver_id=f"d{seq}",
    )


def filled(flow: Flow) -> Flow:
    """The flow with as many messages in flight as it accepts."""
    for seq in range(flow.in_flight + 1, flow.window + 1):
        flow.begin(outgoing(seq))
    return flow


EVENTS = st.lists(
    st.sampled_from(("begin", "end", "delivered", "constrained", "credited"))
)


@given(st.integers(1, 40), EVENTS)
def test_the_window_never_leaves_one_to_max(window_max: int, events: list[str]) -> None:
    """At 0 nothing would ever be sent again; above the maximum the peer is flooded."""
    flow = Flow(window_max)
    in_flight: list[Outgoing] = []
    for seq, event in enumerate(events):
        record = outgoing(seq)
        if event == "begin" and flow.admits(record):
            flow.begin(record)
            in_flight.append(record)
        elif event == "end" and in_flight:
            flow.end(in_flight.pop(0))
        elif event == "delivered":
            flow.delivered()
        elif event == "constrained":
            flow.constrained()
        elif event == "credited":
            flow.credited(seq)
        assert 1 <= flow.window <= window_max
        assert flow.in_flight == len(in_flight)
        assert flow.room == max(0, flow.window - len(in_flight))
        assert flow.admits(outgoing(-1)) is (flow.room > 0)


def test_the_window_starts_at_what_the_strictest_receivers_take() -> None:
    """Or at the user's maximum, if that is smaller."""
    assert Flow(100).window == WINDOW_FIRST
    assert Flow(3).window == 3


def test_the_window_opens_to_the_credit_that_the_peer_grants() -> None:
    """On a far link each doubling costs two round trips."""
    flow = Flow(100)
    flow.credited(60)
    assert flow.window == 60
    flow.credited(1_000)
    assert flow.window == 100


def test_a_credit_never_narrows_the_window() -> None:
    """The messages in flight fill it, and the peer may hold them already."""
    flow = Flow(100)
    flow.credited(0)
    assert flow.window == WINDOW_FIRST


def test_a_credit_is_ignored_after_a_refusal() -> None:
    """Others may share the same quota, so only trying tells how much is left."""
    flow = filled(Flow(100))
    flow.constrained()
    window = flow.window
    flow.credited(60)
    assert flow.window == window


def test_the_window_doubles_with_each_window_delivered_until_the_first_refusal() -> (
    None
):
    """A fast peer is recognized in a few round trips."""
    flow = Flow(100)
    sizes = []
    for _ in range(4):
        for _ in range(flow.window):
            flow.delivered()
        sizes.append(flow.window)
    assert sizes == [10, 20, 40, 80]


def test_a_refusal_halves_the_window_which_then_grows_by_one_a_window() -> None:
    """Around the peer's limit it must probe gently."""
    flow = Flow(100)
    for _ in range(35):
        flow.delivered()
    flow.constrained()
    assert flow.window == 20
    for _ in range(21):
        flow.delivered()
    assert flow.window == 21


def test_the_refusals_of_one_window_halve_it_once() -> None:
    """They share one cause: a window of five refusals must not halve it five times."""
    flow = filled(Flow(100))
    for _ in range(5):
        flow.constrained()
    assert flow.window == 2


def test_a_refusal_in_a_later_window_halves_it_again() -> None:
    """The peer may have less room than half."""
    flow = filled(Flow(100))
    for _ in range(6):
        flow.constrained()
    assert flow.window == 1


def test_what_is_delivered_of_that_window_is_not_waited_for() -> None:
    """Each of its messages ends in one way or the other."""
    flow = filled(Flow(100))
    flow.constrained()
    for _ in range(4):
        flow.delivered()
    flow.constrained()
    assert flow.window == 1


def test_a_full_window_admits_nothing_until_a_message_ends() -> None:
    """The limit is on the number of messages that the peer must hold."""
    flow = filled(Flow(2))
    assert not flow.admits(outgoing(9))
    flow.end(outgoing(1))
    assert flow.admits(outgoing(9))


def test_a_window_that_has_shrunk_below_what_is_under_way_has_no_room() -> None:
    """The free room must not become negative either."""
    flow = filled(Flow(100))
    flow.constrained()
    assert (flow.in_flight, flow.window, flow.room) == (5, 2, 0)


@pytest.mark.parametrize("ordered", [True, False])
def test_ending_what_was_never_begun_does_nothing(ordered: bool) -> None:
    """A message may be withdrawn, or meet its deadline, before its first attempt."""
    flow = Flow(5)
    flow.end(outgoing(1, ordered=ordered))
    assert flow.in_flight == 0


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_ordered_messages_are_released_in_the_order_of_sending(
    begun: list[int], wanted: list[int]
) -> None:
    """In whatever order `received` comes, or the messages were loaded."""
    flow = Flow(10)
    for _ in range(2):
        flow.delivered()
    records = {seq: outgoing(seq, ordered=True) for seq in begun}
    for record in records.values():
        flow.begin(record)
    released = []
    while records:
        for seq in wanted:
            if seq in records and flow.may_release(records[seq]):
                released.append(seq)
                flow.end(records.pop(seq))
    assert released == sorted(begun)


def test_a_message_without_order_waits_for_nobody() -> None:
    """And nobody waits for it."""
    flow = Flow(10)
    flow.begin(outgoing(1, ordered=True))
    flow.begin(outgoing(2))
    flow.begin(outgoing(3, ordered=True))
    assert flow.may_release(outgoing(2))
    assert not flow.may_release(outgoing(3, ordered=True))
    flow.end(outgoing(1, ordered=True))
    assert flow.may_release(outgoing(3, ordered=True))


@pytest.mark.parametrize(
    ("level", "ordered", "admitted"),
    [
        (Level.ASSURED, True, True),
        (Level.ASSURED, False, True),
        (Level.ACKNOWLEDGED, False, True),
        (Level.ACKNOWLEDGED, True, False),
    ],
)
def test_only_what_is_handed_over_by_its_first_step_waits_for_the_end_of_others(
    level: Level, ordered: bool, admitted: bool
) -> None:
    """An assured message can be offered when those before it are held.

    Not earlier: it could take the room that they need, and wait for them for ever.
    """
    flow = Flow(10)
    flow.begin(outgoing(1, ordered=True))
    assert flow.admits(outgoing(2, level, ordered=ordered)) is not ordered
    flow.update(replace(outgoing(1, ordered=True), state=OutgoingState.RECEIVED))
    assert flow.admits(outgoing(2, level, ordered=ordered)) is admitted
    flow.update(replace(outgoing(1, ordered=True), state=OutgoingState.OFFERED))
    assert flow.admits(outgoing(2, level, ordered=ordered)) is not ordered
    flow.end(outgoing(1, ordered=True))
    assert flow.admits(outgoing(2, level, ordered=ordered))


def test_two_messages_that_differ_in_state_only_are_one() -> None:
    """A record is replaced at every step; the window counts messages."""
    flow = Flow(10)
    record = outgoing(1, ordered=True)
    flow.begin(record)
    flow.end(replace(record, attempts=3))
    assert flow.in_flight == 0


def test_the_flow_of_a_message_is_the_account_it_goes_to() -> None:
    """A receiver counts by account, whichever of its resources is addressed."""
    record = replace(outgoing(1), to="lamp@x/kitchen")
    assert record.flow == "lamp@x"
