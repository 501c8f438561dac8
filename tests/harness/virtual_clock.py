"""The virtual clock of tests (looptime), repaired where it does not fit our loops."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pytest
from looptime import LoopTimeEventLoop

__all__ = ["counts", "on_the_way", "repair"]

#: What looptime knows of a loop, by the names that Python makes of it: its threads, the
#: select() below it, and how often it has found nothing to do, of how many times at most.
_IN_THREADS: Final = "_LoopTimeEventLoop__sync_futures"
_SELECT: Final = "_LoopTimeEventLoop__original_select"
_IDLE_CYCLE: Final = "_LoopTimeEventLoop__noop_cycle"
_IDLE_CYCLES: Final = "_LoopTimeEventLoop__noop_limit"

#: How long a look at the virtual clock takes, in seconds.
_LOOK_S: Final = 1e-9

#: How long the kernel may run before the clock jumps, in seconds of real time; and at most
#: while it is known to have bytes.
_ON_THE_WAY_S: Final = 0.001
_ON_THE_WAY_S_MAX: Final = 0.5

#: Linux: what the system knows of a connection (`struct tcp_info` of linux/tcp.h), and where
#: in it are the bytes that came, that were sent, and that were sent again.
_INFO: Final = getattr(socket, "TCP_INFO", None)
_INFO_BYTES: Final = 216
_CAME_AT: Final = 128
_SENT_AT: Final = 200

#: A connection, as one of its ends sees it: its own address, and that of the other end.
_Ends = tuple[tuple[str, int], tuple[str, int]]


def repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repair looptime until the end of a test.

    It must not forget what a fixture has begun in a thread, as the commits of a store:
    it would run ahead of them. And it must not stand still while somebody looks at it: a
    loop that sleeps until a moment, and comes to it a rounding error too early, would
    sleep again for no time at all, for ever. And it must not run ahead of bytes that are
    on their way from one socket of this process to another; see `_wait_for_sockets`.
    """
    set_up, loop_time = LoopTimeEventLoop.setup_looptime, LoopTimeEventLoop.time
    looks = itertools.count()

    def set_up_again(loop: LoopTimeEventLoop, **options: Any) -> None:
        begun = list(getattr(loop, _IN_THREADS, ()))
        is_new = not hasattr(loop, _SELECT)
        set_up(loop, **options)
        getattr(loop, _IN_THREADS).update(begun)
        if is_new:
            setattr(loop, _SELECT, _wait_for_sockets(loop, getattr(loop, _SELECT)))

    def time_goes_on(loop: LoopTimeEventLoop) -> float:
        passed_s = next(looks) * _LOOK_S if loop.looptime_on else 0.0
        return loop_time(loop) + passed_s

    monkeypatch.setattr(LoopTimeEventLoop, "setup_looptime", set_up_again)
    monkeypatch.setattr(LoopTimeEventLoop, "time", time_goes_on)


def _wait_for_sockets(
    loop: LoopTimeEventLoop, select: Callable[..., list[Any]]
) -> Callable[..., list[Any]]:
    """A select() that waits for a moment before the clock jumps, where there are sockets.

    On a busy machine a thread of the kernel carries bytes from one socket to another. It
    waits for a core, and the seconds of a test may pass before this process gives one up.
    So the clock does not jump either while a socket of the loop has sent more bytes than
    have come to its partner in the same loop. Acknowledgements would not tell that: one
    may be 40 ms late.
    """

    def select_or_wait(timeout: float | None) -> list[Any]:
        cycle, cycles = getattr(loop, _IDLE_CYCLE), getattr(loop, _IDLE_CYCLES)
        is_last = timeout == 0 and cycle is not None and cycle >= cycles
        # One is the loop's own, by which other threads wake it.
        sockets = loop._selector.get_map()
        if not is_last or len(sockets) == 1:
            return select(timeout)
        ends = time.monotonic() + _ON_THE_WAY_S_MAX
        while not (events := select(_ON_THE_WAY_S)):
            descriptors = [key.fd for key in sockets.values()]
            if not on_the_way(counts(descriptors)) or time.monotonic() > ends:
                break
        return events

    return select_or_wait


def counts(descriptors: Iterable[int]) -> dict[_Ends, tuple[int, int]]:
    """The bytes that each connection has sent, and that came to it, where Linux tells."""
    connections: dict[_Ends, tuple[int, int]] = {}
    if _INFO is None:
        return connections
    for descriptor in descriptors:
        try:
            beneath = socket.socket(fileno=descriptor)
        except OSError:  # no socket
            continue
        try:
            info = beneath.getsockopt(socket.IPPROTO_TCP, _INFO, _INFO_BYTES)
            ends = (beneath.getsockname()[:2], beneath.getpeername()[:2])
        except OSError:  # it listens, is not connected, or is no TCP
            continue
        finally:
            beneath.detach()
        if len(info) == _INFO_BYTES:
            sent, again = struct.unpack_from("QQ", info, _SENT_AT)
            (came,) = struct.unpack_from("Q", info, _CAME_AT)
            connections[ends] = (sent - again, came)
    return connections


def on_the_way(connections: Mapping[_Ends, tuple[int, int]]) -> bool:
    """Whether one end has sent bytes that have not come to the other one."""
    return any(
        sent > connections[there, here][1]
        for (here, there), (sent, _) in connections.items()
        if (there, here) in connections
    )
