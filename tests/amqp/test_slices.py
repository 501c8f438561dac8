"""Input by AMQP is handled in short turns, paid by its account, at its rate.

Turns and rates are counted by a clock of the tests: it moves while a frame is handled, and
when a test says so.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from amqp_bench import Bench, gateway
from amqp_frames import transfer
from frame_peer import (
    ACCEPTED,
    ATTACH,
    CLOSE,
    DETACH,
    DISPOSITION,
    NULL,
    TRUE,
    FramePeer,
    described,
)
from qos.amqp import intake
from qos.amqp.pump import Pump
from qos.core.amqp import values
from qos.core.amqp.frames import FrameCutter
from qos.core.payers import BURST_S, Rates
from qos.engine import payers
from qos.engine.payers import STEP_S, TURN_S, Payers
from qos.testing import ManualClock
from turned_time import turned
from waiting import until

TEXT = b"\x00\x53\x77\xa1\x01x"

#: What a frame takes, by the clock. Half a second for those of a read was real.
FRAME_S = 0.0001

ALICE, BOB = "alice@queue.example.org", "bob@queue.example.org"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock; proton needs FRAME_S of it for each frame."""
    clock = turned(monkeypatch, intake)
    push = Pump.push

    def dear(pump: Pump, data: bytes) -> None:
        clock.advance(FRAME_S * len(FrameCutter(1 << 20).cut(data)))
        push(pump, data)

    monkeypatch.setattr(Pump, "push", dear)
    return clock


@pytest.fixture
def turns_s(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> list[float]:
    """The time of each turn, by the clock."""
    found: list[float] = []
    turn = Payers._turn

    def measured(payers: Payers) -> None:
        began = clock.now()
        turn(payers)
        found.append(clock.now() - began)

    monkeypatch.setattr(Payers, "_turn", measured)
    return found


@contextlib.asynccontextmanager
async def slices(folder: Path, clock: ManualClock) -> AsyncIterator[Bench]:
    """A gateway whose accounts pay by this clock."""
    async with gateway(folder) as bench:
        bench.engine.payers.now = clock.now
        yield bench


@contextlib.asynccontextmanager
async def time_passes(clock: ManualClock) -> AsyncIterator[None]:
    """Move the clock whenever the gateway lets a peer wait for its rate, and only then."""

    async def passes() -> None:
        while True:
            due = clock.deadline()
            if due is not None:
                clock.jump(max(due, clock.now()))
            await asyncio.sleep(0.001)

    passing = asyncio.create_task(passes())
    try:
        yield
    finally:
        passing.cancel()


def attaches(peer: FramePeer, count: int) -> None:
    """Send links that are refused and detached: work, with few bytes."""
    for number in range(count):
        name = values.string(f"in-{number}")
        handle, source = values.uint(1), described(0x28, values.string("nowhere"))
        peer.send(ATTACH, name, handle, TRUE, NULL, NULL, source, described(0x29))
        peer.send(DETACH, handle, TRUE)


async def refused_attach(peer: FramePeer, number: int) -> None:
    await peer.attach(f"out-{number}", target="nowhere", handle=number)
    await peer.frame(DETACH)


async def test_a_flood_of_frames_leaves_no_long_turn(
    tmp_path: Path, clock: ManualClock, turns_s: list[float]
) -> None:
    """A read of 256 KiB was handled in one turn: half a second of these."""
    async with slices(tmp_path, clock) as bench, FramePeer(bench.port) as peer:
        bench.engine.payers.limit(Rates(requests=0))
        attaches(peer, 2000)
        peer.send(CLOSE)
        await peer.frame(CLOSE)
    assert sum(turns_s) > 4000 * FRAME_S > 100 * TURN_S
    # With the frame that was begun before its end.
    assert max(turns_s) < TURN_S + 1.5 * FRAME_S


async def test_all_that_came_before_the_end_is_handled(tmp_path: Path) -> None:
    """A peer that has sent its last bytes hears what has become of them."""
    async with gateway(tmp_path) as bench, FramePeer(bench.port) as peer:
        await bench.create("orders")
        await peer.attach("out", target="orders")
        for number in range(300):
            peer.write(transfer(number, TEXT))
        assert peer._writer.can_write_eof()
        peer._writer.write_eof()
        await bench.until_items("orders", 300)


async def test_all_that_came_before_a_cut_is_handled(tmp_path: Path) -> None:
    async with gateway(tmp_path) as bench:
        await bench.create("orders")
        async with FramePeer(bench.port) as peer:
            await peer.attach("out", target="orders")
            for number in range(300):
                peer.write(transfer(number, TEXT))
            await peer._writer.drain()
            peer._writer.close()
        await bench.until_items("orders", 300)
        await until(lambda: not bench.gateway._connections)


@pytest.mark.parametrize("turn_s", [TURN_S, FRAME_S], ids=["idle", "never idle"])
async def test_an_account_over_its_rate_is_read_more_slowly(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    clock: ManualClock,
    turn_s: float,
) -> None:
    """It is not disconnected, and the log says so; though more waits all the time."""
    monkeypatch.setattr(intake, "STEP_S", min(turn_s, STEP_S))
    monkeypatch.setattr(payers, "TURN_S", turn_s)
    caplog.set_level(logging.WARNING)
    rate = 500_000
    async with slices(tmp_path, clock) as bench, FramePeer(bench.port) as peer:
        await bench.create("orders")
        await peer.attach("out", target="orders")
        bench.engine.payers.limit(Rates(bytes=rate))
        began = clock.now()
        message = b"\x00\x53\x75" + values.binary(b"x" * 10_000)
        for number in range(300):
            peer.write(transfer(number, message))
        async with time_passes(clock):
            await _settled(peer, 300)
        # 1 MB comes at once, and what is read before the account is seen to be over its
        # rate: 256 KiB and 64 KiB. The other 1.67 MB come at the rate.
        took_s = clock.now() - began
        at_once = BURST_S * rate + 320 * 1024
        assert 300 * len(message) <= at_once + rate * took_s
        assert took_s > 3
    assert f"{ALICE} sends more than 500000 bytes a second" in caplog.text


async def test_attaches_are_requests(tmp_path: Path, clock: ManualClock) -> None:
    async with slices(tmp_path, clock) as bench, FramePeer(bench.port) as peer:
        bench.engine.payers.limit(Rates(requests=10))
        began = clock.now()
        async with time_passes(clock):
            for number in range(40):
                await refused_attach(peer, number)
        # Twenty at once, and the others at ten a second.
        assert clock.now() - began > 1.5


async def test_an_account_waits_until_it_is_within_its_rate(
    tmp_path: Path, clock: ManualClock
) -> None:
    """It was let through after five seconds, whatever it had sent at other doors."""
    async with slices(tmp_path, clock) as bench, FramePeer(bench.port) as peer:
        bench.engine.payers.limit(Rates(requests=1))
        await refused_attach(peer, 0)
        bench.engine.payers.take(ALICE, requests=30)
        began = clock.now()
        async with time_passes(clock):
            await refused_attach(peer, 1)
        assert clock.now() - began > 25


async def test_an_account_at_its_limit_does_not_hold_up_another(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Connections of one account, as many as there are, share one turn with bob's."""
    async with slices(tmp_path, clock) as bench:
        payers = bench.engine.payers
        payers.limit(Rates(requests=0))
        async with FramePeer(bench.port) as first, FramePeer(bench.port) as second:
            for peer in (first, second):
                attaches(peer, 2000)
            waits = []
            alice_s = 0.0
            for _ in range(20):
                await until(lambda: payers.waiting)
                began = clock.now()
                await payers.turn(BOB)
                waits.append(clock.now() - began)
                alice_s += waits[-1]
                # What he does takes as long as a step of hers.
                clock.advance(STEP_S)
            # Never more than one step of hers, and the frame that was begun in it.
            assert max(waits) < STEP_S + 1.5 * FRAME_S
            # She had her share.
            assert alice_s > 10 * STEP_S


@pytest.mark.parametrize("cut", [False, True], ids=["stays", "cut"])
async def test_an_account_gives_so_many_messages_to_be_written_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock, cut: bool
) -> None:
    """Everybody's next commit waits for this one; and none of them is forgotten."""
    monkeypatch.setattr(payers, "UNWRITTEN_MAX", 10)
    monkeypatch.setattr(intake, "STEP_S", 0.0005)
    monkeypatch.setattr(payers, "TURN_S", 0.0005)
    together: list[int] = []
    writing = Payers.writing

    def counted(self: Payers, payer: str, count: int) -> None:
        writing(self, payer, count)
        together.append(self._unwritten[payer])

    monkeypatch.setattr(Payers, "writing", counted)
    async with slices(tmp_path, clock) as bench:
        await bench.create("orders")
        async with FramePeer(bench.port) as peer:
            await peer.attach("out", target="orders")
            peer.write(b"".join(transfer(number, TEXT) for number in range(400)))
            if cut:
                await peer._writer.drain()
                peer._writer.close()
            else:
                await _settled(peer, 400)
        await bench.until_items("orders", 400)
        assert not bench.engine.payers._unwritten
    assert len(together) > 4
    assert max(together) < 20


async def _settled(peer: FramePeer, count: int) -> None:
    """Wait until so many deliveries are accepted."""
    done = 0
    while done < count:
        found = await peer.frame(DISPOSITION)
        first, last = found.value(1), found.value(2)
        assert isinstance(first, int)
        last = last if isinstance(last, int) else first
        assert found.state(4) == ACCEPTED[2]
        done += last - first + 1
