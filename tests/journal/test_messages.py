"""The journal lines for each step of a message: a table, by the core's own steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from qos.core.backoff import Backoff
from qos.core.message import receiver, sender
from qos.core.message.model import (
    Incoming,
    IncomingState,
    Level,
    Outgoing,
    OutgoingState,
    Route,
)
from qos.core.message.receiver_table import At, ReceiverInput, Request
from qos.core.message.sender_table import At as SenderAt
from qos.core.message.sender_table import Reply, SenderInput
from qos.journal import Entry, ReceiverEvent, SenderEvent
from qos.journal import messages as journaled

NODE = "meter@example.org"
LAMP = "lamp@example.org/1"

_S, _I, _E = OutgoingState, SenderInput, SenderEvent


def outgoing(state: OutgoingState = _S.QUEUED, **changes: object) -> Outgoing:
    record = Outgoing(
        msg_id="m1",
        seq=1,
        to=LAMP,
        level=Level.ASSURED,
        payload="<message/>",
        size=10,
        created_at=0.0,
        state=state,
        offer_id="o",
        deliver_id="d",
    )
    if state is not _S.QUEUED:
        record = replace(record, attempts=1, peer=LAMP, namespace="urn:xmpp:qos")
    if state is _S.RELEASING:
        record = replace(record, attempts=2, delivers=1, hold="h")
    return replace(record, **changes)  # type: ignore[arg-type]


def sent(
    record: Outgoing, input_: SenderInput, error: str | None = None
) -> list[Entry]:
    reply = None if error is None else Reply("o", LAMP, error=error)
    if input_ is _I.RECEIVED:
        reply = Reply("o", LAMP, received="m1", hold="h")
    at = SenderAt(
        now=1.0,
        jitter=0.5,
        backoff=Backoff(),
        new_id=lambda: "new",
        route=Route(LAMP) if input_ is _I.ATTEMPT else None,
        reply=reply,
    )
    after, effects = sender.step(record, input_, at)
    return journaled.sent(after, input_, effects, node=NODE)


@pytest.mark.parametrize(
    ("record", "input_", "error", "event", "attempt", "condition"),
    [
        (outgoing(), _I.ATTEMPT, None, _E.OFFERED, 1, None),
        (outgoing(_S.OFFERED), _I.ATTEMPT, None, _E.OFFERED, 2, None),
        (outgoing(_S.OFFERED), _I.RECEIVED, None, _E.RECEIVED, None, None),
        (outgoing(_S.RECEIVED), _I.RELEASE, None, _E.RELEASED, 2, None),
        (outgoing(_S.RELEASING), _I.ATTEMPT, None, _E.RELEASED, 3, None),
        (outgoing(_S.RELEASING), _I.CONFIRMED, None, _E.DELIVERED, 2, None),
        (
            outgoing(_S.RELEASING, condition="gone"),
            *(_I.CONFIRMED, None, _E.DELIVERED, 2, None),
        ),
        (
            outgoing(_S.OFFERED, level=Level.ACKNOWLEDGED, offer_id="m1"),
            *(_I.CONFIRMED, None, _E.DELIVERED, 1, None),
        ),
        (
            outgoing(_S.OFFERED),
            *(_I.REFUSED, "not-allowed", _E.NOT_DELIVERED, 1, "not-allowed"),
        ),
        (outgoing(_S.RELEASING), _I.REFUSED, "x", _E.IN_DOUBT, 2, "x"),
        (outgoing(_S.RELEASING), _I.ORPHANED, None, _E.IN_DOUBT, 2, None),
        (
            outgoing(_S.RELEASING),
            *(_I.STORE_GONE, "item-not-found", _E.IN_DOUBT, 2, "item-not-found"),
        ),
        (outgoing(), _I.DEADLINE, None, _E.NOT_DELIVERED, 0, "deadline"),
        (
            outgoing(_S.OFFERED, condition="gone"),
            *(_I.DEADLINE, None, _E.NOT_DELIVERED, 1, "gone"),
        ),
        (outgoing(_S.RELEASING), _I.DEADLINE, None, _E.IN_DOUBT, 2, "deadline"),
        (outgoing(_S.OFFERED), _I.WITHDRAW, None, _E.WITHDRAWN, 1, None),
    ],
)
def test_each_step_of_a_sender_is_one_event(
    record: Outgoing,
    input_: SenderInput,
    error: str | None,
    event: SenderEvent,
    attempt: int | None,
    condition: str | None,
) -> None:
    """Readers of the journal count them."""
    level = record.level.value
    assert sent(record, input_, error) == [
        Entry(*(event, level, "m1", NODE, LAMP), attempt=attempt, condition=condition)
    ]


@pytest.mark.parametrize(
    ("record", "input_", "error"),
    [
        (outgoing(), _I.NO_ROUTE, None),
        (outgoing(_S.OFFERED), _I.DUE, None),
        (outgoing(_S.OFFERED), _I.WAKE, None),
        (outgoing(_S.OFFERED), _I.UNAVAILABLE, "remote-server-timeout"),
        (outgoing(_S.OFFERED), _I.CONSTRAINED, "resource-constraint"),
        (outgoing(_S.RECEIVED), _I.ATTEMPT, None),
        (outgoing(_S.RECEIVED), _I.ORPHANED, None),
        (outgoing(_S.RELEASING), _I.STORE_GONE_UNSEEN, "item-not-found"),
        (outgoing(_S.RELEASING), _I.NOT_MINE, "item-not-found"),
        (outgoing(_S.DELIVERED), _I.CONFIRMED, None),
    ],
)
def test_what_is_no_step_is_no_event(
    record: Outgoing, input_: SenderInput, error: str | None
) -> None:
    """The next attempt, or the outcome, has a line."""
    assert sent(record, input_, error) == []


def test_a_message_is_accepted_and_may_fail_to_be() -> None:
    """A component has a sender of its own for each message."""
    record = outgoing(sender="lamp7@things.example.org")
    assert journaled.accepted(record, node=NODE) == Entry(
        *(_E.ACCEPTED, "assured", "m1", "lamp7@things.example.org", LAMP), bytes=10
    )
    assert journaled.not_accepted(outgoing(), node=NODE) == Entry(
        *(_E.NOT_DELIVERED, "assured", "m1", NODE, LAMP), condition="not-stored"
    )


# -- the receiver ----------------------------------------------------------

_R, _IN = ReceiverEvent, ReceiverInput
SOURCE = "meter@example.org/1"


def request(kind: Literal["acknowledged", "assured", "deliver"]) -> Request:
    return Request(
        kind=kind,
        iq_id="iq1",
        source=SOURCE,
        to=LAMP,
        namespace="urn:xmpp:qos",
        msg_id="" if kind == "acknowledged" else "m1",
        payload="" if kind == "deliver" else "<message/>",
        size=0 if kind == "deliver" else 10,
        mark="" if kind == "acknowledged" else "store",
    )


def incoming(state: IncomingState = IncomingState.HELD, **changes: object) -> Incoming:
    record = Incoming(
        key=receiver.key_of(request("assured")),
        msg_id="m1",
        source=SOURCE,
        to=LAMP,
        level=Level.ASSURED,
        payload="<message/>",
        size=10,
        received_at=0.0,
        changed_at=0.0,
        state=state,
        mark="store",
        hold="h",
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def received(
    record: Incoming | None,
    input_: ReceiverInput,
    asked: Request | None = None,
    **at: object,
) -> list[Entry]:
    given = At(1.0, "token", **at)  # type: ignore[arg-type]
    after, effects = receiver.step(record, input_, given, asked)
    shown = record if input_ in {_IN.HANDED_OVER, _IN.CONSUMED} else after
    return journaled.received(shown, input_, effects, asked)


def of(event: ReceiverEvent, msg_id: str = "m1", **changes: object) -> Entry:
    level = "acknowledged" if msg_id == "iq1" else "assured"
    entry = Entry(event, level, msg_id, SOURCE, LAMP)
    return entry._replace(**changes)  # type: ignore[arg-type]


RELEASING = incoming(IncomingState.RELEASING)


@pytest.mark.parametrize(
    ("record", "input_", "asked", "at", "entries"),
    [
        (None, _IN.ASSURED, request("assured"), {}, [of(_R.HELD, bytes=10)]),
        (
            incoming(IncomingState.EXPIRED),
            *(_IN.ASSURED, request("assured"), {}, [of(_R.HELD, bytes=10)]),
        ),
        (incoming(), _IN.ASSURED, request("assured"), {}, []),
        (incoming(), _IN.DELIVER, request("deliver"), {}, [of(_R.RELEASED)]),
        (RELEASING, _IN.DELIVER, request("deliver"), {}, []),
        (RELEASING, _IN.RESTART, None, {}, []),
        (RELEASING, _IN.HANDED_OVER, request("deliver"), {}, [of(_R.DONE)]),
        (RELEASING, _IN.CONSUME, None, {}, []),
        (RELEASING, _IN.CONSUMED, request("deliver"), {}, [of(_R.DONE)]),
        (RELEASING, _IN.FAILED, None, {}, []),
        (incoming(IncomingState.PARKED), _IN.RELEASE, None, {}, [of(_R.RELEASED)]),
        (
            *(RELEASING, _IN.DROP_FORCED, None, {}),
            [of(_R.EXPIRED, condition="dropped")],
        ),
        (
            *(incoming(IncomingState.PARKED), _IN.DROP, None, {}),
            [of(_R.EXPIRED, condition="dropped")],
        ),
        (incoming(IncomingState.DONE), _IN.DELIVER, request("deliver"), {}, []),
        (incoming(IncomingState.DONE), _IN.FORGET, None, {}, []),
        (incoming(), _IN.EXPIRE, None, {}, [of(_R.EXPIRED)]),
        (None, _IN.DELIVER, request("deliver"), {}, []),
        (
            *(None, _IN.ACKNOWLEDGED, request("acknowledged"), {}),
            [of(_R.RELEASED, "iq1", bytes=10)],
        ),
        (
            *(None, _IN.ACKNOWLEDGED, request("acknowledged"), {"written": False}),
            [of(_R.RELEASED, "iq1", bytes=10)],
        ),
        (
            *(None, _IN.ACKNOWLEDGED, request("acknowledged"), {"exceeded": "all"}),
            [
                of(
                    *(_R.REFUSED, "iq1"),
                    bytes=10,
                    condition="resource-constraint",
                )
            ],
        ),
        (
            *(None, _IN.ASSURED, request("assured"), {"trusted": False}),
            [of(_R.REFUSED, bytes=10, condition="not-allowed")],
        ),
        (
            *(incoming(IncomingState.EXPIRED), _IN.DELIVER, request("deliver"), {}),
            [of(_R.REFUSED, level=None, condition="item-not-found")],
        ),
    ],
)
def test_each_step_of_a_receiver_is_one_event(
    record: Incoming | None,
    input_: ReceiverInput,
    asked: Request | None,
    at: dict[str, object],
    entries: list[Entry],
) -> None:
    """Except the hand-over, which is recorded when it is made."""
    assert received(record, input_, asked, **at) == entries


def test_a_hand_over_after_a_restart_is_told_from_one_before() -> None:
    """The one may be a repeat; the other must not be."""
    assert journaled.handed_over(RELEASING) == of(_R.HANDED_OVER)
    again = replace(RELEASING, redelivered=True)
    assert journaled.handed_over(again) == of(_R.REDELIVERED)


def test_what_could_not_be_written_has_ended_as_it_began() -> None:
    """The step is recorded again from the state that is on disk."""
    lost = [of(_R.EXPIRED, condition="not-stored")]
    assert journaled.not_kept(None, incoming()) == lost
    assert journaled.not_kept(incoming(IncomingState.EXPIRED), incoming()) == lost
    assert journaled.not_kept(incoming(), RELEASING) == []
    assert journaled.not_kept(incoming(IncomingState.DONE), None) == []


def test_what_a_consumer_did_and_could_not_be_written_is_still_to_be_done() -> None:
    """The last line about a message counts."""
    assert journaled.released(RELEASING) == of(_R.RELEASED)


def test_a_malformed_request_is_refused_by_who_sent_it() -> None:
    """Nothing else of it is known."""
    assert journaled.malformed(SOURCE, "", "bad-request") == Entry(
        _R.REFUSED, source=SOURCE, condition="bad-request"
    )
