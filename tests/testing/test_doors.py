"""The flood of the doors: what its table counts as kept, and that its attacks attack."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from doors.__main__ import flood
from doors.attacks import ATTACKS, EVERYTHING, NOBODY
from doors.report import BOUND_S, ENDED, Row, shown

CALM: Mapping[str, Any] = {"seconds": [0.01] * 100, "failures": {}}


def row(**kinds: Mapping[str, Any]) -> Row:
    """A row in which all else is calm."""
    doors = {"requests": CALM, "logins": CALM, "first": CALM}
    waits = {"http": {**doors, **kinds}, "amqp": doors, "xmpp": {"requests": CALM}}
    return Row(attack="all", waits=waits, done={"requests": 3}, rss_mb=100.0, load=0.5)


@pytest.mark.parametrize(
    ("kinds", "kept"),
    [
        ({}, True),
        ({"requests": {"seconds": [0.01] * 98 + [0.3] * 2, "failures": {}}}, False),
        ({"requests": {"seconds": [0.01] * 100, "failures": {"503": 1}}}, False),
        ({"first": {"seconds": [0.3] * 100, "failures": {}}}, True),
        ({"first": {"seconds": [1.1] * 100, "failures": {}}}, False),
    ],
)
def test_a_client_that_waits_too_long_or_is_refused_is_told(
    kinds: Mapping[str, Mapping[str, Any]], kept: bool
) -> None:
    """A table that never reports a failure is worth nothing."""
    assert row(**kinds).kept(BOUND_S) is kept


@pytest.mark.parametrize(
    ("attack", "kept"), [("XMPP bombs of XML", True), ("all", False)]
)
def test_clients_of_a_server_that_is_busy_itself_may_wait(
    attack: str, kept: bool
) -> None:
    """The service cannot help them; at its own doors nobody waits."""
    late: Mapping[str, Any] = {"seconds": [9.0] * 100, "failures": {}}
    calm = row()
    waits = {**calm.waits, "xmpp": {"requests": late}}
    assert replace(calm, attack=attack, waits=waits).kept(BOUND_S) is kept
    waits["http"] = {**calm.waits["http"], "requests": late}
    assert not replace(calm, attack=attack, waits=waits).kept(BOUND_S)


@pytest.mark.parametrize(
    ("attack", "kept"), [("wrong passwords", True), ("all", False)]
)
def test_where_strangers_log_in_a_login_may_take_a_second(
    attack: str, kept: bool
) -> None:
    """It stands in one line with theirs; a request of who is logged in does not."""
    late: Mapping[str, Any] = {"seconds": [0.9] * 100, "failures": {}}
    assert replace(row(logins=late), attack=attack).kept(BOUND_S) is kept
    assert not replace(row(requests=late), attack=attack).kept(BOUND_S)


@pytest.mark.parametrize(("seconds", "kept"), [(0.9, True), (1.1, False)])
def test_beside_all_attacks_at_once_a_client_may_wait_for_a_second(
    seconds: float, kept: bool
) -> None:
    """They leave it little of the machine, and still do not shut it out."""
    beside = row(requests={"seconds": [seconds] * 100, "failures": {}})
    assert replace(beside, attack=EVERYTHING).kept(BOUND_S) is kept
    assert not beside.kept(BOUND_S)


def test_a_service_or_an_attack_that_has_ended_is_told() -> None:
    """Neither lets anybody wait."""
    assert row().kept(BOUND_S)
    assert not replace(row(), rss_mb=0.0).kept(BOUND_S)
    assert not replace(row(), done={f"{ENDED}: OSError": 1}).kept(BOUND_S)


def test_the_table_names_each_attack_and_what_has_failed() -> None:
    """A failure without its reason would have to be searched for."""
    table = shown([row(requests={"seconds": [0.01], "failures": {"503 full": 2}})])
    assert "10/10/10 !2" in table
    assert "  http requests: 2 times 503 full" in table
    assert "all: 3 requests" in table


async def test_the_first_attack_is_none() -> None:
    """The others are compared with it."""
    first = next(iter(ATTACKS))
    assert first == NOBODY
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await ATTACKS[first](None, None)  # type: ignore[arg-type]  # it uses neither


#: Attacks of a short flood; `make flood` has all of them.
SHORT = (
    "AMQP transfers to nowhere",
    "AMQP dear selectors",
    "half-open TLS",
    "half-open logins",
    "wrong passwords",
)

#: Seconds of an attack, and the bound on a machine under load.
SHORT_S, SHORT_BOUND_S = 2.0, 3.0


@pytest.mark.long
@pytest.mark.xmpp
@pytest.mark.timeout(240)
async def test_honest_clients_are_served_beside_strangers_and_hostile_accounts(
    tmp_path: Path,
) -> None:
    """Each of these attacks once let everybody wait for as long as it went on."""
    rows = await flood(tmp_path, seconds=SHORT_S, attacks=SHORT)
    assert [row.attack for row in rows] == list(SHORT)
    for each in rows:
        assert each.done, each.attack
        assert each.kept(SHORT_BOUND_S), shown([each])
