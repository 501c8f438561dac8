"""The delays between the sessions with one server."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from qos.core.backoff import Backoff
from qos.core.reconnects import LASTING_S, Reconnects

FIRST, LATER = Backoff(0.5, 5.0), Backoff(2.0, 300.0)


def longest() -> Reconnects:
    """As if each draw gave the longest delay."""
    return Reconnects(FIRST, LATER, lambda: 1.0)


def test_delays_grow_until_there_is_a_session() -> None:
    """A user is waiting for the first one: its delays are short."""
    delays = longest()
    assert [delays.refused() for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert delays.lost(LASTING_S) == 2.0
    assert [delays.refused() for _ in range(8)] == [4, 8, 16, 32, 64, 128, 256, 300]


def test_sessions_that_break_at_once_are_made_less_and_less_often() -> None:
    """But at least once a minute: the link may be a bad one, and the server well."""
    delays = longest()
    assert [delays.lost(0.3) for _ in range(7)] == [2, 4, 8, 16, 32, 60, 60]
    assert delays.lost(LASTING_S) == 2.0


def test_the_first_session_forgets_the_attempts_before_it() -> None:
    """A program that was started long before its server."""
    delays = longest()
    for _ in range(9):
        delays.refused()
    assert delays.lost(0.1) == 2.0


@pytest.mark.parametrize("devices", [300])
def test_devices_that_a_server_has_lost_come_back_spread(devices: int) -> None:
    """Over their first delay, and so without a peak in it."""
    draw = random.Random(5).random
    each = [Reconnects(FIRST, LATER, draw).lost(3600.0) for _ in range(devices)]
    assert min(each) < 0.1
    tenths = Counter(int(delay_s * 10) for delay_s in each)
    assert all(0 < tenths[tenth] <= 2 * devices / 20 for tenth in range(20))


def test_a_link_that_breaks_twice_a_minute_is_online_half_of_the_time() -> None:
    """The worst of its delays: with jitter they are half of that."""
    draw = random.Random(7).random
    delays = Reconnects(FIRST, LATER, draw)
    offline = [delays.lost(30.0) for _ in itertools.repeat(None, 1000)]
    assert sum(offline) / len(offline) < 31.0
