"""The progress of a request to a push target, as a table of all stages and steps."""

import pytest

from qos.core.rest.forwarding import NoReply, PushReply
from qos.core.rest.push_progress import TRANSITIONS, Progress, Stage, Step, end_of

URL = "https://foo.example/in"


def after(*steps: Step | int) -> Progress:
    """The progress after these steps; a number is a status line."""
    found = Progress()
    for step in steps:
        found = found.answered(step) if isinstance(step, int) else found.then(step)
    return found


def ended(*steps: Step | int) -> PushReply | NoReply:
    return end_of(after(*steps), URL, "cut", headers=None)


def test_until_its_first_byte_has_left_a_request_is_unsent() -> None:
    """A SYN that is dropped, a name without an address, a hand-shake that stays mute."""
    for steps in ((), (Step.CUT,)):
        assert ended(*steps) == NoReply("cut", unsent=True)


def test_between_the_first_byte_and_the_status_nobody_knows() -> None:
    for steps in (
        (Step.CONNECTS,),
        (Step.CONNECTS, Step.CUT),
        (Step.REUSES,),
        (Step.REUSES, Step.CUT),
    ):
        assert ended(*steps) == NoReply("cut")


@pytest.mark.parametrize("takes", [Step.CONNECTS, Step.REUSES])
def test_from_the_status_line_on_a_request_is_decided(takes: Step) -> None:
    """A cut after it, or a second status line, changes nothing."""
    for more in ((), (Step.CUT,), (500,), (Step.CUT, Step.CUT)):
        found = after(takes, 200, *more)
        assert found == Progress(Stage.ANSWERED, 200)
        reply = end_of(found, URL, "cut", headers=None)
        assert reply == PushReply(URL, 200, {}, whole=False)
        headers = {"link": "</1>"}
        reply = end_of(found, URL, "cut", headers=headers)
        assert reply == PushReply(URL, 200, headers)


def test_a_kept_connection_that_ends_before_the_status_is_replaced_once() -> None:
    assert after(Step.REUSES, Step.CUT).stage is Stage.AGAIN
    # A new one is not.
    assert after(Step.CONNECTS, Step.CUT).stage is Stage.SENT
    again = (Step.REUSES, Step.CUT, Step.CONNECTS)
    assert ended(*again, 200) == PushReply(URL, 200, {}, whole=False)
    assert after(*again, Step.CUT).stage is Stage.SENT


def test_without_a_new_connection_the_outcome_of_the_kept_one_stays_unknown() -> None:
    assert ended(Step.REUSES, Step.CUT, Step.CUT) == NoReply("cut")


def test_a_target_that_waited_for_a_request_has_not_had_this_one() -> None:
    """408 on a kept connection; on a new one it is an answer like any other."""
    assert after(Step.REUSES, 408) == Progress(Stage.AGAIN)
    assert after(Step.CONNECTS, 408) == Progress(Stage.ANSWERED, 408)
    again = (Step.REUSES, 408, Step.CONNECTS)
    assert after(*again, 408) == Progress(Stage.ANSWERED, 408)


def test_a_status_line_that_no_request_has_asked_for_means_nothing() -> None:
    assert after(200) == Progress()
    assert after(Step.REUSES, Step.CUT, 200) == Progress(Stage.AGAIN)


def test_no_other_step_is_possible() -> None:
    """A request is taken by a connection before it is answered, and only once by each."""
    missing = {(stage, step) for stage in Stage for step in Step} - set(TRANSITIONS)
    assert missing == {
        (Stage.UNSENT, Step.STALE),
        (Stage.UNSENT, Step.STATUS),
        (Stage.AGAIN, Step.REUSES),
        (Stage.AGAIN, Step.STALE),
        (Stage.AGAIN, Step.STATUS),
        *(
            (stage, step)
            for stage in (Stage.ON_KEPT, Stage.SENT, Stage.ANSWERED)
            for step in (Step.CONNECTS, Step.REUSES)
        ),
        (Stage.ANSWERED, Step.STALE),
        (Stage.ANSWERED, Step.STATUS),
    }
