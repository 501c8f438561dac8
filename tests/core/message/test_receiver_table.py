"""The receiver's machine: every state, every input, every kind of sender."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.message.effects import (
    Answer,
    Defer,
    Deliver,
    Effect,
    Refund,
    Reserve,
    Retry,
    Save,
)
from qos.core.message.effects import Forget as ForgetEffect
from qos.core.message.effects import Report as ReportEffect
from qos.core.message.model import Incoming, Level, Rejection
from qos.core.message.model import IncomingState as S
from qos.core.message.receiver import NOT_NOW, UNSURE, begins, key_of, not_now, step
from qos.core.message.receiver_table import TRANSITIONS, At, Request, classify
from qos.core.message.receiver_table import ReceiverInput as I

SOURCE = "door@example.org/a"
OWN = "lamp@example.org/1"
NAMESPACE = "urn:xmpp:qos"
HOLD = "h1"
NOW = 1_000.0
HOLDS = {"right": HOLD, "wrong": "h2", "absent": ""}
MARKS = {"marked": "store-1", "unmarked": ""}
#: The end of a message at level acknowledged.
TAKEN = Answer("result", repeats=True)

WHY = Rejection("conflict", "cancel", "another item has this id")
QUOTAS = ("messages", "bytes", "total_messages", "total_bytes")


def request(kind: str, mark: str = "store-1", hold: str = "") -> Request:
    """A request as it comes from the wire."""
    plain = Request(
        kind="deliver",
        iq_id="iq-1",
        source=SOURCE,
        to=OWN,
        namespace=NAMESPACE,
        msg_id="m1",
        mark=mark,
        hold=hold,
    )
    if kind == "deliver":
        return plain
    if kind == "assured":
        return replace(plain, kind="assured", payload="<message/>", size=10, hold="")
    return replace(
        plain, kind="acknowledged", payload="<message/>", size=10, msg_id="", hold=""
    )


def incoming(state: S, mark: str = "store-1") -> Incoming | None:
    """A message in a state; None: there is no message."""
    if state is S.ABSENT:
        return None
    return Incoming(
        key=key_of(request("assured", mark)),
        msg_id="m1",
        source=SOURCE,
        to=OWN,
        level=Level.ASSURED,
        payload="" if state.ended else "<message/>",
        size=10,
        received_at=500.0,
        changed_at=500.0,
        state=state,
        mark=mark,
        hold=HOLD,
        rejection=WHY.to_text() if state is S.REJECTED else "",
    )


def at(trusted: bool = True, exceeded: str | None = None, written: bool = True) -> At:
    """The circumstances under which an input comes."""
    return At(
        now=NOW,
        token="fresh",  # noqa: S106
        trusted=trusted,
        why="because",
        exceeded=exceeded,
        written=written,
    )


def names(effects: tuple[Effect, ...]) -> tuple[str, ...]:
    """The effects in words."""
    words = []
    for effect in effects:
        word = type(effect).__name__
        if isinstance(effect, Answer):
            word = effect.condition or effect.kind
        words.append(word)
    return tuple(words)


SETTLED = [state for state in S if state is not S.RELEASING]

NEXT = {
    (S.ABSENT, I.ACKNOWLEDGED): S.RELEASING,
    **{(state, I.ASSURED): S.HELD for state in (S.ABSENT, S.EXPIRED, S.DROPPED)},
    **{(s, I.REPEATED): s for s in (S.HELD, S.PARKED, S.DONE, S.REJECTED)},
    **{(state, I.SEND_AGAIN): state for state in (S.ABSENT, S.EXPIRED, S.DROPPED)},
    **{(state, I.REFUSED): state for state in SETTLED},
    (S.HELD, I.DELIVER): S.RELEASING,
    **{(state, I.DELIVER): state for state in (S.PARKED, S.DONE, S.REJECTED)},
    **{(state, I.UNKNOWN): state for state in SETTLED},
    (S.RELEASING, I.BUSY): S.RELEASING,
    (S.RELEASING, I.IN_HAND): S.RELEASING,
    (S.RELEASING, I.BEGIN): S.RELEASING,
    (S.RELEASING, I.HANDED_OVER): S.DONE,
    (S.RELEASING, I.HANDED_OVER_UNMARKED): S.ABSENT,
    (S.RELEASING, I.NOT_TAKEN): S.HELD,
    (S.RELEASING, I.NOT_TAKEN_ACKNOWLEDGED): S.ABSENT,
    (S.RELEASING, I.NOT_TAKEN_UNASKED): S.RELEASING,
    (S.RELEASING, I.RESTART): S.RELEASING,
    (S.RELEASING, I.REJECTED): S.REJECTED,
    (S.RELEASING, I.CONSUME): S.RELEASING,
    (S.RELEASING, I.CONSUMED): S.DONE,
    (S.RELEASING, I.CONSUMED_UNMARKED): S.ABSENT,
    (S.RELEASING, I.FAILED): S.RELEASING,
    (S.RELEASING, I.FAILED_TOO_OFTEN): S.PARKED,
    (S.PARKED, I.RELEASE): S.RELEASING,
    (S.HELD, I.DROP): S.DROPPED,
    (S.PARKED, I.DROP): S.DROPPED,
    (S.RELEASING, I.DROP_FORCED): S.DROPPED,
    (S.HELD, I.EXPIRE): S.EXPIRED,
    (S.DONE, I.FORGET): S.ABSENT,
    (S.EXPIRED, I.FORGET): S.ABSENT,
    (S.DROPPED, I.FORGET): S.ABSENT,
    (S.REJECTED, I.FORGET): S.ABSENT,
}


def test_the_table_has_these_rows_and_no_others() -> None:
    """A row without a test is a behaviour that nobody decided."""
    assert NEXT == TRANSITIONS


KINDS = {I.ACKNOWLEDGED: "acknowledged", I.ASSURED: "assured", I.DELIVER: "deliver"}

#: The inputs from the engine; the machine derives the others.
GIVEN = [
    *KINDS,
    *(I.IN_HAND, I.BEGIN, I.HANDED_OVER, I.NOT_TAKEN, I.CONSUME, I.CONSUMED),
    I.REJECTED,
    *(I.FAILED, I.RELEASE, I.DROP, I.DROP_FORCED, I.RESTART, I.EXPIRE, I.FORGET),
]


def situations(
    state: S, input_: I
) -> Iterator[tuple[Incoming | None, At, Request | None]]:
    """Everything that a step may depend on.

    The message, the circumstances and the request.
    """
    for trusted, exceeded, written, mark, hold, level, handovers, whole in product(
        (True, False),
        (None, "bytes"),
        (True, False),
        MARKS,
        HOLDS,
        Level,
        (0, 3),
        (0, 1),
    ):
        record = incoming(state, MARKS[mark])
        if record is not None:
            record = replace(record, level=level, handovers=handovers)
        given_ = at(trusted, exceeded, written)._replace(handovers_max=3, rejection=WHY)
        asked = request(KINDS.get(input_, "deliver"), MARKS[mark], HOLDS[hold])
        yield record, given_, asked if whole else asked.waiting()
        if input_ not in KINDS:
            yield record, given_, None


@pytest.mark.parametrize(("state", "input_"), [*product(S, GIVEN)])
def test_each_step_goes_where_the_table_says(state: S, input_: I) -> None:
    """Whatever the circumstances, only the table decides."""
    for record, given_, asked in situations(state, input_):
        pair = (state, classify(record, input_, given_, asked))
        after, effects = step(record, input_, given_, asked)
        if pair in NEXT:
            assert (after.state if after else S.ABSENT) is NEXT[pair], pair
        else:
            assert (after, effects) == (record, ()), pair


def test_each_row_of_the_table_is_met() -> None:
    """A row that nothing leads to would be dead code."""
    met = {
        (state, classify(record, input_, given_, asked))
        for state, input_ in product(S, GIVEN)
        for record, given_, asked in situations(state, input_)
    }
    assert met >= NEXT.keys()


# --- assured -----------------------------------------------------------------


def _assured(
    state: S, *, marked: bool, trusted: bool, exceeded: str | None
) -> tuple[S, tuple[str, ...]]:
    """docs/design/protocol.md §3.2: the order of the rules for `assured`."""
    if state is S.RELEASING:
        return state, ("Defer",)  # 3, "just being released"
    if not trusted or (state is S.DROPPED and marked):
        return state, ("not-allowed", "Report")  # 2
    if state in {S.HELD, S.PARKED, S.DONE, S.REJECTED}:
        return state, ("received",)  # 3 and 4
    if exceeded:
        return state, ("resource-constraint", "Report")  # 5
    return S.HELD, ("Reserve", "Save", "received")  # 6


@pytest.mark.parametrize("exceeded", [None, *QUOTAS])
@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("state", S)
def test_assured_follows_the_order_of_the_rules(
    state: S, mark: str, trusted: bool, exceeded: str | None
) -> None:
    """The order decides what a stranger learns and what an answer promises."""
    before = incoming(state, MARKS[mark])
    after, effects = step(
        before, I.ASSURED, at(trusted, exceeded), request("assured", MARKS[mark])
    )
    expected, words = _assured(
        state, marked=bool(MARKS[mark]), trusted=trusted, exceeded=exceeded
    )
    assert (after.state if after else S.ABSENT) is expected
    assert names(effects) == words
    if "Save" not in words:
        assert after == before, "what is not written is not changed"


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("state", [S.ABSENT, S.EXPIRED])
def test_a_message_is_counted_and_written_before_it_is_called_received(
    state: S, mark: str
) -> None:
    """A sender that has seen `received` will never send the message again."""
    asked = request("assured", MARKS[mark])
    after, effects = step(incoming(state, MARKS[mark]), I.ASSURED, at(), asked)
    held = Incoming(
        key=key_of(asked),
        msg_id="m1",
        source=SOURCE,
        to=OWN,
        level=Level.ASSURED,
        payload="<message/>",
        size=10,
        received_at=NOW,
        changed_at=NOW,
        state=S.HELD,
        mark=MARKS[mark],
        hold="fresh",
    )
    assert after == held
    assert effects == (Reserve(held), Save(held), Answer("received", "fresh"))


@pytest.mark.parametrize("state", [S.HELD, S.DONE])
def test_a_repeated_assured_gets_the_same_hold_and_keeps_the_first_payload(
    state: S,
) -> None:
    """By the proto-XEP, a repeat with the same msgId is ignored and answered as normal."""
    record = incoming(state)
    again = replace(request("assured"), payload="<message>2</message>", size=20)
    # A quota that is full by now does not matter: nothing more is held.
    result = step(record, I.ASSURED, at(exceeded="messages"), again)
    assert result == (record, (Answer("received", HOLD),))


@pytest.mark.parametrize(
    ("circumstances", "answer"),
    [
        (at(trusted=False), Answer("error", "", "not-allowed", "cancel")),
        (at(exceeded="bytes"), Answer("error", "", "resource-constraint", "wait")),
    ],
)
@pytest.mark.parametrize("kind", ["assured", "acknowledged"])
def test_a_refusal_names_its_condition_and_is_reported_without_the_payload(
    kind: str, circumstances: At, answer: Answer
) -> None:
    """The sender acts on the error type; the operator needs the source."""
    inputs = {"assured": I.ASSURED, "acknowledged": I.ACKNOWLEDGED}
    record, effects = step(None, inputs[kind], circumstances, request(kind))
    assert record is None
    assert effects[0] == answer
    report = effects[1]
    assert isinstance(report, ReportEffect)
    assert report.condition == answer.condition
    assert kind in report.text
    assert "<message" not in report.text


# --- deliver -----------------------------------------------------------------


def _deliver(state: S, hold: str) -> tuple[S, tuple[str, ...]]:
    """docs/design/protocol.md §3.7, §3.8: `deliver` with a hold and without."""
    not_found = ("item-not-found", "Report")
    if state is S.RELEASING:
        return state, ("Defer",)
    if hold == "wrong" or (hold == "right" and state is S.ABSENT):
        return state, not_found
    if state is S.HELD:
        return S.RELEASING, ("Save", "Deliver")
    if state is S.PARKED:
        return state, ("unexpected-request",)
    if state is S.DONE:
        return state, ("result",)
    if state is S.REJECTED:
        return state, ("result" if hold == "absent" else "conflict",)
    if state in {S.EXPIRED, S.DROPPED}:
        return state, not_found
    return state, ("result", "Report")


@pytest.mark.parametrize("exceeded", [None, *QUOTAS])
@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("state", S)
def test_deliver_is_answered_for_the_message_that_it_means(
    state: S, mark: str, hold: str, trusted: bool, exceeded: str | None
) -> None:
    """An accepted message is released, whatever trust and quotas are by now."""
    before = incoming(state, MARKS[mark])
    asked = request("deliver", MARKS[mark], HOLDS[hold])
    after, effects = step(before, I.DELIVER, at(trusted, exceeded), asked)
    expected, words = _deliver(state, hold)
    assert (after.state if after else S.ABSENT) is expected
    assert names(effects) == words
    if "Save" not in words:
        assert after == before
    for effect in effects:
        if isinstance(effect, Answer):
            asked_for = "" if effect == NOT_NOW else HOLDS[hold]
            assert effect.hold == asked_for, "an answer echoes what was asked"


@pytest.mark.parametrize("hold", ["right", "absent"])
def test_a_message_is_releasing_on_disk_before_it_is_handed_over(hold: str) -> None:
    """A restart between the two must know that the application may have acted."""
    record = incoming(S.HELD)
    assert record is not None
    asked = request("deliver", hold=HOLDS[hold])
    after, effects = step(record, I.DELIVER, at(), asked)
    assert after == replace(record, state=S.RELEASING, changed_at=NOW)
    assert effects == (Save(after), Deliver(after))


@pytest.mark.parametrize("kind", ["assured", "deliver"])
def test_a_request_about_a_message_that_is_being_handed_over_waits(kind: str) -> None:
    """An answer given now could be wrong a moment later."""
    record = incoming(S.RELEASING)
    input_ = I.ASSURED if kind == "assured" else I.DELIVER
    assert step(record, input_, at(), request(kind)) == (record, (Defer(),))


# --- rejected ----------------------------------------------------------------


@pytest.mark.parametrize("redelivered", [False, True])
def test_a_rejection_is_on_disk_before_the_sender_is_told(redelivered: bool) -> None:
    """If the process dies first, the message is handed over again and may be accepted."""
    record = incoming(S.RELEASING)
    assert record is not None
    record = replace(record, redelivered=redelivered)
    asked = request("deliver", hold=HOLD)
    why = at()._replace(rejection=WHY)
    after, effects = step(record, I.REJECTED, why, asked)
    assert after is not None
    assert (after.state, after.payload, after.changed_at) == (S.REJECTED, "", NOW)
    answer = Answer("rejected", HOLD, WHY.condition, WHY.type, WHY.text, redelivered)
    assert effects == (Save(after), Refund(record), answer)
    # After a restart it is the same answer, to whoever asks by the hold.
    stored = replace(after, redelivered=False)
    assert step(stored, I.DELIVER, at(), asked) == (stored, (answer,))


def test_a_rejection_after_a_restart_has_nobody_to_be_told_yet() -> None:
    """The sender asks again, and gets the rejection from the tombstone."""
    after, effects = step(
        incoming(S.RELEASING), I.REJECTED, at()._replace(rejection=WHY)
    )
    assert after is not None
    assert after.state is S.REJECTED
    assert names(effects) == ("Save", "Refund")


def test_a_sender_by_the_text_is_told_that_a_rejected_message_was_delivered() -> None:
    """The proto-XEP knows no other answer to a `deliver` for a message that was taken."""
    asked = request("deliver", mark="")
    after, effects = step(
        incoming(S.RELEASING, mark=""), I.REJECTED, at()._replace(rejection=WHY), asked
    )
    assert after is None
    assert names(effects) == ("result", "Refund", "Forget")


# --- acknowledged ------------------------------------------------------------


@pytest.mark.parametrize("exceeded", [None, *QUOTAS])
@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("mark", MARKS)
def test_acknowledged_is_written_before_it_is_handed_over_and_not_answered_before(
    mark: str, trusted: bool, exceeded: str | None
) -> None:
    """Otherwise the receiver could acknowledge a message that the application never
    gets.
    """
    asked = request("acknowledged", MARKS[mark])
    after, effects = step(None, I.ACKNOWLEDGED, at(trusted, exceeded), asked)
    if not trusted:
        assert (after, names(effects)) == (None, ("not-allowed", "Report"))
    elif exceeded:
        assert (after, names(effects)) == (None, ("resource-constraint", "Report"))
    else:
        assert after is not None
        assert after.state is S.RELEASING
        assert after.level is Level.ACKNOWLEDGED
        assert after.msg_id == "iq-1"
        assert (after.mark, after.hold) == (MARKS[mark], "")
        assert effects == (Reserve(after), Save(after), Deliver(after))


def test_unwritten_acknowledged_is_handed_over_and_answered_without_the_disk() -> None:
    """An option for the speed of the proto-XEP."""
    asked = request("acknowledged")
    after, effects = step(None, I.ACKNOWLEDGED, at(written=False), asked)
    assert after is not None
    assert effects == (Reserve(after), Deliver(after))
    assert step(after, I.HANDED_OVER, at(), asked) == (None, (TAKEN, Refund(after)))


def test_unwritten_acknowledged_never_exceeds_a_quota() -> None:
    """A message that is not on disk fills memory while it is handed over."""
    _, effects = step(
        None,
        I.ACKNOWLEDGED,
        at(written=False, exceeded="total_bytes"),
        request("acknowledged"),
    )
    assert names(effects) == ("resource-constraint", "Report")


def test_a_repeat_of_a_marked_acknowledged_message_waits_for_its_end() -> None:
    """It is not a second message, however long the application works on the first."""
    record, asked = acknowledged(), request("acknowledged")
    assert step(record, I.ACKNOWLEDGED, at(), asked) == (record, (Defer(),))


def test_a_repeat_of_a_parked_acknowledged_message_leaves_its_sender_in_doubt() -> None:
    """An operator may release it: so it is not certain that it will not be delivered."""
    record = replace(acknowledged(), state=S.PARKED)
    asked = request("acknowledged")
    assert step(record, I.ACKNOWLEDGED, at(), asked) == (record, (UNSURE,))
    assert (UNSURE.kind, UNSURE.error_type) == ("error", "wait"), "it is repeated"


@pytest.mark.parametrize("redelivered", [False, True])
def test_an_acknowledged_message_is_remembered_if_it_was_handed_over_again(
    redelivered: bool,
) -> None:
    """Its sender, which had no answer from the process that died, repeats it later."""
    record, asked = (
        replace(acknowledged(), redelivered=redelivered),
        request("acknowledged"),
    )
    after, effects = step(record, I.HANDED_OVER, at())
    if not redelivered:
        assert (after, effects) == (None, (TAKEN, Refund(record), ForgetEffect(record)))
        return
    assert after is not None
    assert (after.state, after.payload) == (S.DONE, "")
    assert effects == (Refund(record), Save(after))
    assert step(after, I.ACKNOWLEDGED, at(), asked) == (after, (TAKEN,))
    rejected, _ = step(record, I.REJECTED, at()._replace(rejection=WHY))
    assert step(rejected, I.ACKNOWLEDGED, at(), asked) == (rejected, (TAKEN,))


def test_a_repeat_of_a_dropped_acknowledged_message_is_refused() -> None:
    """As at level assured: the operator has decided."""
    record = replace(acknowledged(), state=S.DROPPED)
    _, effects = step(record, I.ACKNOWLEDGED, at(), request("acknowledged"))
    assert names(effects) == ("not-allowed", "Report")


def test_a_repeat_that_has_lost_its_payload_is_sent_again() -> None:
    """The message that it repeats could not be written: it was not handed over."""
    _, effects = step(None, I.ACKNOWLEDGED, at(), request("acknowledged").waiting())
    assert names(effects) == ("resource-constraint",)


def test_only_a_message_that_can_be_handed_over_later_is_uncertain() -> None:
    """At level assured its sender asks by `deliver`, and knows."""
    assert not_now(acknowledged()) == UNSURE
    assert not_now(incoming(S.RELEASING)) == not_now(None) == NOT_NOW


# --- handing over, restart, expiry -------------------------------------------


@pytest.mark.parametrize("hold", ["right", "absent"])
@pytest.mark.parametrize("asked", [True, False])
def test_a_marked_message_that_was_handed_over_is_answered_and_remembered(
    asked: bool, hold: str
) -> None:
    """The tombstone answers every repeat, and needs no payload."""
    record = incoming(S.RELEASING)
    assert record is not None
    deliver = request("deliver", hold=HOLDS[hold]) if asked else None
    after, effects = step(record, I.HANDED_OVER, at(), deliver)
    assert after == replace(record, state=S.DONE, payload="", changed_at=NOW)
    answer = (Answer("result", HOLDS[hold]),) if asked else ()
    assert effects == (*answer, Refund(record), Save(after))


@pytest.mark.parametrize("level", [Level.ASSURED, Level.ACKNOWLEDGED])
@pytest.mark.parametrize("asked", [True, False])
def test_an_unmarked_message_that_was_handed_over_is_forgotten(
    asked: bool, level: Level
) -> None:
    """By the proto-XEP, its msgId may be used again for another message."""
    record = incoming(S.RELEASING, mark="")
    assert record is not None
    record = replace(record, level=level)
    deliver = request("deliver", mark="") if asked else None
    after, effects = step(record, I.HANDED_OVER, at(), deliver)
    answer: tuple[Answer, ...] = (Answer("result"),) if asked else ()
    if level is Level.ACKNOWLEDGED:
        answer = (TAKEN,)  # for its repeats, too
    assert after is None
    assert effects == (*answer, Refund(record), ForgetEffect(record))


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("redelivered", [True, False])
def test_an_assured_message_that_nobody_takes_is_held_again_and_its_sender_told(
    mark: str, redelivered: bool
) -> None:
    """Without a taker there is no confirmation, and no redelivered mark either."""
    record = incoming(S.RELEASING, MARKS[mark])
    assert record is not None
    record = replace(record, redelivered=redelivered)
    asked = request("deliver", MARKS[mark], HOLD)
    held = replace(record, state=S.HELD, changed_at=NOW)
    assert step(record, I.NOT_TAKEN, at(), asked) == (held, (NOT_NOW, Save(held)))
    assert (NOT_NOW.kind, NOT_NOW.error_type) == ("error", "wait"), "it is repeated"
    again, effects = step(held, I.DELIVER, at(), asked)
    assert again == replace(held, state=S.RELEASING)
    assert effects == (Save(again), Deliver(again))


def acknowledged() -> Incoming:
    """A message at level acknowledged while it is handed over."""
    record, _ = step(None, I.ACKNOWLEDGED, at(), request("acknowledged"))
    assert record is not None
    return record


def test_an_acknowledged_message_that_nobody_takes_is_gone_before_it_is_refused() -> (
    None
):
    """The error says that it was not delivered: no restart may hand it over later."""
    record, asked = acknowledged(), request("acknowledged")
    told = replace(NOT_NOW, repeats=True)
    effects = (Refund(record), ForgetEffect(record), told)
    assert step(record, I.NOT_TAKEN, at(), asked) == (None, effects)
    unwritten = replace(record, written=False)
    effects_unwritten = (Refund(unwritten), told)
    assert step(unwritten, I.NOT_TAKEN, at(), asked) == (None, effects_unwritten)


@pytest.mark.parametrize("level", Level)
def test_what_nobody_takes_and_nobody_asks_for_is_handed_over_again(
    level: Level,
) -> None:
    """Its sender may already have heard that it arrived, and then does not repeat it."""
    record = replace(acknowledged(), level=level)
    again = at()._replace(retry_at=NOW + 10)
    assert step(record, I.NOT_TAKEN, again) == (record, (Retry(NOW + 10),))


def test_only_acknowledged_without_a_mark_is_answered_when_somebody_has_it_in_hand() -> (
    None
):
    """Its repeat would be a new message, and the proto-XEP answers on receipt."""
    unmarked = replace(acknowledged(), mark="")
    asked = request("acknowledged", mark="")
    assert step(unmarked, I.IN_HAND, at(), asked) == (unmarked, (TAKEN,))
    assert step(unmarked, I.IN_HAND, at()) == (unmarked, ())
    marked = acknowledged()
    assert step(marked, I.IN_HAND, at(), request("acknowledged")) == (marked, ())
    assured = incoming(S.RELEASING)
    assert step(assured, I.IN_HAND, at(), request("deliver")) == (assured, ())


@pytest.mark.parametrize("state", [S.ABSENT, S.EXPIRED, S.DROPPED])
def test_an_offer_without_its_payload_is_not_held(state: S) -> None:
    """It waited for an earlier message that is gone now; its sender offers it again."""
    record = incoming(state, mark="")
    waiting = request("assured", mark="").waiting()
    assert waiting.payload == ""
    assert waiting.size == 10
    refused = Answer("error", "", "resource-constraint", "wait")
    assert step(record, I.ASSURED, at(), waiting) == (record, (refused,))
    deliver = request("deliver")
    assert deliver.waiting() is deliver


@pytest.mark.parametrize("mark", MARKS)
def test_a_message_that_was_being_handed_over_is_handed_over_again_with_the_mark(
    mark: str,
) -> None:
    """Only the application can know whether it acted before the restart."""
    record = incoming(S.RELEASING, MARKS[mark])
    assert record is not None
    after, effects = step(record, I.RESTART, at())
    assert after == replace(record, redelivered=True)
    assert effects == (Deliver(after),)


@pytest.mark.parametrize("mark", MARKS)
def test_an_expired_message_gives_its_room_back_and_is_remembered(mark: str) -> None:
    """Otherwise a withdrawn message would fill a quota for ever."""
    record = incoming(S.HELD, MARKS[mark])
    assert record is not None
    after, effects = step(record, I.EXPIRE, at())
    assert after == replace(record, state=S.EXPIRED, payload="", changed_at=NOW)
    assert effects == (Refund(record), Save(after))


@pytest.mark.parametrize("state", [S.DONE, S.EXPIRED, S.DROPPED])
def test_a_memory_that_is_forgotten_leaves_nothing(state: S) -> None:
    """A tombstone counts towards no quota, so there is nothing to give back."""
    record = incoming(state)
    assert record is not None
    assert step(record, I.FORGET, at()) == (None, (ForgetEffect(record),))


@pytest.mark.parametrize("level", Level)
def test_a_drop_by_force_ends_what_may_have_been_handed_over(level: Level) -> None:
    """A message that ends each process must not come again for ever.

    Its room is given back. A sender that repeats `deliver` must hear neither that the
    message was delivered nor that it may send it again.
    """
    record = incoming(S.RELEASING)
    assert record is not None
    record = replace(record, level=level)
    after, effects = step(record, I.DROP_FORCED, at())
    assert after == replace(record, state=S.DROPPED, payload="", changed_at=NOW)
    assert effects == (Refund(record), Save(after))
    _, effects = step(after, I.DELIVER, at(), request("deliver", hold=after.hold))
    assert effects[0] == Answer("error", after.hold, "item-not-found", "cancel")
    _, effects = step(after, I.ASSURED, at(), request("assured"))
    assert effects[0] == Answer("error", "", "not-allowed", "cancel")


def test_a_new_hold_removes_the_memory_of_an_expired_one() -> None:
    """A `deliver` for the old hold must not release the new message."""
    held, _ = step(incoming(S.EXPIRED), I.ASSURED, at(), request("assured"))
    after, effects = step(held, I.DELIVER, at(), request("deliver", hold=HOLD))
    assert after == held
    assert names(effects) == ("item-not-found", "Report")


# --- keys --------------------------------------------------------------------

PARTS = st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), max_size=6)
REQUESTS = st.builds(
    Request,
    kind=st.sampled_from(("assured", "deliver")),
    iq_id=st.just("iq"),
    source=st.builds("{}@{}/{}".format, PARTS, PARTS, PARTS),
    to=st.just(OWN),
    namespace=st.just(NAMESPACE),
    msg_id=PARTS,
    mark=PARTS,
)


def _identity(asked: Request) -> tuple[str, ...]:
    """The parts that identify a message: docs/design/protocol.md §3.1."""
    if asked.mark:
        return ("marked", asked.source.partition("/")[0], asked.mark, asked.msg_id)
    return ("unmarked", asked.source, asked.msg_id)


@given(REQUESTS, REQUESTS)
def test_two_requests_have_one_key_only_when_they_mean_one_message(
    one: Request, other: Request
) -> None:
    """No choice of JID, mark and msgId may reach the message of somebody else."""
    assert (key_of(one) == key_of(other)) is (_identity(one) == _identity(other))


def test_two_resources_without_marks_are_two_senders() -> None:
    """Small devices count from 1, each for itself."""
    one = request("assured", mark="")
    assert key_of(one) != key_of(replace(one, source="door@example.org/b"))


def test_two_resources_with_one_mark_are_one_sender() -> None:
    """A device of ours comes back under another resource."""
    one = request("assured")
    assert key_of(one) == key_of(replace(one, source="door@example.org/b"))


def test_the_same_mark_in_two_accounts_is_two_senders() -> None:
    """A mark is no secret: others may copy it."""
    one = request("assured")
    assert key_of(one) != key_of(replace(one, source="eve@example.org/a"))


def test_assured_and_its_deliver_have_one_key() -> None:
    """Whatever other parts of the two requests differ."""
    for mark in MARKS.values():
        deliver = request("deliver", mark, HOLD)
        assert key_of(request("assured", mark)) == key_of(deliver, "token")


def test_a_marked_acknowledged_request_and_its_repeat_have_one_key() -> None:
    """Our iq ids are never used again; a device may come back under another resource."""
    asked = request("acknowledged")
    again = replace(asked, source=f"{SOURCE}2")
    assert key_of(asked, "token-1") == key_of(again, "token-2")
    other = replace(asked, iq_id="iq-2")
    assert key_of(asked, "token-1") != key_of(other, "token-1")


def test_two_acknowledged_requests_without_a_mark_are_never_one() -> None:
    """A peer that counts its iq ids from 1 after each start would lose messages."""
    asked = request("acknowledged", mark="")
    assert key_of(asked, "token-1") != key_of(asked, "token-2")
    assert key_of(asked, "token-1") != key_of(request("assured"), "token-1")


def test_parts_cannot_run_into_each_other() -> None:
    """Names and ids that are equal when joined must stay different."""
    one = replace(request("assured", mark=""), source="a@b/c", msg_id="dm1")
    other = replace(one, source="a@b/cd", msg_id="m1")
    assert key_of(one) != key_of(other)


def test_unwritten_acknowledged_leaves_nothing_behind() -> None:
    """Neither on disk nor in the ledger: it was never in either."""
    record, _ = step(None, I.ACKNOWLEDGED, at(written=False), request("acknowledged"))
    assert record is not None
    assert step(record, I.HANDED_OVER, at()) == (None, (TAKEN, Refund(record)))


@pytest.mark.parametrize("state", S)
def test_a_request_begins_something_if_it_makes_us_hold_a_message_or_release_it(
    state: S,
) -> None:
    """For one that has stopped: it answers all others, and these it refuses."""
    kinds = {"acknowledged": I.ACKNOWLEDGED, "assured": I.ASSURED, "deliver": I.DELIVER}
    for kind, mark, hold, trusted, exceeded, payload in product(
        kinds, MARKS.values(), HOLDS.values(), (True, False), (None, "bytes"), "x-"
    ):
        asked = request(kind, mark, hold)
        if payload == "-":
            asked = asked.waiting()
        case = (incoming(state, mark), kinds[kind], at(trusted, exceeded), asked)
        effects = names(step(*case)[1])
        if not effects:
            continue  # no message at level acknowledged is in this state
        wants_payload = not asked.payload and effects == ("resource-constraint",)
        begun = not {"Save", "Deliver"}.isdisjoint(effects)
        assert begins(*case) == (begun or wants_payload), (kind, effects)
