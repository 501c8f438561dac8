"""A flood, in a short form: `make flood` has the whole minute, and its figures."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from benchmarks.flood import TIMES_QUOTA, Flood, Flooded, measure

FLOOD = Flood(senders=10, quota=20, seconds=2.0)


async def test_senders_over_their_quotas_leave_an_honest_peer_served(
    tmp_path: Path,
) -> None:
    """Each is refused separately.

    Nobody waits for them, and nothing of their messages is kept.
    """
    flooded = await measure(FLOOD, tmp_path)
    assert flooded.sent == FLOOD.senders * FLOOD.quota * TIMES_QUOTA
    held = FLOOD.senders * FLOOD.quota
    refused = flooded.sent - held
    assert flooded.answers == {"received": held, "resource-constraint": refused}
    assert flooded.unanswered == 0
    assert flooded.rss_bytes < FLOOD.rss_bytes_max
    # Each of its messages was answered; how fast, a machine under load does not tell.
    assert flooded.before
    assert flooded.beside


@pytest.mark.long
async def test_an_honest_peer_hardly_waits_for_senders_over_their_quotas(
    tmp_path: Path,
) -> None:
    """Other tests use the processors as well: a p99 has no meaning here."""
    flooded = await measure(FLOOD, tmp_path)
    assert median(flooded.beside) < 5 * median(flooded.before) + 0.05


def test_what_is_wanted_is_missed_by_what_is_not_so() -> None:
    """A table that never reports a failure is worth nothing."""
    flooded = Flooded(
        before=[0.001] * 100,
        beside=[0.003] * 100,
        sent=2_000,
        answers={"received": 201, "resource-constraint": 1_700},
        rss_bytes=FLOOD.rss_bytes_max + 1,
    )
    assert [target.met for target in flooded.targets(FLOOD)] == [False] * 4
