"""How long a roster is waited for, and which of its items count."""

from __future__ import annotations

from qos.core.roster_wait import Next, RosterWait, odd_items


def test_a_roster_is_waited_for_while_bytes_come() -> None:
    """3,000 contacts at 10 kB/s were asked for every 16 s, and came each time anew."""
    wait = RosterWait(0.0)
    steps = [wait.looked(15.0 * look, is_held=False) for look in range(1, 31)]
    assert steps == [Next.WAIT] * 30


def test_a_server_that_is_silent_is_asked_again_and_then_has_no_roster() -> None:
    """The session was never ready."""
    wait = RosterWait(3.0)
    steps = [wait.looked(3.0, is_held=False) for _ in range(3)]
    assert steps == [Next.ASK, Next.ASK, Next.EMPTY]


def test_a_server_that_sends_everything_but_the_roster_has_none() -> None:
    """Others' messages are no answer."""
    wait = RosterWait(0.0)
    steps = [wait.looked(float(look), is_held=False) for look in range(1, 41)]
    assert steps == [Next.WAIT] * 39 + [Next.EMPTY]


def test_a_pause_of_ours_is_not_the_servers_silence() -> None:
    """Nothing is read, and so nobody knows."""
    wait = RosterWait(0.0)
    assert {wait.looked(0.0, is_held=True) for _ in range(100)} == {Next.WAIT}
    assert wait.looked(0.0, is_held=False) is Next.ASK


def test_a_refusal_is_final_unless_it_says_wait() -> None:
    """A server without rosters was asked each second."""
    wait = RosterWait(0.0)
    assert [wait.refused("wait") for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert wait.refused("cancel") is None
    assert wait.refused("") is None


def test_items_that_nobody_can_read_are_left_out() -> None:
    """One of them, which any client of the account can add, kept the session unready."""
    jids = ["lamp@x", "", "🐎@x", "door@x"]
    assert odd_items(jids, str.isascii) == [1, 2]
