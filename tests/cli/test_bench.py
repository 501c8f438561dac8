"""`xmpp-qos bench`: true figures of messages and queues, with the accounts of a user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qos.bench import messages
from qos.bench.figures import Figures, figures_of, head, line
from qos.bench.queue import QueueTraffic
from qos.cli import bench
from qos.cli.options import parse
from qos.cli.status import Status
from qos.errors import CannotConnect, NotDelivered, QosError, RequestRefused
from qos.testing import Link, LoopbackServer, friends, logged_in, queue_service
from xep_0254.queueing import XEP_0254

QUEUES = "queue.localhost"
ROW = ("--seconds", "0.1", "--size", "100")


async def measured(
    server: LoopbackServer,
    capfd: pytest.CaptureFixture[str],
    *words: str,
    user: str = "alice",
    status: int = 0,
) -> tuple[str, str]:
    """Run `xmpp-qos bench` in this process; return its stdout and stderr."""
    login = ("--jid", f"{user}@localhost", "--host", "127.0.0.1", "--tls", "off")
    given = [*words, *login, "--port", str(server.port), *ROW]
    assert await bench.run(parse(bench.parser("xmpp-qos bench"), given)) == status
    out, err = capfd.readouterr()
    return out, err


def rows(out: str) -> list[dict[str, Any]]:
    return [json.loads(each) for each in out.splitlines()]


async def queues(server: LoopbackServer) -> list[str]:
    async with logged_in(server, "alice/looks", {"xep_0254": {}}) as client:
        return await XEP_0254.of(client).nodes(QUEUES)


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XMPP_QOS_PASSWORD", "secret")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.parametrize("store", ["sqlite", "memory"])
async def test_each_level_and_window_is_a_row(
    store: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with friends("alice", "bob") as server:
        words = ("--to", "bob@localhost", "--windows", "1", "8", "1", "--json")
        out, err = await measured(server, capfd, "messages", *words, "--store", store)
    found = rows(out)
    assert [(row["row"], row["window"]) for row in found] == [
        (level, window)
        for level in ("unacknowledged", "acknowledged", "assured")
        for window in (1, 8)
    ]
    for row in found:
        assert row["messages"] >= row["window"]
        assert row["rate"] == row["messages"] / row["seconds"]
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["p999_ms"] <= row["max_ms"]
        assert row["max_ms"] <= row["seconds"] * 1000
        assert row["cpu_us"] > 0
        assert (row["missing"], row["twice"], row["payload_bytes"]) == (0, 0, 100)
        assert row["confirmed_rate"] is None
    assert err == ""


async def test_one_account_is_enough(capfd: pytest.CaptureFixture[str]) -> None:
    """Somebody who tries a server may have no other. People get a table."""
    async with LoopbackServer(accounts={"alice": "secret"}) as server:
        words = ("--levels", "assured", "--windows", "4")
        out, err = await measured(server, capfd, "messages", *words)
    titles, row = out.splitlines()
    assert titles == head()
    assert row.startswith("assured, window 4  ")
    assert len(row) == len(titles) <= 120
    assert row.split()[-2:] == ["0", "0"]
    assert err == ""


async def test_another_account_has_a_password_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bob").write_text("another\n")
    async with LoopbackServer(accounts={"alice": "secret", "bob": "another"}) as server:
        words = ["--to", "bob@localhost", "--to-password-file", str(tmp_path / "bob")]
        words += ["--levels", "acknowledged", "--windows", "1", "--json"]
        out, _ = await measured(server, capfd, "messages", *words)
    assert rows(out)[0]["missing"] == 0


async def test_a_refused_login_says_of_which_account(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with LoopbackServer(accounts={"alice": "secret", "bob": "another"}) as server:
        with pytest.raises(CannotConnect, match=r"^bob@localhost: .*not-authorized"):
            await measured(server, capfd, "messages", "--to", "bob@localhost")


async def test_what_comes_twice_is_counted(capfd: pytest.CaptureFixture[str]) -> None:
    """Plain messages may; assured ones do not, whatever the link does."""
    async with friends("alice", "bob", link=Link(1, duplicate=0.5)) as server:
        words = ("--to", "bob@localhost", "--windows", "8", "--json")
        out, _ = await measured(
            server, capfd, "messages", *words, "--levels", "unacknowledged", "assured"
        )
    plain, assured = rows(out)
    assert plain["twice"] > 0
    assert assured["twice"] == 0


async def test_what_is_lost_is_counted(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At level unacknowledged no promise is broken by it."""
    monkeypatch.setattr(messages, "WAIT_S", 0.2)
    async with friends("alice", "bob", link=Link(1, loss=0.5)) as server:
        words = ("--to", "bob@localhost", "--windows", "8", "--json")
        out, err = await measured(
            server, capfd, "messages", *words, "--levels", "unacknowledged"
        )
    (row,) = rows(out)
    assert 0 < row["missing"] <= row["messages"]
    assert "messages: did not arrive within 0.2 s" in err


async def test_messages_that_are_refused_are_missing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason, and a status that a script sees."""
    usual = messages.options

    def distrusting(store: str, _sender: str, window: int) -> dict[str, Any]:
        return usual(store, "nobody@localhost", window)

    monkeypatch.setattr(messages, "options", distrusting)
    async with LoopbackServer(accounts={"alice": "secret", "bob": "secret"}) as server:
        words = ("--to", "bob@localhost", "--levels", "assured", "--windows", "2")
        out, err = await measured(
            server, capfd, "messages", *words, "--json", status=Status.NOT_DELIVERED
        )
    (row,) = rows(out)
    assert row["missing"] == row["messages"] > 0
    assert row["rate"] == 0
    assert row["p50_ms"] is None
    assert "messages: not delivered: " in err


async def test_a_queue_is_made_measured_and_deleted(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with (
        friends("alice", components={QUEUES: "secret"}) as server,
        queue_service(server, QUEUES),
    ):
        words = ("queue", QUEUES, "--workers", "2", "--windows", "1", "16")
        out, err = await measured(server, capfd, *words, "--json")
        assert await queues(server) == []
    found = rows(out)
    assert [(row["row"], row["window"]) for row in found] == [
        ("queue, 2 workers", 1),
        ("queue, 2 workers", 16),
    ]
    for row in found:
        assert (row["missing"], row["twice"]) == (0, 0)
        assert row["confirmed_rate"] >= row["rate"] > 0
        assert 0 < row["p50_ms"] <= row["max_ms"]
    assert err == ""


async def test_the_table_of_a_queue_has_the_confirms(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with (
        friends("alice", components={QUEUES: "secret"}) as server,
        queue_service(server, QUEUES),
    ):
        out, _ = await measured(server, capfd, "queue", QUEUES, "--windows", "4")
    titles, row = out.splitlines()
    assert titles == head(queue=True)
    assert "confirm/s   items/s" in titles
    assert len(row) == len(titles) <= 120


async def test_who_may_make_no_queue_is_told_so(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with (
        friends("alice", components={QUEUES: "secret"}) as server,
        queue_service(server, QUEUES, creators=["boss@localhost"]),
    ):
        with pytest.raises(RequestRefused, match="forbidden"):
            await measured(server, capfd, "queue", QUEUES)


async def test_a_queue_is_deleted_though_the_run_has_failed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would know that it is there."""

    async def fail(self: QueueTraffic, **_work: object) -> Figures:
        raise NotDelivered("1", to=QUEUES, level="assured", attempts=1)

    monkeypatch.setattr(QueueTraffic, "measure", fail)
    async with (
        friends("alice", components={QUEUES: "secret"}) as server,
        queue_service(server, QUEUES),
    ):
        with pytest.raises(QosError):
            await measured(server, capfd, "queue", QUEUES)
        assert await queues(server) == []


def test_figures_are_those_of_what_ended_well() -> None:
    """Five messages, of which one is missing."""
    found = figures_of(
        "assured",
        window=2,
        payload_bytes=200,
        messages=5,
        latencies_s=[0.004, 0.001, 0.003, 0.002],
        seconds=2.0,
        cpu_s=0.01,
        twice=1,
    )
    assert found == Figures(
        row="assured",
        window=2,
        payload_bytes=200,
        messages=5,
        seconds=2.0,
        rate=2.0,
        p50_ms=2.0,
        p99_ms=4.0,
        p999_ms=4.0,
        max_ms=4.0,
        cpu_us=2000.0,
        missing=1,
        twice=1,
    )
    assert line(found).split() == [
        *("assured,", "window", "2", "2", "2.0", "4.0", "4.0", "4.0"),
        *("2,000", "1", "1"),
    ]
