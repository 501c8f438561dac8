"""The time that a peer has to answer, and when it counts as silent."""

from __future__ import annotations

from qos.core.message.flow import Pace
from qos.core.message.inquiry import ANSWER_S_MAX, answer_limit_s, is_silent


def test_the_time_for_an_answer_follows_the_round_trips() -> None:
    """After 2 s a peer was given up, and at a round trip of 3 s nothing ever left."""
    pace = Pace(2.0, ANSWER_S_MAX)
    assert answer_limit_s(pace, 2.0, 0) == 2.0
    pace.answered(3.0, 0)
    assert answer_limit_s(pace, 2.0, 0) == 9.0
    for _ in range(50):
        pace.answered(3.0, 0)
    assert 3.0 < answer_limit_s(pace, 2.0, 0) < 3.5


def test_the_time_doubles_with_each_question_without_an_answer() -> None:
    """The link may have become slow, and no answer says so."""
    pace = Pace(2.0, ANSWER_S_MAX)
    limits = [answer_limit_s(pace, 2.0, count) for count in (0, 1, 2, 3, 4, 5, 10**9)]
    assert limits == [2, 4, 8, 16, 32, 60, 60]
    assert answer_limit_s(pace, 90.0, 3) == 90.0, "the user wants to wait that long"


def test_a_resource_is_silent_when_a_repeat_has_no_answer_either() -> None:
    """One stanza may be lost."""
    assert not is_silent(None, 100.0, 2.0)
    assert not is_silent(99.0, 100.0, 2.0)
    assert is_silent(98.0, 100.0, 2.0)
