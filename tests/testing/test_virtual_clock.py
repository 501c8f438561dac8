"""The virtual clock of tests does not run ahead of bytes between two of their sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

import virtual_clock

pytestmark = pytest.mark.looptime

Select = Callable[..., list[Any]]


def busy_kernel(monkeypatch: pytest.MonkeyPatch, may_run: Callable[[], None]) -> None:
    """Let the kernel of the running loop run only while the loop waits in real time."""
    loop = asyncio.get_running_loop()
    selector = loop._selector  # type: ignore[attr-defined]

    def select(timeout: float | None) -> list[Any]:
        if timeout:
            may_run()
        return list(type(selector).select(selector, timeout))

    waiting = virtual_clock._wait_for_sockets(loop, select)  # type: ignore[arg-type]
    monkeypatch.setattr(loop, virtual_clock._SELECT, waiting)


async def test_bytes_that_are_on_their_way_come_before_the_next_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine, an answer came after the seconds in which it was expected."""
    loop = asyncio.get_running_loop()
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        arrived = asyncio.Event()
        loop.add_reader(here, arrived.set)
        began = loop.time()
        busy_kernel(monkeypatch, lambda: there.sendall(b"x"))
        async with asyncio.timeout(5):
            await arrived.wait()
        loop.remove_reader(here)
    assert loop.time() - began == pytest.approx(0, abs=0.01)


async def test_the_clock_waits_while_the_kernel_is_known_to_have_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often its thread does not get a core."""
    loop = asyncio.get_running_loop()
    here, there = socket.socketpair()
    waits = 0

    def run_at_last() -> None:
        nonlocal waits
        waits += 1
        if waits == 7:
            there.sendall(b"x")

    with here, there:
        here.setblocking(False)
        arrived = asyncio.Event()
        loop.add_reader(here, arrived.set)
        began = loop.time()
        monkeypatch.setattr(virtual_clock, "on_the_way", lambda _counts: True)
        busy_kernel(monkeypatch, run_at_last)
        async with asyncio.timeout(5):
            await arrived.wait()
        loop.remove_reader(here)
    assert waits == 7
    assert loop.time() - began == pytest.approx(0, abs=0.01)


async def test_what_a_connection_has_sent_and_got_is_known() -> None:
    """Of both ends, if both are in the loop; of a pipe and a listener nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
        with here, there:
            here.sendall(b"x" * 10)
            assert there.recv(3) == b"xxx"
            ends = (here.getsockname(), there.getsockname())
            sockets = (0, server.fileno(), here.fileno(), there.fileno())
            found = virtual_clock.counts(sockets)
            assert found == {ends: (10, 0), ends[::-1]: (0, 10)}
            assert not virtual_clock.on_the_way(found)
            assert virtual_clock.on_the_way(found | {ends[::-1]: (0, 9)})
            assert not virtual_clock.on_the_way({ends: (10, 0)})


async def test_where_there_is_no_socket_the_clock_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[None] = []
    busy_kernel(monkeypatch, lambda: waits.append(None))
    await asyncio.sleep(5)
    assert waits == []
