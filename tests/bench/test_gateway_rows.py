"""The gateways as rows.

A real service with its gateway, real clients, and the items left on disk.
"""

import sqlite3
import sys
from pathlib import Path

import pytest

from amqp_bench import rhea_folder
from benchmarks.amqp_clients import CLIENTS
from benchmarks.gateway_rows import (
    AmqpGateway,
    HttpGateway,
    PlainHttp,
    amqp_rows,
    http_rows,
)
from benchmarks.queue_roles import WORKERS
from benchmarks.sample import Work
from measuring import check, processes_in
from qos.testing.processes import NotInstalled
from waiting import LIMIT_S

WORK = Work(window=16, payload_bytes=200, seconds=0.2)
AGAIN = Work(window=1, payload_bytes=0, seconds=0.05)


@pytest.mark.parametrize("client", CLIENTS)
async def test_each_item_of_a_row_is_accepted_once_and_nothing_is_left(
    client: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each counted item was on disk, was delivered to a worker, and ended there."""
    monkeypatch.setenv("NODE_PATH", str(rhea_folder()))
    contender = AmqpGateway(client)
    try:
        await contender.start(tmp_path)
        first = await contender.measure(WORK)
        check(first, WORK, in_window=False)
        again = await contender.measure(AGAIN)
        check(again, AGAIN, in_window=False)
        assert first.confirmed_s is not None
        # No item is accepted at its publisher long after its worker has it.
        assert first.confirmed_s < first.seconds + LIMIT_S
        with sqlite3.connect(tmp_path / "queue.sqlite") as db:
            assert db.execute("SELECT COUNT(*) FROM item").fetchone() == (0,)
            done = first.messages + again.messages
            assert db.execute("SELECT accepted FROM node").fetchone() == (done,)
            workers = "SELECT COUNT(*) FROM subscription"
            assert db.execute(workers).fetchone() == (WORKERS,)
        db.close()
        assert len(processes_in(tmp_path)) == 3
    finally:
        await contender.stop()
    assert not processes_in(tmp_path)


async def test_what_is_only_published_is_on_disk_and_stays(tmp_path: Path) -> None:
    """Publish to accepted is measured by itself: nobody works beside it."""
    contender = AmqpGateway("proton", receives=False)
    try:
        await contender.start(tmp_path)
        sample = await contender.measure(WORK)
        assert sample.messages >= WORK.window
        assert sample.confirmed_s == sample.seconds >= 0.9 * WORK.seconds
        with sqlite3.connect(tmp_path / "queue.sqlite") as db:
            items = db.execute("SELECT COUNT(*) FROM item").fetchone()
        db.close()
        assert items == (sample.messages,)
    finally:
        await contender.stop()


async def test_without_rhea_it_is_said_in_one_line_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The benchmark leaves the row out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NODE_PATH", str(tmp_path))
    contender = AmqpGateway("rhea")
    with pytest.raises(NotInstalled, match=r"^there is no rhea .*npm install rhea, .*"):
        await contender.start(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotInstalled, match=r"^node .*package: nodejs\)$"):
        await contender.start(tmp_path)
    await contender.stop()


@pytest.mark.parametrize("client", CLIENTS)
async def test_without_proton_there_is_no_gateway(
    client: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also for rhea: the service itself needs it."""
    monkeypatch.setenv("NODE_PATH", str(rhea_folder()))
    monkeypatch.setitem(sys.modules, "proton", None)
    contender = AmqpGateway(client)
    with pytest.raises(
        NotInstalled, match=r"^there is no .*'\.\[amqp\]' in the folder of xmpp-qos$"
    ):
        await contender.start(tmp_path)
    await contender.stop()
    assert not processes_in(tmp_path)


async def test_by_http_each_item_is_taken_and_acknowledged_once(tmp_path: Path) -> None:
    """Likewise; three requests for each item."""
    contender = HttpGateway()
    try:
        await contender.start(tmp_path)
        first = await contender.measure(WORK)
        check(first, WORK, in_window=False)
        with sqlite3.connect(tmp_path / "queue.sqlite") as db:
            assert db.execute("SELECT COUNT(*) FROM item").fetchone() == (0,)
            accepted = db.execute("SELECT accepted FROM node").fetchone()
        db.close()
        assert accepted == (first.messages,)
        assert len(processes_in(tmp_path)) == 3
    finally:
        await contender.stop()
    assert not processes_in(tmp_path)


@pytest.mark.long
async def test_one_off_links_are_measured_beside_aiohttp_alone(tmp_path: Path) -> None:
    """Each item is posted once and stays; the floor keeps nothing."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "floor").mkdir()
    contender, floor = HttpGateway(once=True, receives=False), PlainHttp()
    try:
        await contender.start(tmp_path / "ours")
        await floor.start(tmp_path / "floor")
        sample = await contender.measure(WORK)
        with sqlite3.connect(tmp_path / "ours" / "queue.sqlite") as db:
            items = db.execute("SELECT COUNT(*) FROM item").fetchone()
        db.close()
        assert items == (sample.messages,)
        assert (await floor.measure(WORK)).messages >= WORK.window
    finally:
        await contender.stop()
        await floor.stop()
    assert not processes_in(tmp_path / "ours") + processes_in(tmp_path / "floor")


async def test_without_aiohttp_there_is_no_gateway_and_no_floor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The benchmark leaves the rows out."""
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    for contender in (HttpGateway(), PlainHttp()):
        with pytest.raises(
            NotInstalled,
            match=r"^there is no .*'\.\[rest\]' in the folder of xmpp-qos$",
        ):
            await contender.start(tmp_path)
        await contender.stop()
    assert not processes_in(tmp_path)


def test_there_is_a_row_for_each_client_and_way() -> None:
    """Where nobody works, one-off links are a way of their own."""
    assert [each.name for each in [*amqp_rows(), *http_rows()]] == [
        "AMQP gateway, rhea",
        "AMQP gateway, proton",
        "HTTP gateway",
    ]
    assert [each.name for each in http_rows(receives=False)] == [
        "HTTP gateway, publish only",
        "HTTP gateway, one-off, publish only",
    ]
