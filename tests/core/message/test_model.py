"""The message that an id means."""

from dataclasses import replace

import pytest

from qos.core.message.model import Incoming, IncomingState, Level, only
from qos.core.strings import one_line
from qos.errors import AmbiguousMessage, UnknownMessage


def message(msg_id: str, source: str) -> Incoming:
    return Incoming(
        key=f"{source} {msg_id}",
        msg_id=msg_id,
        source=source,
        to="lamp@example.org/1",
        level=Level.ASSURED,
        payload="<message/>",
        size=10,
        received_at=0.0,
        changed_at=0.0,
    )


OURS = replace(message("1", "alice@example.org/a"), mark="store-1", hold="h1")
THEIRS = replace(OURS, mark="")


@pytest.mark.parametrize(
    "again",
    [
        replace(OURS, redelivered=True, state=IncomingState.RELEASING, changed_at=9.0),
        replace(OURS, source="alice@example.org/b"),
        replace(OURS, mark="store-2", key="another", hold="h2"),
    ],
    ids=["handed over again", "another resource", "another store"],
)
def test_what_one_of_ours_says_again_is_the_same(again: Incoming) -> None:
    """Our sender never uses an id twice.

    An application that does so means the same message.
    """
    assert again.identity == OURS.identity


@pytest.mark.parametrize(
    "other",
    [
        replace(OURS, source="bob@example.org/a"),
        replace(OURS, msg_id="2"),
        THEIRS,
    ],
    ids=["account", "msgId", "not ours"],
)
def test_what_another_says_or_says_otherwise_is_another(other: Incoming) -> None:
    """Knowing an id must not be enough to replace somebody's message."""
    assert other.identity != OURS.identity


def test_a_hand_over_again_of_one_that_is_not_ours_is_the_same() -> None:
    """While it is held, everything that identifies it is on disk."""
    again = replace(
        THEIRS, redelivered=True, state=IncomingState.RELEASING, changed_at=9.0
    )
    assert again.identity == THEIRS.identity


@pytest.mark.parametrize(
    "other",
    [
        replace(THEIRS, source="alice@example.org/b", key="b 1"),
        replace(THEIRS, hold="h2"),
        replace(THEIRS, level=Level.ACKNOWLEDGED, key="token-1", hold=""),
    ],
    ids=["another resource", "the id again after a success", "acknowledged"],
)
def test_who_counts_from_1_again_says_something_new(other: Incoming) -> None:
    """Two small devices of one account may count from 1, each again after its start."""
    assert other.identity != THEIRS.identity


RECORDS = [
    message("1", "alice@example.org/a"),
    message("1", "alice@example.org/b"),
    message("1", "bob@example.org/b"),
    message("2", "bob@example.org/b"),
]


@pytest.mark.parametrize(
    ("msg_id", "source", "index"),
    [
        ("1", "alice@example.org/b", 1),
        ("1", "bob@example.org", 2),
        ("2", None, 3),
        ("2", "bob@example.org/b", 3),
    ],
)
def test_it_is_the_only_one_from_there(
    msg_id: str, source: str | None, index: int
) -> None:
    """`sender` is a full JID or an account; without it the id must be unique."""
    assert only(RECORDS, msg_id, source) is RECORDS[index]


@pytest.mark.parametrize(
    ("msg_id", "source"), [("3", None), ("2", "alice@example.org"), ("1", "bob")]
)
def test_it_may_be_unknown(msg_id: str, source: str | None) -> None:
    """The error has the id."""
    with pytest.raises(UnknownMessage) as caught:
        only(RECORDS, msg_id, source)
    assert caught.value.msg_id == msg_id


def test_of_several_none_is_taken() -> None:
    """Otherwise one could be dropped in place of the other.

    The error names the senders.
    """
    with pytest.raises(AmbiguousMessage, match=r"'1', from alice.+/a, alice.+/b, bob"):
        only(RECORDS, "1", None)
    with pytest.raises(AmbiguousMessage) as caught:
        only(iter(RECORDS), "1", "alice@example.org")
    assert caught.value.msg_id == "1"
    assert caught.value.senders == ("alice@example.org/a", "alice@example.org/b")


def test_a_text_of_somebody_else_is_one_short_line() -> None:
    """It is shown on terminals and in logs."""
    assert one_line("a\nb\x1b[2J\x85  c\u202e ") == "a b [2J c"
    assert len(one_line("x" * 1000)) == 500
