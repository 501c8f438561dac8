"""`xmpp-qos bench link`: it counts the round trips that a client waits for."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

import pytest

from qos.bench.slow_link import SlowLink
from qos.cli import main
from qos.testing.ports import ADDRESS

ROUND_TRIP_S = 0.2

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


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
        async with asyncio.timeout(10):
            await client(reader, writer)
        writer.close()
        await writer.wait_closed()
    return link


@pytest.mark.parametrize("requests", [1, 3])
async def test_each_request_that_waits_for_the_last_answer_is_a_turn(
    requests: int,
) -> None:
    """And it takes the time of a round trip."""

    async def client(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for _ in range(requests):
            writer.write(b"a\n")
            assert await reader.readline() == b"a\n"

    began = time.monotonic()
    link = await over(ROUND_TRIP_S, echo, client)
    assert link.turns == requests
    assert link.first_at is not None
    assert link.first_at >= began
    assert time.monotonic() - link.first_at >= requests * ROUND_TRIP_S


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


def test_the_command_tells_turns_and_seconds_of_each_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A message costs more turns with TLS, and the first start more than a later one."""
    arguments = ("--delay", "100", "--messages", "5", "--repeat", "1", "--json")
    assert main(["bench", "link", *arguments]) == 0
    out, _ = capsys.readouterr()
    found = json.loads(out)
    assert (found["round_trip_s"], found["messages"]) == (0.1, 5)
    assert found["server"]["version"]
    rows = {
        (row["tls"], row["to"], row["restarted"], row["messages"]): row
        for row in found["rows"]
    }
    assert len(rows) == len(found["rows"]) == 10
    for row in rows.values():
        assert len(row["turns"]) == len(row["seconds"]) == 1
        assert row["seconds"][0] >= row["turns"][0] * 0.1
    (first,), (later,), (with_tls,) = (
        rows[key]["turns"]
        for key in (
            ("off", "full", False, 1),
            ("off", "full", True, 1),
            ("starttls", "full", True, 1),
        )
    )
    assert later < first
    assert later < with_tls
    assert {each["what"] for each in found["targets"]} == {
        f"turns of one message, {to} JID, a later start, TLS {tls}"
        for to in ("full", "bare")
        for tls in ("off", "starttls")
    }


@pytest.mark.parametrize(
    "arguments",
    [("--delay", "-1"), ("--delay", "x"), ("--messages", "0"), ("--repeat", "0")],
)
def test_a_wrong_argument_is_named(
    arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is measured."""
    assert main(["bench", "link", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"argument {arguments[0]}: '{arguments[1]}'" in err
