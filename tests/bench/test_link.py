"""`python -m benchmarks link`: it counts the round trips that a client waits for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from benchmarks.__main__ import main
from benchmarks.link import Plan, measure
from benchmarks.slow_link import SlowLink
from qos.testing.ports import ADDRESS
from waiting import limit

#: On the virtual clock.
ROUND_TRIP_S = 2.0

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The link's clock is that of the loop, which looptime turns."""

    def now() -> float:
        return asyncio.get_running_loop().time()

    monkeypatch.setattr("benchmarks.slow_link.time", SimpleNamespace(monotonic=now))


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each line."""
    while line := await reader.readline():
        writer.write(line)
    writer.close()


async def over(link_s: float, serve: Serve, client: Client) -> SlowLink:
    """Let a client work over a slow link; return the link."""
    server = await asyncio.start_server(serve, ADDRESS, 0)
    async with server, SlowLink(server.sockets[0].getsockname()[1], link_s) as link:
        reader, writer = await asyncio.open_connection(ADDRESS, link.port)
        async with limit():
            await client(reader, writer)
        writer.close()
        await writer.wait_closed()
    return link


@pytest.mark.looptime
@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("requests", [1, 3])
async def test_each_request_that_waits_for_the_last_answer_is_a_turn(
    requests: int,
) -> None:
    """And it takes the time of a round trip."""
    now = asyncio.get_running_loop().time
    ended_at = 0.0

    async def client(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        nonlocal ended_at
        for _ in range(requests):
            writer.write(b"a\n")
            assert await reader.readline() == b"a\n"
        ended_at = now()

    began = now()
    link = await over(ROUND_TRIP_S, echo, client)
    assert link.turns == requests
    # Each look at the virtual clock moves it by a nanosecond.
    assert link.first_at == pytest.approx(began, abs=1e-6)
    assert ended_at - began == pytest.approx(requests * ROUND_TRIP_S)


@pytest.mark.looptime
@pytest.mark.usefixtures("clock")
async def test_requests_that_do_not_wait_are_one_turn() -> None:
    """Even if the server's bytes for the first are seen before the second is sent."""

    async def client(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for _ in range(3):
            writer.write(b"a\n")
            await asyncio.sleep(ROUND_TRIP_S / 8)
        for _ in range(3):
            assert await reader.readline() == b"a\n"

    link = await over(ROUND_TRIP_S, echo, client)
    assert link.turns == 1


@pytest.mark.looptime
@pytest.mark.usefixtures("clock")
async def test_what_the_server_sends_unasked_is_no_turn() -> None:
    """The presence of contacts comes whenever it comes."""

    async def chatter(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"hello\n" * 3)
        await echo(reader, writer)

    async def client(
        reader: asyncio.StreamReader, _writer: asyncio.StreamWriter
    ) -> None:
        for _ in range(3):
            assert await reader.readline() == b"hello\n"

    link = await over(ROUND_TRIP_S, chatter, client)
    assert link.turns == 0


def measured(capsys: pytest.CaptureFixture[str], delay_ms: int = 100) -> dict[str, Any]:
    """What the command tells, in a short form."""
    delay = ("--delay", str(delay_ms))
    arguments = (*delay, "--messages", "5", "--repeat", "1", "--json")
    assert main(["link", *arguments]) == 0
    out, _ = capsys.readouterr()
    found: dict[str, Any] = json.loads(out)
    return found


def rows_of(found: dict[str, Any]) -> dict[tuple[object, ...], dict[str, Any]]:
    return {
        (row["tls"], row["to"], row["restarted"], row["messages"]): row
        for row in found["rows"]
    }


def test_the_command_tells_turns_and_seconds_of_each_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = measured(capsys, delay_ms=20)
    assert (found["round_trip_s"], found["messages"]) == (0.02, 5)
    assert found["server"]["version"]
    rows = rows_of(found)
    assert len(rows) == len(found["rows"]) == 10
    for row in rows.values():
        assert len(row["turns"]) == len(row["seconds"]) == 1
        assert row["turns"][0] > 0
        assert row["seconds"][0] >= row["turns"][0] * 0.02
    assert {each["what"] for each in found["targets"]} == {
        f"turns of one message, {to} JID, a later start, TLS {tls}"
        for to in ("full", "bare")
        for tls in ("off", "starttls")
    }


class Device:
    """In place of a device: it notes how it logs in, and to whom it sends."""

    def __init__(
        self, seen: list[tuple[object, ...]], jid: str, **options: Any
    ) -> None:
        self._seen, self._sends = seen, jid.startswith("sender@")
        self._port, self._tls = options["port"], options["tls"]
        self._store = Path(options["store"].partition(":")[2])

    async def __aenter__(self) -> Self:
        self._restarted = self._store.exists()
        if self._sends:
            self._store.touch()
            reader, writer = await asyncio.open_connection(ADDRESS, self._port)
            writer.write(b"hello\n")
            await reader.readline()
            writer.close()
        return self

    async def __aexit__(self, *_ended: object) -> None:
        return

    async def send(self, to: str, _body: str) -> None:
        self._seen.append((self._tls, "full" if "/" in to else "bare", self._restarted))

    async def messages(self) -> AsyncIterator[None]:
        await asyncio.get_running_loop().create_future()
        yield


async def test_each_row_is_of_the_login_and_of_the_messages_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many turns such a login takes, only a link with a real delay could tell: a turn
    is told from others by its time, so a busy machine counts one too many.
    """
    seen: list[tuple[object, ...]] = []
    connect = partial(Device, seen)
    monkeypatch.setattr(
        "benchmarks.link.qos",
        SimpleNamespace(
            connect=lambda jid, _password="", **given: connect(jid, **given)
        ),
    )
    listening = await asyncio.start_server(echo, ADDRESS, 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        logins = (
            SimpleNamespace(
                jid=f"{name}@localhost", password="", host=ADDRESS, port=port
            )
            for name in ("sender", "receiver")
        )
        sender, receiver = logins
        server = SimpleNamespace(sender=sender, receiver=receiver, ca_file=None)
        plan = Plan(round_trip_s=0.0, messages=3, repeat=1)
        async with limit():
            part = await measure(cast(Any, server), tmp_path, plan, lambda _text: None)
    rows = part.figures["rows"]
    assert seen == [
        (row["tls"], row["to"], row["restarted"])
        for row in cast(list[dict[str, Any]], rows)
        for _ in range(row["messages"])
    ]
    assert len(seen) == 2 * (4 + 3)


@pytest.mark.parametrize(
    "arguments",
    [("--delay", "-1"), ("--delay", "x"), ("--messages", "0"), ("--repeat", "0")],
)
def test_a_wrong_argument_is_named(
    arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is measured."""
    assert main(["link", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"argument {arguments[0]}: '{arguments[1]}'" in err
