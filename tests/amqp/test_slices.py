"""Input by AMQP is handled in short turns, paid by its account, at its rate."""

import logging
import time
from pathlib import Path

import pytest

from amqp_bench import Bench, gateway, until
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
from qos.core.amqp import values
from qos.core.payers import Rates
from qos.engine import payers
from qos.engine.payers import STEP_S, TURN_S, Payers

TEXT = b"\x00\x53\x77\xa1\x01x"

#: Of a turn, with the last step of it, on a slow machine.
TURN_S_MAX = 8 * TURN_S


@pytest.fixture
def turns_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The processor time of each turn: other processes do not count."""
    found: list[float] = []
    turn = Payers._turn

    def measured(payers: Payers) -> None:
        began = time.thread_time()
        turn(payers)
        found.append(time.thread_time() - began)

    monkeypatch.setattr(Payers, "_turn", measured)
    return found


def attaches(peer: FramePeer, count: int) -> None:
    """Send links that are refused and detached: work, with few bytes."""
    for number in range(count):
        name = values.string(f"in-{number}")
        handle, source = values.uint(1), described(0x28, values.string("nowhere"))
        peer.send(ATTACH, name, handle, TRUE, NULL, NULL, source, described(0x29))
        peer.send(DETACH, handle, TRUE)


async def test_a_flood_of_frames_leaves_no_long_turn(
    tmp_path: Path, turns_s: list[float]
) -> None:
    """A read of 256 KiB was handled in one turn: half a second of these."""
    async with gateway(tmp_path) as bench, FramePeer(bench.port) as peer:
        bench.engine.payers.limit(Rates(requests=0))
        attaches(peer, 2000)
        peer.send(CLOSE)
        await peer.frame(CLOSE)
    assert sum(turns_s) > 10 * TURN_S
    turns_s.sort()
    # One turn may hold a pause of the collector of garbage.
    assert turns_s[-2] < TURN_S_MAX


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


@pytest.mark.parametrize("turn_s", [TURN_S, 0.0001], ids=["idle", "never idle"])
async def test_an_account_over_its_rate_is_read_more_slowly(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    turn_s: float,
) -> None:
    """It is not disconnected, and the log says so; though more waits all the time."""
    monkeypatch.setattr(intake, "STEP_S", min(turn_s, STEP_S))
    monkeypatch.setattr(payers, "TURN_S", turn_s)
    caplog.set_level(logging.WARNING)
    async with gateway(tmp_path) as bench, FramePeer(bench.port) as peer:
        await bench.create("orders")
        await peer.attach("out", target="orders")
        bench.engine.payers.limit(Rates(bytes=500_000))
        began = time.monotonic()
        for number in range(300):
            peer.write(transfer(number, b"\x00\x53\x75" + values.binary(b"x" * 10_000)))
        await _settled(peer, 300)
        # 1 MB comes at once, and what is read before the account is seen to be over its
        # rate: 256 KiB and 64 KiB. The other 1.67 MB come at the rate.
        assert time.monotonic() - began > 3
    assert (
        "alice@queue.example.org sends more than 500000 bytes a second" in caplog.text
    )


async def test_attaches_are_requests(tmp_path: Path) -> None:
    async with gateway(tmp_path) as bench, FramePeer(bench.port) as peer:
        bench.engine.payers.limit(Rates(requests=10))
        began = time.monotonic()
        for number in range(40):
            await peer.attach(f"out-{number}", target="nowhere", handle=number)
            await peer.frame(DETACH)
        # Twenty at once, and the others at ten a second.
        assert time.monotonic() - began > 1.5


async def test_an_account_at_its_limit_does_not_hold_up_another(
    tmp_path: Path, turns_s: list[float]
) -> None:
    """Connections of one account, as many as there are, share one turn with bob's."""
    async with gateway(tmp_path) as bench:
        bench.engine.payers.limit(Rates(requests=0))
        async with FramePeer(bench.port) as first, FramePeer(bench.port) as second:
            for peer in (first, second):
                attaches(peer, 2000)
            waits = [await _wait_s(bench) for _ in range(20)]
            waits.sort()
            assert waits[len(waits) // 2] < 0.1
    assert turns_s


@pytest.mark.parametrize("cut", [False, True], ids=["stays", "cut"])
async def test_an_account_gives_so_many_messages_to_be_written_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: bool
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
    async with gateway(tmp_path) as bench:
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
    assert max(together) < 200


async def _wait_s(bench: Bench) -> float:
    """The seconds until bob has his turn."""
    began = time.monotonic()
    await bench.engine.payers.turn("bob@queue.example.org")
    return time.monotonic() - began


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
