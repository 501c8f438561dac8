"""The texts of errors of a message.

They describe the problem, and the action to take.
"""

import pytest

from qos.core.message.model import Level, OutgoingState
from qos.engine import Outcome
from qos.errors import InDoubt, NotDelivered, RequestRefused, why_not_delivered
from qos.testing.store_records import outgoing

LAMP = "lamp@example.org"
DEVICE = "lamp@example.org/1"


@pytest.mark.parametrize(
    ("to", "attempts", "condition", "by", "text", "says"),
    [
        (
            LAMP,
            0,
            None,
            None,
            None,
            "no resource of lamp@example.org with QoS is known",
        ),
        (LAMP, 0, None, None, None, "is there a presence subscription"),
        (DEVICE, 0, None, None, None, "nothing was sent: there was no session"),
        (DEVICE, 3, None, None, None, "no answer in time"),
        (
            DEVICE,
            1,
            "not-allowed",
            DEVICE,
            None,
            "not-allowed, said lamp@example.org/1",
        ),
        (DEVICE, 1, "not-allowed", DEVICE, None, "(--trust)"),
        (DEVICE, 1, "not-allowed", DEVICE, None, "add the account to its roster"),
        (
            DEVICE,
            1,
            "service-unavailable",
            DEVICE,
            None,
            "answered for lamp@example.org/1: it is not online, or does not support QoS",
        ),
        (DEVICE, 1, "recipient-unavailable", None, "gone", "lamp@example.org/1 (gone)"),
        (DEVICE, 1, "feature-not-implemented", DEVICE, None, "it does not support QoS"),
        (DEVICE, 2, "conflict", DEVICE, "id in use", f"said {DEVICE} (id in use)"),
        (DEVICE, 2, "conflict", None, None, "conflict"),
    ],
)
def test_a_reason_says_what_happened_who_said_so_and_what_to_do(
    to: str,
    attempts: int,
    condition: str | None,
    by: str | None,
    text: str | None,
    says: str,
) -> None:
    """A reader has no other information."""
    reason = why_not_delivered(
        to=to, attempts=attempts, condition=condition, by=by, text=text
    )
    assert says in reason
    if condition == "service-unavailable":
        assert "said" not in reason, "a server answers from the JID of an absent device"


@pytest.mark.parametrize(
    ("status", "error"),
    [(OutgoingState.NOT_DELIVERED, NotDelivered), (OutgoingState.IN_DOUBT, InDoubt)],
)
def test_an_outcome_and_its_error_give_the_same_reason(
    status: OutgoingState, error: type[NotDelivered | InDoubt]
) -> None:
    """A command prints the one, a program catches the other."""
    outcome = Outcome(
        status=status,
        msg_id="m1",
        to=DEVICE,
        level=Level.ASSURED,
        attempts=2,
        seconds=1.0,
        condition="conflict",
        by=DEVICE,
        text="id in use",
    )
    with pytest.raises(error) as caught:
        outcome.raise_for_status()
    assert str(caught.value).endswith(f"after 2 attempts: {outcome.reason}")
    assert caught.value.text == "id in use"


def test_a_message_never_took_less_than_no_time() -> None:
    """The clock may be set back between its acceptance and its end."""
    ended = outgoing(1, state=OutgoingState.DELIVERED)
    assert Outcome.of(ended, -3.0).seconds == 0.0
    assert Outcome.of(ended, 3.0).seconds == 3.0


@pytest.mark.parametrize(("type_", "temporary"), [("wait", True), ("cancel", False)])
def test_a_refusal_says_whether_a_repeat_may_succeed(
    type_: str, temporary: bool
) -> None:
    """By the type of its error (RFC 6120 §8.3.2)."""
    error = RequestRefused(
        "resource-constraint",
        to="queue.example.org",
        what="publish",
        type=type_,
        by="queue.example.org",
    )
    assert error.is_temporary is temporary
