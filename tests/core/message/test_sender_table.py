"""The sender's machine: every state, every input, every reply, at both levels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import pytest

from qos.core.backoff import Backoff
from qos.core.message.effects import Effect, End, Forget, Save, Settle, Transmit
from qos.core.message.flow import WINDOW_FIRST
from qos.core.message.model import NAMESPACES, Ended, Level, Outgoing, Route
from qos.core.message.model import OutgoingState as S
from qos.core.message.sender import (
    clamped,
    overdue,
    peer_available,
    postponed,
    resumed,
    step,
    unsent,
    wake_at,
)
from qos.core.message.sender_table import (
    TRANSITIONS,
    At,
    Reply,
    classify,
    on_peer,
    on_session,
    too_large,
)
from qos.core.message.sender_table import SenderInput as I
from qos.errors import CannotWithdraw, LocalProtocolError

OWN = "door@example.org/a"
PEER = "lamp@example.org/1"
OTHER = "lamp@example.org/2"
SERVERS = ("", "door@example.org", "example.org")
LEVELS = (Level.ACKNOWLEDGED, Level.ASSURED)
LIVE = (S.QUEUED, S.OFFERED, S.RECEIVED, S.RELEASING)
ENDED = (S.DELIVERED, S.NOT_DELIVERED, S.IN_DOUBT, S.SENT)

NOW = 1_000.0
LATER = 1_010.0
#: With first_s = 2: one try gives 2 s, two give 0.75 * 4 s, a wake 0.75 * 2 s.
JITTER = 0.75


def outgoing(state: S, level: Level = Level.ASSURED) -> Outgoing:
    """A message as it stands in a state after the shortest way there."""
    queued = Outgoing(
        msg_id="m1",
        seq=1,
        to=PEER,
        level=level,
        payload="<message xmlns='jabber:client'/>",
        size=32,
        created_at=0.0,
        offer_id="offer-1",
        deliver_id="deliver-1",
        due_at=LATER,
    )
    offered = replace(
        queued,
        state=S.OFFERED,
        attempts=1,
        addressed=frozenset({PEER}),
        unanswered=True,
        tries=1,
        due_at=LATER,
    )
    received = replace(
        offered,
        state=S.RECEIVED,
        namespace=NAMESPACES[1],
        peer=PEER,
        hold="h1",
        own=OWN,
        unanswered=False,
        tries=0,
        due_at=math.inf,
    )
    releasing = replace(
        received,
        state=S.RELEASING,
        attempts=2,
        delivers=1,
        unanswered=True,
        tries=1,
        due_at=LATER,
    )
    by_state = {
        S.QUEUED: queued,
        S.OFFERED: offered,
        S.RECEIVED: received,
        S.RELEASING: releasing,
    }
    return by_state.get(state) or replace(releasing, state=state)


RECEIVED_REPLY = Reply(
    "offer-1", PEER, received="m1", hold="h1", namespace=NAMESPACES[1]
)
ERRORS = {
    I.CONSTRAINED: "resource-constraint",
    I.UNAVAILABLE: "service-unavailable",
    I.REFUSED: "bad-request",
    I.REJECTED: "conflict",
    I.NOT_MINE: "item-not-found",
    I.STORE_GONE: "item-not-found",
    I.STORE_GONE_UNSEEN: "item-not-found",
}


def at(input_: I | None = None, **changes: object) -> At:
    """The circumstances under which an input comes."""
    numbers = itertools.count(1)
    reply = RECEIVED_REPLY if input_ is I.RECEIVED else None
    if input_ in ERRORS:
        reply = Reply("any", PEER, error=ERRORS[input_])
    circumstances = At(
        now=NOW,
        jitter=JITTER,
        backoff=Backoff(first_s=2.0, max_s=300.0),
        new_id=lambda: f"new-{next(numbers)}",
        route=Route(OTHER, NAMESPACES[2]) if input_ is I.ATTEMPT else None,
        reply=reply,
        own=OWN,
    )
    return circumstances._replace(**changes)  # type: ignore[arg-type]  # by name


def names(effects: tuple[Effect, ...]) -> tuple[str, ...]:
    """The effects in words."""
    return tuple(
        effect.step if isinstance(effect, Transmit) else type(effect).__name__
        for effect in effects
    )


def changes(before: Outgoing, after: Outgoing) -> dict[str, object]:
    """The fields that differ, the state aside."""
    return {
        field_.name: getattr(after, field_.name)
        for field_ in fields(Outgoing)
        if field_.name != "state"
        and getattr(after, field_.name) != getattr(before, field_.name)
    }


@dataclass(frozen=True)
class Row:
    """The effect of one input in one state."""

    state: S
    effects: tuple[str, ...] = ()
    changes: Mapping[str, object] = field(default_factory=dict)


BOTH = frozenset({PEER, OTHER})
END = ("Forget", "Settle")


def noted(input_: I, *, unanswered: bool = False) -> dict[str, object]:
    """An error leaves its name, and the attempt is answered."""
    note: dict[str, object] = {"condition": ERRORS[input_], "condition_by": PEER}
    return note if unanswered else {**note, "unanswered": False}


AGAIN: dict[str, object] = {
    "offer_id": "new-1",
    "deliver_id": "new-2",
    "peer": None,
    "hold": None,
    "own": None,
    "addressed": frozenset(),
    "due_at": NOW,
}

ROWS: dict[tuple[S, I], Row] = {
    (S.QUEUED, I.ATTEMPT): Row(
        S.OFFERED,
        ("Save", "offer"),
        {
            "attempts": 1,
            "addressed": frozenset({OTHER}),
            "asked_in": NAMESPACES[2],
            "unanswered": True,
            "tries": 1,
            "due_at": NOW + 2,
        },
    ),
    (S.OFFERED, I.ATTEMPT): Row(
        S.OFFERED,
        ("offer",),
        {
            "attempts": 2,
            "addressed": BOTH,
            "asked_in": NAMESPACES[2],
            "doubted": True,
            "tries": 2,
            "due_at": NOW + 3,
        },
    ),
    (S.RECEIVED, I.ATTEMPT): Row(S.RECEIVED),
    (S.RELEASING, I.ATTEMPT): Row(
        S.RELEASING,
        ("Save", "deliver"),
        {
            "attempts": 3,
            "delivers": 2,
            "addressed": BOTH,
            "asked_in": NAMESPACES[2],
            "doubted": True,
            "tries": 2,
            "due_at": NOW + 3,
        },
    ),
    (S.QUEUED, I.NO_ROUTE): Row(S.QUEUED, (), {"tries": 1, "due_at": NOW + 2}),
    (S.OFFERED, I.NO_ROUTE): Row(S.OFFERED, (), {"tries": 2, "due_at": NOW + 3}),
    (S.RECEIVED, I.NO_ROUTE): Row(S.RECEIVED, (), {"tries": 1}),
    (S.RELEASING, I.NO_ROUTE): Row(S.RELEASING, (), {"tries": 2, "due_at": NOW + 3}),
    (S.QUEUED, I.DUE): Row(S.QUEUED, (), {"due_at": NOW}),
    (S.OFFERED, I.DUE): Row(S.OFFERED, (), {"tries": 0, "due_at": NOW}),
    (S.RECEIVED, I.DUE): Row(S.RECEIVED),
    (S.RELEASING, I.DUE): Row(S.RELEASING, (), {"tries": 0, "due_at": NOW}),
    (S.QUEUED, I.WAKE): Row(S.QUEUED, (), {"due_at": NOW + 1.5}),
    (S.OFFERED, I.WAKE): Row(S.OFFERED, (), {"tries": 0, "due_at": NOW + 1.5}),
    (S.RECEIVED, I.WAKE): Row(S.RECEIVED),
    (S.RELEASING, I.WAKE): Row(S.RELEASING, (), {"tries": 0, "due_at": NOW + 1.5}),
    (S.OFFERED, I.RECEIVED): Row(
        S.RECEIVED,
        (),
        {
            "peer": PEER,
            "hold": "h1",
            "own": OWN,
            "namespace": NAMESPACES[1],
            "unanswered": False,
            "tries": 0,
            "due_at": math.inf,
        },
    ),
    (S.RECEIVED, I.RELEASE): Row(
        S.RELEASING,
        ("Save", "deliver"),
        {
            "attempts": 2,
            "delivers": 1,
            "asked_in": NAMESPACES[1],
            "unanswered": True,
            "tries": 1,
            "due_at": NOW + 2,
        },
    ),
    (S.OFFERED, I.CONFIRMED): Row(S.DELIVERED, END),
    (S.RELEASING, I.CONFIRMED): Row(S.DELIVERED, END),
    (S.OFFERED, I.CONSTRAINED): Row(
        S.OFFERED, (), {**noted(I.CONSTRAINED), "namespace": NAMESPACES[0]}
    ),
    (S.RELEASING, I.CONSTRAINED): Row(S.RELEASING, (), noted(I.CONSTRAINED)),
    (S.OFFERED, I.UNAVAILABLE): Row(
        S.OFFERED, (), {**noted(I.UNAVAILABLE), "doubted": True}
    ),
    (S.RELEASING, I.UNAVAILABLE): Row(
        S.RELEASING, (), {**noted(I.UNAVAILABLE), "doubted": True}
    ),
    (S.QUEUED, I.REFUSED): Row(S.NOT_DELIVERED, END, noted(I.REFUSED, unanswered=True)),
    (S.OFFERED, I.REFUSED): Row(S.NOT_DELIVERED, END, noted(I.REFUSED)),
    (S.RELEASING, I.REFUSED): Row(S.IN_DOUBT, END, noted(I.REFUSED)),
    (S.RELEASING, I.REJECTED): Row(S.NOT_DELIVERED, END, noted(I.REJECTED)),
    (S.RELEASING, I.NOT_MINE): Row(
        S.RELEASING, (), {**noted(I.NOT_MINE), "not_mine": frozenset({PEER})}
    ),
    (S.RELEASING, I.STORE_GONE_UNSEEN): Row(
        S.OFFERED,
        ("Save",),
        {**noted(I.STORE_GONE_UNSEEN), **AGAIN, "delivers": 0, "tries": 0},
    ),
    (S.RELEASING, I.STORE_GONE): Row(S.IN_DOUBT, END, noted(I.STORE_GONE)),
    (S.RECEIVED, I.ORPHANED): Row(S.OFFERED, ("Save",), AGAIN),
    (S.RELEASING, I.ORPHANED): Row(S.IN_DOUBT, END),
    (S.QUEUED, I.DEADLINE): Row(S.NOT_DELIVERED, END),
    (S.OFFERED, I.DEADLINE): Row(S.NOT_DELIVERED, END),
    (S.RECEIVED, I.DEADLINE): Row(S.NOT_DELIVERED, END),
    (S.RELEASING, I.DEADLINE): Row(S.IN_DOUBT, END),
    (S.QUEUED, I.WITHDRAW): Row(S.NOT_DELIVERED, END),
    (S.OFFERED, I.WITHDRAW): Row(S.NOT_DELIVERED, END),
    (S.RECEIVED, I.WITHDRAW): Row(S.NOT_DELIVERED, END),
}

#: Level acknowledged differs where its only step, a hand-over, has no answer yet.
ACKNOWLEDGED_ROWS = {
    **ROWS,
    (S.OFFERED, I.DEADLINE): Row(S.IN_DOUBT, END),
}
UNANSWERED_WITHDRAW = (Level.ACKNOWLEDGED, S.OFFERED, I.WITHDRAW)

PRESENT = [
    (level, *pair)
    for level in LEVELS
    for pair in ROWS
    if (level, *pair) != UNANSWERED_WITHDRAW
]
MISSING = [
    (level, state, input_)
    for level, state, input_ in itertools.product(LEVELS, LIVE, I)
    if (state, input_) not in ROWS
]


def test_the_table_has_these_rows_and_no_others() -> None:
    """A row that no test knows is a behaviour that nobody decided."""
    assert {pair: row.state for pair, row in ROWS.items()} == TRANSITIONS


@pytest.mark.parametrize(("level", "state", "input_"), PRESENT)
def test_an_input_of_the_table_does_what_its_row_says(
    level: Level, state: S, input_: I
) -> None:
    """State, effects, their order and the changed fields are the protocol."""
    rows = ROWS if level is Level.ASSURED else ACKNOWLEDGED_ROWS
    row = rows[state, input_]
    before = outgoing(state, level)
    after, effects = step(before, input_, at(input_))
    assert after.state is row.state
    assert names(effects) == row.effects
    assert changes(before, after) == row.changes
    for effect in effects:
        assert isinstance(effect, Save | Forget | Settle | Transmit)
        assert effect.record == after


@pytest.mark.parametrize(("level", "state", "input_"), MISSING)
def test_an_input_that_the_table_lacks_is_refused(
    level: Level, state: S, input_: I
) -> None:
    """Only a bug of ours can produce it, and it must not be carried on."""
    with pytest.raises(LocalProtocolError, match="m1") as caught:
        step(outgoing(state, level), input_, at(input_))
    assert isinstance(caught.value, CannotWithdraw) is (input_ is I.WITHDRAW)


@pytest.mark.parametrize(
    ("level", "state", "input_"), list(itertools.product(LEVELS, ENDED, I))
)
def test_nothing_happens_to_a_message_that_has_ended(
    level: Level, state: S, input_: I
) -> None:
    """A late answer or timer is normal, and an outcome that was told stays."""
    record = outgoing(state, level)
    assert state.ended
    assert step(record, input_, at(input_)) == (record, ())


@pytest.mark.parametrize("input_", [I.DUE, I.WAKE])
@pytest.mark.parametrize("state", [S.QUEUED, S.OFFERED, S.RELEASING])
def test_a_wake_never_puts_an_attempt_off(state: S, input_: I) -> None:
    """A presence that comes again and again must not starve a message."""
    record = replace(outgoing(state), due_at=NOW - 1)
    after, _ = step(record, input_, at())
    assert after.due_at == NOW - 1


def test_an_attempt_goes_where_the_route_says() -> None:
    """A device is followed attempt by attempt."""
    route = Route(OTHER, NAMESPACES[2], marked=True)
    _, effects = step(outgoing(S.QUEUED), I.ATTEMPT, at(route=route))
    transmit = effects[-1]
    assert isinstance(transmit, Transmit)
    assert transmit.route == route


@pytest.mark.parametrize("hold", ["h1", None])
def test_the_first_deliver_goes_to_the_peer_that_holds_the_message(
    hold: str | None,
) -> None:
    """Whichever resources are there, only this one has said `received`."""
    record = replace(outgoing(S.RECEIVED), hold=hold, addressed=BOTH)
    after, effects = step(record, I.RELEASE, at())
    transmit = effects[-1]
    assert isinstance(transmit, Transmit)
    assert transmit.route == Route(PEER, NAMESPACES[1], marked=hold is not None)
    assert after.addressed == {PEER}, "the offer's addressees may not answer this"


def test_received_in_no_namespace_of_ours_keeps_the_namespace_that_was_asked_in() -> (
    None
):
    """The text's examples answer in jabber:client."""
    reply = replace(RECEIVED_REPLY, namespace="jabber:client", hold="")
    record = replace(outgoing(S.OFFERED), asked_in=NAMESPACES[2])
    after, _ = step(record, I.RECEIVED, at(reply=reply))
    assert after.namespace == NAMESPACES[2]
    assert after.hold is None


def test_a_namespace_that_is_fixed_stays_when_the_peer_has_no_room() -> None:
    """The bytes of a step may not change once the peer has answered by QoS."""
    record = replace(outgoing(S.OFFERED), namespace=NAMESPACES[1])
    after, _ = step(record, I.CONSTRAINED, at(I.CONSTRAINED))
    assert after.namespace == NAMESPACES[1]


def test_an_error_without_a_sender_is_noted_without_one() -> None:
    """A server may leave out its name."""
    reply = Reply("offer-1", "", error="forbidden")
    after, _ = step(outgoing(S.OFFERED), I.REFUSED, at(reply=reply))
    assert (after.condition, after.condition_by) == ("forbidden", None)


# --- what a reply means ------------------------------------------------------

#: The states that a record can have when a reply comes.
RECORDS = {
    "queued": outgoing(S.QUEUED),
    "acknowledged": outgoing(S.OFFERED, Level.ACKNOWLEDGED),
    "offered": outgoing(S.OFFERED),
    "received": outgoing(S.RECEIVED),
    "releasing": replace(outgoing(S.RELEASING), addressed=BOTH),
    "unmarked": replace(outgoing(S.RELEASING), hold=None, addressed=BOTH),
    "delivered": outgoing(S.DELIVERED),
}


@dataclass(frozen=True)
class Kind:
    """A kind of reply, and its meaning for each record that can be answered."""

    reply: Reply
    acknowledged: I | None
    offered: I | None
    releasing: I | None
    unmarked: I | None


def _result(
    offered: I | None,
    releasing: I | None,
    received: str | None = None,
    hold: str | None = None,
) -> Kind:
    reply = Reply("", "", received=received, hold=hold)
    # Without a hold, only an empty result is an answer.
    empty = I.CONFIRMED if received is None else None
    return Kind(reply, empty, offered, releasing, empty)


def _error(
    condition: str,
    type_: str,
    first: I,
    second: I,
    hold: str | None = None,
    releasing: I | None = None,
) -> Kind:
    reply = Reply("", "", error=condition, error_type=type_, hold=hold)
    return Kind(reply, first, first, releasing or second, second)


_PASSES = (I.UNAVAILABLE, I.UNAVAILABLE)
_ENDS_FIRST = (I.REFUSED, I.UNAVAILABLE)
KINDS = {
    "empty": _result(None, None),
    "received": _result(I.RECEIVED, None, received="m1"),
    "received of another": _result(None, None, received="m2"),
    "the hold": _result(None, I.CONFIRMED, hold="h1"),
    "another hold": _result(None, None, hold="h2"),
    "no room": _error("resource-constraint", "wait", I.CONSTRAINED, I.CONSTRAINED),
    "wait": _error("not-acceptable", "wait", *_PASSES),
    "service-unavailable": _error("service-unavailable", "cancel", *_PASSES),
    "recipient-unavailable": _error("recipient-unavailable", "cancel", *_PASSES),
    "remote-server-not-found": _error("remote-server-not-found", "cancel", *_PASSES),
    "remote-server-timeout": _error("remote-server-timeout", "cancel", *_PASSES),
    "gone": _error("gone", "cancel", *_PASSES),
    "not-allowed": _error("not-allowed", "cancel", *_ENDS_FIRST),
    "forbidden": _error("forbidden", "auth", *_ENDS_FIRST),
    "feature": _error("feature-not-implemented", "cancel", *_ENDS_FIRST),
    "jid-malformed": _error("jid-malformed", "modify", *_ENDS_FIRST),
    "other modify": _error("not-acceptable", "modify", *_ENDS_FIRST),
    "bad-request": _error("bad-request", "modify", I.REFUSED, I.REFUSED),
    "not found": _error("item-not-found", "cancel", *_ENDS_FIRST),
    "not found, another hold": _error(
        "item-not-found", "cancel", *_ENDS_FIRST, hold="h2"
    ),
    "not found, the hold": _error(
        "item-not-found",
        "cancel",
        *_ENDS_FIRST,
        hold="h1",
        releasing=I.STORE_GONE_UNSEEN,
    ),
}
THIRD_PARTIES = (
    "lamp@example.org",
    "lamp@example.org/3",
    "eve@example.org/1",
    "evil.example.org",
    OWN,
)


def _answer(name: str, kind: str, source: str) -> I | None:
    record = RECORDS[name]
    pending = record.deliver_id if record.delivers else record.offer_id
    reply = replace(KINDS[kind].reply, iq_id=pending, source=source)
    return classify(record, reply, own=OWN)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RECORDS)
def test_a_reply_of_the_addressed_jid_means_what_its_kind_says(
    name: str, kind: str
) -> None:
    """Each cell of this table is one rule of docs/design/protocol.md §4."""
    expected: I | None = getattr(KINDS[kind], name, None)
    assert _answer(name, kind, PEER) is expected


@pytest.mark.parametrize("source", SERVERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RECORDS)
def test_the_own_server_may_report_errors_and_nothing_else(
    name: str, kind: str, source: str
) -> None:
    """It knows that a peer is absent, but not what the peer has done."""
    expected: I | None = None
    if KINDS[kind].reply.error:
        expected = getattr(KINDS[kind], name, None)
    if expected is I.STORE_GONE_UNSEEN:
        expected = I.NOT_MINE  # a server's word does not prove that a store is gone
    assert _answer(name, kind, source) is expected


@pytest.mark.parametrize("source", THIRD_PARTIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RECORDS)
def test_nobody_else_may_answer(name: str, kind: str, source: str) -> None:
    """Otherwise anybody who learns an id could forge a delivery."""
    assert _answer(name, kind, source) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["acknowledged", "offered", "releasing", "unmarked"])
def test_a_reply_to_another_id_means_nothing(name: str, kind: str) -> None:
    """An answer to the offer does not answer the deliver, nor the reverse."""
    record = RECORDS[name]
    wrong = record.offer_id if record.delivers else record.deliver_id
    for iq_id in (wrong, "never-used", ""):
        reply = replace(KINDS[kind].reply, iq_id=iq_id, source=PEER)
        assert classify(record, reply, own=OWN) is None


@pytest.mark.parametrize("kind", KINDS)
def test_another_resource_confirms_only_with_the_hold(kind: str) -> None:
    """It may be the device under a new name, or another device altogether."""
    expected = KINDS[kind].releasing
    if expected is I.STORE_GONE_UNSEEN:
        expected = I.NOT_MINE
    assert _answer("releasing", kind, OTHER) is expected


def test_an_unmarked_result_counts_only_from_the_peer() -> None:
    """Any device answers an unknown deliver with the empty result."""
    assert _answer("unmarked", "empty", OTHER) is None


def test_an_unmarked_result_counts_only_when_asked_from_the_same_own_jid() -> None:
    """The peer knows the message by the full JID that offered it."""
    record = RECORDS["unmarked"]
    reply = Reply("deliver-1", PEER)
    assert classify(record, reply, own="door@example.org/b") is None
    assert classify(record, reply, own=OWN) is I.CONFIRMED


@pytest.mark.parametrize(
    ("delivers", "expected"), [(1, I.STORE_GONE_UNSEEN), (2, I.STORE_GONE)]
)
def test_only_the_very_first_deliver_proves_that_nothing_was_handed_over(
    delivers: int, expected: I
) -> None:
    """An earlier one may have been acted on before the store was lost."""
    record = replace(RECORDS["releasing"], delivers=delivers)
    reply = Reply("deliver-1", PEER, error="item-not-found", hold="h1")
    assert classify(record, reply, own=OWN) is expected


@pytest.mark.parametrize("source", [PEER, OTHER])
@pytest.mark.parametrize("delivers", [1, 2])
@pytest.mark.parametrize("condition", ["conflict", "item-not-found", "bad-request"])
def test_a_rejection_that_carries_the_hold_is_the_final_word(
    condition: str, delivers: int, source: str
) -> None:
    """Only the holder of the message knows the token, whatever its resource."""
    record = replace(RECORDS["releasing"], delivers=delivers)
    reply = Reply(
        "deliver-1", source, error=condition, hold="h1", rejected=True, text="no"
    )
    assert classify(record, reply, own=OWN) is I.REJECTED
    after, _ = step(record, I.REJECTED, at(reply=reply))
    assert after.state is S.NOT_DELIVERED
    assert (after.condition, after.condition_by) == (condition, source)
    assert Ended.of(after, NOW).condition_text == "no"


def test_a_rejection_of_what_was_redelivered_leaves_doubt() -> None:
    """The application may have accepted it before its process died."""
    reply = Reply(
        "deliver-1", PEER, error="conflict", hold="h1", rejected=True, redelivered=True
    )
    record = RECORDS["releasing"]
    assert classify(record, reply, own=OWN) is I.REFUSED
    after, _ = step(record, I.REFUSED, at(reply=reply))
    assert after.state is S.IN_DOUBT


def test_a_rejection_with_another_hold_ends_nothing() -> None:
    """Nobody else can know the token."""
    reply = Reply("deliver-1", PEER, error="conflict", hold="h2", rejected=True)
    assert classify(RECORDS["releasing"], reply, own=OWN) is I.UNAVAILABLE
    reply = replace(reply, hold="h1", iq_id="offer-1")
    assert classify(RECORDS["offered"], reply, own=OWN) is I.REFUSED


def test_an_error_that_names_who_returned_it_is_noted_with_that_name() -> None:
    """RFC 6120 §8.3.1: a server answers in the place of the one addressed."""
    reply = Reply("offer-1", PEER, error="forbidden", by="example.org", text="no")
    after, _ = step(outgoing(S.OFFERED), I.REFUSED, at(reply=reply))
    assert after.condition_by == "example.org"
    assert after.condition_text == "no"


def test_a_component_takes_errors_from_its_own_name() -> None:
    """It has no account: its JID is its server's name for it."""
    record = replace(RECORDS["offered"], to="lamp@example.org/1")
    reply = Reply("offer-1", "queue.example.org", error="forbidden")
    assert classify(record, reply, own="queue.example.org") is I.REFUSED


# --- sessions, restarts, timers ----------------------------------------------


@pytest.mark.parametrize("own", [OWN, "door@example.org/b"])
@pytest.mark.parametrize("hold", ["h1", None])
@pytest.mark.parametrize("state", LIVE)
def test_a_message_is_orphaned_where_an_unmarked_peer_knows_us_by_another_name(
    state: S, hold: str | None, own: str
) -> None:
    """Its answer to the `deliver` would concern no message."""
    record = outgoing(state)
    if record.own:
        record = replace(record, hold=hold)
    orphaned = record.own is not None and hold is None and own != OWN
    expected = I.ORPHANED if orphaned else I.DUE
    assert on_session(record, own=own, ahead=0) is expected


@pytest.mark.parametrize("ahead", [0, WINDOW_FIRST - 1, WINDOW_FIRST, 100])
@pytest.mark.parametrize("state", LIVE)
def test_at_a_new_session_the_first_window_is_due_at_once(state: S, ahead: int) -> None:
    """The others are spread; a message that was never attempted waits for nobody."""
    spread = ahead >= WINDOW_FIRST and state is not S.QUEUED
    meaning = on_session(outgoing(state), own=OWN, ahead=ahead)
    assert meaning is (I.WAKE if spread else I.DUE)


def test_a_message_that_is_offered_again_is_orphaned_by_no_session() -> None:
    """Nothing is lost: the message is offered again anyway."""
    record = replace(outgoing(S.RECEIVED), hold=None)
    after, _ = step(record, I.ORPHANED, at())
    assert on_session(after, own="door@example.org/b", ahead=0) is I.DUE


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("state", [S.QUEUED, S.OFFERED, S.RELEASING])
def test_a_resumed_message_waits_for_a_session(state: S, level: Level) -> None:
    """Without a session there is no peer to send to.

    A stored offer may have arrived.
    """
    after = resumed(outgoing(state, level), NOW)
    assert after.state is state
    assert after.due_at == math.inf
    assert after.doubted is (state is S.OFFERED)


@pytest.mark.parametrize(
    ("created_at", "expires_at", "expected"),
    [
        (NOW - 5, None, None),
        (NOW - 5, NOW + 1, NOW + 1),
        (NOW + 9000, NOW + 9030, NOW + 30),
        (NOW + 9000, None, None),
    ],
)
def test_a_deadline_is_no_further_ahead_than_it_was_at_acceptance(
    created_at: float, expires_at: float | None, expected: float | None
) -> None:
    """Otherwise a wrong clock that was set back would keep a message for years."""
    record = replace(outgoing(S.OFFERED), created_at=created_at, expires_at=expires_at)
    assert clamped(record, NOW).expires_at == expected
    assert resumed(record, NOW).expires_at == expected


@pytest.mark.parametrize(
    ("due_at", "expires_at", "expected"),
    [(5.0, None, 5.0), (5.0, 9.0, 5.0), (9.0, 5.0, 5.0), (math.inf, 5.0, 5.0)],
)
def test_the_alarm_is_the_sooner_of_attempt_and_deadline(
    due_at: float, expires_at: float | None, expected: float
) -> None:
    """A message that waits for its peer must still end in time."""
    record = replace(outgoing(S.OFFERED), due_at=due_at, expires_at=expires_at)
    assert wake_at(record) == expected


@pytest.mark.parametrize(
    ("expires_at", "expected"), [(None, False), (NOW + 1.0, False), (NOW, True)]
)
def test_a_message_is_overdue_from_its_deadline_on(
    expires_at: float | None, expected: bool
) -> None:
    """At that moment it ends, and is not attempted."""
    record = replace(outgoing(S.QUEUED), expires_at=expires_at)
    assert overdue(record, NOW) is expected


# --- honesty -----------------------------------------------------------------

ENDINGS = [I.REFUSED, I.DEADLINE]


@pytest.mark.parametrize("input_", ENDINGS)
@pytest.mark.parametrize("earlier", ["unanswered", "unsure", "restart"])
def test_acknowledged_is_in_doubt_when_any_attempt_may_have_arrived(
    earlier: str, input_: I
) -> None:
    """Its only step is a hand-over, and a lost answer hides it."""
    record = outgoing(S.OFFERED, Level.ACKNOWLEDGED)
    if earlier == "unsure":
        reply = Reply("offer-1", PEER, error="recipient-unavailable")
        record, _ = step(record, I.UNAVAILABLE, at(reply=reply))
    if earlier == "restart":
        record = resumed(record, NOW)
    record, _ = step(record, I.ATTEMPT, at(I.ATTEMPT))
    record, _ = step(record, I.UNAVAILABLE, at(I.UNAVAILABLE))
    after, effects = step(record, input_, at(input_))
    assert after.state is S.IN_DOUBT
    assert effects == (Forget(after), Settle(after))


@pytest.mark.parametrize("earlier", [False, True])
def test_an_attempt_that_was_not_sent_leaves_no_doubt_of_its_own(earlier: bool) -> None:
    """The doubt of an earlier attempt without an answer stays."""
    record = outgoing(S.OFFERED, Level.ACKNOWLEDGED)
    record = replace(record, unanswered=earlier, doubted=False)
    record, _ = step(record, I.ATTEMPT, at(I.ATTEMPT))
    after, _ = step(unsent(record), I.DEADLINE, at(I.DEADLINE))
    assert after.state is (S.IN_DOUBT if earlier else S.NOT_DELIVERED)


def test_an_attempt_that_is_sent_late_is_repeated_as_much_later() -> None:
    record, _ = step(outgoing(S.OFFERED, Level.ACKNOWLEDGED), I.ATTEMPT, at(I.ATTEMPT))
    assert postponed(record, 1.5).due_at == record.due_at + 1.5


def test_how_a_message_has_ended_takes_the_place_of_its_record() -> None:
    """Both are one write.

    After a crash either the message goes on or its end is known.
    """
    record = outgoing(S.OFFERED, Level.ACKNOWLEDGED)
    after, effects = step(record, I.CONFIRMED, at(remember=True))
    assert effects == (End(Ended.of(after, NOW)), Settle(after))
    ended = Ended.of(after, NOW)
    assert (ended.msg_id, ended.state, ended.ended_at) == (
        record.msg_id,
        S.DELIVERED,
        NOW,
    )


ABSENT = Route(PEER, NAMESPACES[2], absent=True)

#: Errors that a server, or a peer whose handler failed, sends for a message that may
#: have arrived.
UNSURE = [
    "gone",
    "internal-server-error",
    "recipient-unavailable",
    "remote-server-not-found",
    "remote-server-timeout",
    "service-unavailable",
    "undefined-condition",
]


@pytest.mark.parametrize("input_", ENDINGS)
def test_acknowledged_is_not_delivered_when_nobody_was_there_at_any_attempt(
    input_: I,
) -> None:
    """No session of the peer can have received what the server returned."""
    record = outgoing(S.QUEUED, Level.ACKNOWLEDGED)
    for _ in range(3):
        record, _ = step(record, I.ATTEMPT, at(I.ATTEMPT, route=ABSENT))
        record, _ = step(record, I.UNAVAILABLE, at(I.UNAVAILABLE))
    after, _ = step(record, input_, at(input_))
    assert after.state is S.NOT_DELIVERED


@pytest.mark.parametrize("input_", ENDINGS)
@pytest.mark.parametrize("condition", UNSURE)
def test_acknowledged_is_in_doubt_when_a_server_returned_what_may_have_arrived(
    condition: str, input_: I
) -> None:
    """ejabberd returns service-unavailable for stanzas that a lost connection had
    received.
    """
    reply = Reply("offer-1", PEER, error=condition)
    record = outgoing(S.OFFERED, Level.ACKNOWLEDGED)
    record, _ = step(record, I.UNAVAILABLE, at(reply=reply))
    assert record.doubted
    assert not record.unanswered
    record, _ = step(record, I.ATTEMPT, at(I.ATTEMPT, route=ABSENT))
    record, _ = step(record, I.CONSTRAINED, at(I.CONSTRAINED))
    after, _ = step(record, input_, at(input_))
    assert after.state is S.IN_DOUBT


@pytest.mark.parametrize("meanwhile", ["the peer came", "a new session"])
def test_that_the_peer_was_absent_proves_nothing_after_it_may_have_come(
    meanwhile: str,
) -> None:
    """It may have come in time for the attempt, and then lost its connection."""
    record = outgoing(S.QUEUED, Level.ACKNOWLEDGED)
    record, _ = step(record, I.ATTEMPT, at(I.ATTEMPT, route=ABSENT))
    assert record.absent
    if meanwhile == "the peer came":
        record = peer_available(record)
    else:
        record, _ = step(record, I.WAKE, at())
    assert peer_available(record) is record
    record, _ = step(record, I.UNAVAILABLE, at(I.UNAVAILABLE))
    assert record.doubted


@pytest.mark.parametrize(
    "condition", ["bad-request", "forbidden", "not-allowed", "resource-constraint"]
)
def test_a_refusal_by_the_peer_itself_leaves_no_doubt_of_that_attempt(
    condition: str,
) -> None:
    """It was there, and it says that it did not take the message."""
    reply = Reply("offer-1", PEER, error=condition)
    record = outgoing(S.OFFERED, Level.ACKNOWLEDGED)
    meaning = classify(record, reply, own=OWN)
    assert meaning is not None
    after, _ = step(record, meaning, at(reply=reply))
    assert not after.doubted
    assert after.state is not S.IN_DOUBT


@pytest.mark.parametrize("input_", ENDINGS)
def test_assured_is_not_delivered_however_often_it_was_offered(
    input_: I,
) -> None:
    """The peer holds it and never hands it over without a deliver."""
    record = outgoing(S.OFFERED)
    for _ in range(3):
        record, _ = step(record, I.ATTEMPT, at(I.ATTEMPT))
    after, _ = step(record, input_, at(input_))
    assert after.state is S.NOT_DELIVERED


def test_assured_is_not_delivered_again_certain_once_the_store_is_gone_unseen() -> None:
    """The hold of the only `deliver` is gone, and that `deliver` was answered."""
    record, _ = step(
        outgoing(S.RELEASING), I.STORE_GONE_UNSEEN, at(I.STORE_GONE_UNSEEN)
    )
    after, _ = step(record, I.DEADLINE, at())
    assert after.state is S.NOT_DELIVERED


@pytest.mark.parametrize("state", [S.QUEUED, S.OFFERED, S.RECEIVED])
def test_assured_can_be_withdrawn_before_the_first_deliver(state: S) -> None:
    """Nothing has been handed over, and nothing will be."""
    after, effects = step(outgoing(state), I.WITHDRAW, at())
    assert after.state is S.NOT_DELIVERED
    assert names(effects) == END


def test_assured_cannot_be_withdrawn_after_a_deliver() -> None:
    """The peer may have acted on it."""
    with pytest.raises(CannotWithdraw, match="releasing") as caught:
        step(outgoing(S.RELEASING), I.WITHDRAW, at())
    assert caught.value.msg_id == "m1"


@pytest.mark.parametrize(
    ("unanswered", "doubted"), [(True, False), (False, True), (True, True)]
)
def test_acknowledged_cannot_be_withdrawn_when_it_may_have_arrived(
    unanswered: bool, doubted: bool
) -> None:
    """Its only step is a hand-over."""
    record = outgoing(S.OFFERED, Level.ACKNOWLEDGED)
    record = replace(record, unanswered=unanswered, doubted=doubted)
    with pytest.raises(CannotWithdraw, match="offered"):
        step(record, I.WITHDRAW, at())


def test_acknowledged_can_be_withdrawn_while_the_peer_is_certainly_away() -> None:
    """Every attempt came back, and nobody was there."""
    record = outgoing(S.QUEUED, Level.ACKNOWLEDGED)
    record, _ = step(record, I.ATTEMPT, at(I.ATTEMPT, route=ABSENT))
    record, _ = step(record, I.UNAVAILABLE, at(I.UNAVAILABLE))
    after, _ = step(record, I.WITHDRAW, at())
    assert after.state is S.NOT_DELIVERED


@pytest.mark.parametrize("tries", [1, 2, 5])
@pytest.mark.parametrize("unanswered", [True, False])
def test_a_peer_that_comes_wakes_what_has_waited(unanswered: bool, tries: int) -> None:
    """A recent attempt is given its time: the presence may have another cause."""
    record = replace(outgoing(S.OFFERED), unanswered=unanswered, tries=tries)
    just_asked = unanswered and tries == 1
    assert on_peer(record) is (None if just_asked else I.WAKE)


def test_a_message_that_was_never_attempted_is_due_when_its_peer_comes() -> None:
    """There is nothing to spread: nobody has sent it yet."""
    assert on_peer(outgoing(S.QUEUED)) is I.DUE


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("state", [S.QUEUED, S.OFFERED])
def test_a_message_that_our_server_does_not_take_is_not_delivered(
    state: S, level: Level
) -> None:
    """As if the server had answered, where it would have ended the stream."""
    record = replace(outgoing(state, level), unanswered=False)
    refusal = too_large(record, size=300, limit=200, own=OWN)
    after, effects = step(record, I.REFUSED, at(I.REFUSED, reply=refusal))
    assert after.state is S.NOT_DELIVERED
    assert names(effects) == END
    assert (after.condition, after.condition_by) == ("policy-violation", "example.org")
    assert after.condition_text == "the stanza has 300 bytes, and the server takes 200"


def test_a_message_that_may_have_arrived_before_the_limit_is_in_doubt() -> None:
    """At level acknowledged: a link was cut, and the limit may have been another one."""
    record = replace(outgoing(S.OFFERED, Level.ACKNOWLEDGED), doubted=True)
    refusal = too_large(record, size=300, limit=200, own=OWN)
    after, _ = step(record, I.REFUSED, at(I.REFUSED, reply=refusal))
    assert after.state is S.IN_DOUBT
