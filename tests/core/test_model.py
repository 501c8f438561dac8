"""Which message is meant by an id."""

import pytest

from qos.core.model import Incoming, Level, only
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
    """A full JID or an account, or nothing if nobody else has used the id."""
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
    """It could be dropped in place of the other: the error says whose they are."""
    with pytest.raises(AmbiguousMessage, match=r"'1', from alice.+/a, alice.+/b, bob"):
        only(RECORDS, "1", None)
    with pytest.raises(AmbiguousMessage) as caught:
        only(iter(RECORDS), "1", "alice@example.org")
    assert caught.value.msg_id == "1"
    assert caught.value.senders == ("alice@example.org/a", "alice@example.org/b")
