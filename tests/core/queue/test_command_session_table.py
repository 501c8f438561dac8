"""The sessions of commands: whose they are, how many, and when they end."""

from __future__ import annotations

import pytest

from qos.core.queue.command_session import CommandRefusal, Session
from qos.core.queue.command_session_table import (
    ENDED_MAX,
    SESSION_S_MAX,
    SESSIONS_MAX,
    SESSIONS_PER_ACCOUNT_MAX,
    SESSIONS_PER_DOMAIN_MAX,
    CommandSessions,
)
from qos.core.queue.command_table import Command
from qos.core.queue.requests import Refusal
from qos.core.record import replace

BOSS = "boss@x"
NODE = Command.QUEUE.node


def session(session_id: str, account: str = BOSS) -> Session:
    return Session(session_id=session_id, account=account, command=Command.QUEUE)


@pytest.fixture
def sessions() -> CommandSessions:
    return CommandSessions({"x"})


def refusal(
    sessions: CommandSessions,
    session_id: str,
    account: str = BOSS,
    node: str = NODE,
    now: float = 0.0,
) -> str:
    """Why a request may not go on with a session."""
    with pytest.raises(Refusal) as caught:
        sessions.take(session_id, account, node, now)
    error = caught.value
    if not isinstance(error, CommandRefusal):
        return error.condition
    expected = {
        "bad-sessionid": ("bad-request", "modify"),
        "session-expired": ("not-allowed", "cancel"),
    }
    assert (error.condition, error.type) == expected[error.command]  # XEP-0050 §4.4
    return error.command


def test_a_session_goes_on_as_it_was_kept(sessions: CommandSessions) -> None:
    sessions.keep(session("s1"), 0.0)
    assert sessions.take("s1", BOSS, NODE, 0.0) == session("s1")
    changed = replace(session("s1"), node="orders")
    sessions.keep(changed, 0.0)
    assert sessions.take("s1", BOSS, NODE, 0.0) == changed
    assert len(sessions) == 1


def test_a_session_is_of_one_account_and_one_command(
    sessions: CommandSessions,
) -> None:
    """Another account learns nothing from the answer, of a session or of its end."""
    sessions.keep(session("s1"), 0.0)
    assert refusal(sessions, "none") == "bad-sessionid"
    assert refusal(sessions, "s1", "eve@x") == "bad-sessionid"
    assert refusal(sessions, "s1", node=Command.PURGE.node) == "bad-sessionid"
    sessions.end(session("s1"))
    assert refusal(sessions, "s1", "eve@x") == "bad-sessionid"
    assert refusal(sessions, "s1") == "session-expired"


def test_two_requests_at_once_do_nothing_twice(sessions: CommandSessions) -> None:
    sessions.keep(session("s1"), 0.0)
    sessions.take("s1", BOSS, NODE, 0.0)
    assert refusal(sessions, "s1") == "unexpected-request"
    sessions.release(session("s1"), 0.0)
    sessions.take("s1", BOSS, NODE, 0.0)


def test_a_session_ends_ten_minutes_after_its_last_request(
    sessions: CommandSessions,
) -> None:
    assert SESSION_S_MAX == 600
    sessions.keep(session("s1"), 0.0)
    sessions.keep(session("s2"), 100.0)
    sessions.take("s1", BOSS, NODE, 599.0)
    sessions.keep(session("s1"), 599.0)
    assert refusal(sessions, "s2", now=700.0) == "session-expired"
    sessions.take("s1", BOSS, NODE, 1198.0)
    # It ends while it is being worked on, and stays so.
    sessions.keep(session("s3"), 1199.0)
    sessions.release(session("s1"), 1199.0)
    assert refusal(sessions, "s1", now=1199.0) == "session-expired"
    assert len(sessions) == 1


def test_the_oldest_session_of_an_account_makes_room(
    sessions: CommandSessions,
) -> None:
    """A client that forgets its sessions can always begin another."""
    assert SESSIONS_PER_ACCOUNT_MAX == 10
    sessions.keep(session("other", "bee@x"), 0.0)
    for number in range(12):
        sessions.keep(session(f"s{number}"), 0.0)
    assert len(sessions) == 11
    assert [refusal(sessions, f"s{number}") for number in (0, 1)] == [
        "session-expired"
    ] * 2
    sessions.take("s2", BOSS, NODE, 0.0)
    sessions.take("other", "bee@x", NODE, 0.0)


def test_a_foreign_domain_and_all_together_have_their_bounds(
    sessions: CommandSessions,
) -> None:
    for number in range(SESSIONS_PER_DOMAIN_MAX):
        sessions.keep(session(f"f{number}", f"eve{number}@far"), 0.0)
    with pytest.raises(Refusal, match="by far") as caught:
        sessions.keep(session("f", "eve@far"), 0.0)
    assert (caught.value.condition, caught.value.type) == (
        "resource-constraint",
        "wait",
    )
    # One that has a session may have another, in its place.
    sessions.end(session("f0", "eve0@far"))
    sessions.keep(session("f", "eve@far"), 0.0)
    for number in range(SESSIONS_MAX - SESSIONS_PER_DOMAIN_MAX):
        sessions.keep(session(f"s{number}", f"bee{number}@x"), 0.0)
    with pytest.raises(Refusal, match="executed here at this time"):
        sessions.keep(session("s", "bee@x"), 0.0)
    assert len(sessions) == SESSIONS_MAX
    sessions.keep(session("s", "bee@x"), SESSION_S_MAX)
    assert len(sessions) == 1


def test_ended_sessions_are_remembered_up_to_a_number(
    sessions: CommandSessions,
) -> None:
    for number in range(ENDED_MAX + 1):
        sessions.end(session(f"s{number}"))
    assert refusal(sessions, "s0") == "bad-sessionid"
    assert refusal(sessions, "s1") == "session-expired"
