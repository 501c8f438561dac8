"""Resumed deliveries: the 14 rows of AMQP 1.0 messaging §3.4.6, and what they leave open."""

from typing import TypeAlias

import pytest

from qos.core.amqp.resuming import ABSENT, Absent, Position, Resumption, Step, resume
from qos.core.queue.item import ItemOutcome

ACCEPTED, RELEASED = ItemOutcome.ACCEPTED, ItemOutcome.RELEASED
MODIFIED = ItemOutcome.MODIFIED

State: TypeAlias = ItemOutcome | Position | None

ROWS: dict[int, tuple[State, State | Absent, Resumption]] = {
    1: (None, ABSENT, Resumption(Step.SEND)),
    2: (None, Position(3, 0), Resumption(Step.RESUME, at=Position(3, 0))),
    3: (None, ACCEPTED, Resumption(Step.RESTATE, outcome=ACCEPTED, settled=True)),
    4: (None, None, Resumption(Step.RESUME, at=Position(0, 0))),
    5: (Position(0, 200), ABSENT, Resumption(Step.SEND_OR_REPORT)),
    6: (
        Position(1, 150),
        Position(2, 0),
        Resumption(Step.RESUME, at=Position(2, 0)),
    ),
    7: (Position(0, 500), Position(0, 100), Resumption(Step.ABORT_AND_SEND)),
    8: (
        Position(3, 5),
        ACCEPTED,
        Resumption(Step.RESTATE, outcome=ACCEPTED, settled=True),
    ),
    9: (Position(2, 0), None, Resumption(Step.ABORT_AND_SEND)),
    10: (ACCEPTED, ABSENT, Resumption(Step.NOTHING)),
    11: (ACCEPTED, Position(1, 2000), Resumption(Step.ABORT)),
    12: (ACCEPTED, ACCEPTED, Resumption(Step.RESTATE, outcome=ACCEPTED, settled=True)),
    13: (ACCEPTED, RELEASED, Resumption(Step.RESTATE, outcome=ACCEPTED)),
    14: (ACCEPTED, None, Resumption(Step.ABORT)),
}


@pytest.mark.parametrize("row", ROWS)
def test_each_row_of_the_standard_has_its_step(row: int) -> None:
    sender, receiver, step = ROWS[row]
    assert resume(sender, receiver) == step


def test_there_are_fourteen_rows() -> None:
    assert list(ROWS) == list(range(1, 15))


@pytest.mark.parametrize("sender", [None, Position(3, 5)])
def test_an_outcome_that_could_not_be_applied_is_replaced_by_the_one_that_was(
    sender: Position | None,
) -> None:
    """The lock had ended when the receiver told: it must learn that, and settle itself."""
    step = resume(sender, ACCEPTED, applied=MODIFIED)
    assert step == Resumption(Step.RESTATE, outcome=MODIFIED, settled=False)


STATES: list[State] = [
    None,
    *(Position(section, offset) for section in range(3) for offset in (0, 1, 200)),
    *ItemOutcome,
]


@pytest.mark.parametrize("receiver", [ABSENT, *STATES])
@pytest.mark.parametrize("sender", STATES)
def test_any_two_states_have_a_step_that_loses_nothing(
    sender: ItemOutcome | Position | None,
    receiver: ItemOutcome | Position | Absent | None,
) -> None:
    """Missing data is sent, or reported as lost; an outcome at the sender is final."""
    done = resume(sender, receiver)
    if isinstance(receiver, ItemOutcome):
        assert done.step is Step.RESTATE
        assert done.settled == (done.outcome is receiver)
        assert not isinstance(sender, ItemOutcome) or done.outcome is sender
    elif isinstance(sender, ItemOutcome):
        assert done.step in {Step.NOTHING, Step.ABORT}
    elif done.step is Step.RESUME:
        begin = sender or Position(0, 0)
        assert done.at is not None
        assert (done.at.section, done.at.offset) >= (begin.section, begin.offset)
        assert done.at == (receiver or Position(0, 0))
    else:
        assert done.step in {Step.SEND, Step.SEND_OR_REPORT, Step.ABORT_AND_SEND}
