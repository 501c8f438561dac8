"""A user who is removed, or may not do something any more: what is open ends, at once.

The gateway looks at the file of users by a clock that the tests turn.
"""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from amqp_bench import DOMAIN, Bench, gateway
from cheap_passwords import cheap_hash
from frame_peer import (
    ATTACH,
    CLOSE,
    DETACH,
    DISPOSITION,
    NULL,
    REJECTED,
    TRANSFER,
    FramePeer,
    described,
)
from qos import users
from qos.core.amqp import values
from qos.core.queue.item import Affiliation, ItemState
from qos.core.queue.requests import Create, Items, Refusal, SetAffiliations
from qos.core.queue.results import ItemsResult
from qos.testing import ManualClock
from turned_time import turned
from waiting import until

MESSAGE = b"\x00\x53\x75" + values.binary(b"hello")

#: Of the owner of queues that alice does not own.
CAROL = f"carol@{DOMAIN}/1"
ALICE = f"alice@{DOMAIN}"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    return turned(monkeypatch, users)


@pytest.fixture
async def bench(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Bench]:
    async with gateway(tmp_path) as bench:
        await bench.create("orders")
        yield bench


def write_users(bench: Bench, *lines: str) -> None:
    bench.users_file.write_text("".join(f"{line}\n" for line in lines))


async def looked(clock: ManualClock) -> None:
    """The gateway has looked at the file, and waits until it looks again."""
    clock.advance(1.0)
    await until(lambda: clock.deadline() is not None)


async def ended(peer: FramePeer, clock: ManualClock) -> bytes:
    """The error by which the connection of a peer is closed, within a second."""
    clock.advance(1.0)
    return (await peer.frame(CLOSE))[0]


@pytest.mark.parametrize("left", ["bob", "alice"])
async def test_the_connection_of_a_removed_user_ends_within_a_second(
    bench: Bench, clock: ManualClock, left: str
) -> None:
    """Or of one with another password. What it sends on after that is not published."""
    async with FramePeer(bench.port) as peer:
        await peer.attach("out", target="orders")
        peer.transfer(0, b"a", MESSAGE)
        await peer.frame(DISPOSITION)
        write_users(bench, f"{left}:{cheap_hash('other')}")
        assert b"amqp:unauthorized-access" in await ended(peer, clock)
        peer.transfer(1, b"b", MESSAGE)
        peer.send(0x12, values.string("again"), values.uint(1), b"\x42")
        peer.transfer(2, b"c", MESSAGE, handle=1)
        # And the end, which it takes: then all before has come.
        peer.send(CLOSE)
        await until(lambda: not bench.gateway._connections)
    assert len(await bench.items("orders")) == 1


async def test_connections_of_others_stay(bench: Bench, clock: ManualClock) -> None:
    lines = bench.users_file.read_text().splitlines()
    async with FramePeer(bench.port) as peer:
        await peer.attach("out", target="orders")
        write_users(bench, *(each for each in lines if not each.startswith("bob:")))
        await looked(clock)
        peer.transfer(0, b"a", MESSAGE)
        await peer.frame(DISPOSITION)
    assert len(await bench.items("orders")) == 1


async def test_a_broken_file_cuts_nobody_off_and_lets_nobody_in(
    bench: Bench, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody edits it. What it said before counts for what is open."""
    lines = bench.users_file.read_text().splitlines()
    async with FramePeer(bench.port) as peer:
        await peer.attach("out", target="orders")
        write_users(bench, *lines, "what is this")
        await looked(clock)
        peer.transfer(0, b"a", MESSAGE)
        await peer.frame(DISPOSITION)
        with pytest.raises(Exception, match=r"unauthorized|Auth"):
            await bench.proton(lambda _: None)
        said = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert "users, line 4: NAME:HASH is expected" in said[0].getMessage()
        write_users(bench, *lines[1:])
        assert b"amqp:unauthorized-access" in await ended(peer, clock)


async def test_a_removed_consumer_gives_its_items_back(
    bench: Bench, clock: ManualClock
) -> None:
    """Its terminus would have outlived its link by a minute."""
    await bench.publish("orders", "<x/>")
    async with FramePeer(bench.port) as peer:
        await peer.attach("in", source="orders")
        peer.flow(10)
        await peer.frame(TRANSFER)
        write_users(bench, f"bob:{cheap_hash('secret')}")
        assert b"amqp:unauthorized-access" in await ended(peer, clock)
    await bench.until_locked("orders", 0)
    (item,) = (await bench.items("orders")).values()
    assert item.state is ItemState.AVAILABLE
    assert not bench.gateway.termini


async def test_a_suspended_terminus_of_a_removed_user_ends(
    bench: Bench, clock: ManualClock
) -> None:
    await bench.publish("orders", "<x/>")
    async with FramePeer(bench.port) as peer:
        await peer.attach("in", source="orders")
        peer.flow(10)
        await peer.frame(TRANSFER)
    await until(lambda: bench.gateway.termini)
    await bench.until_locked("orders", 1)
    write_users(bench, f"bob:{cheap_hash('secret')}")
    clock.advance(1.0)
    await bench.until_locked("orders", 0)
    assert not bench.gateway.termini


async def lend(bench: Bench, affiliation: Affiliation) -> None:
    """A queue of carol's, at which alice has this affiliation."""
    await bench.ask(Create("lent"), CAROL)
    given = SetAffiliations("lent", {ALICE: affiliation})
    assert not isinstance(await bench.ask(given, CAROL), Refusal)


@pytest.mark.parametrize("left", [Affiliation.NONE, Affiliation.OUTCAST])
async def test_who_may_not_publish_any_more_is_refused_on_an_open_link(
    bench: Bench, left: Affiliation
) -> None:
    await lend(bench, Affiliation.PUBLISHER)
    async with FramePeer(bench.port) as peer:
        await peer.attach("out", target="lent")
        peer.transfer(0, b"a", MESSAGE)
        await peer.frame(DISPOSITION)
        await bench.ask(SetAffiliations("lent", {ALICE: left}), CAROL)
        peer.transfer(1, b"b", MESSAGE)
        told = await peer.frame(DISPOSITION, DETACH)
        assert told.code == DETACH or told.state(4) == REJECTED[2], told
    result = await bench.ask(Items(node="lent"), CAROL)
    assert isinstance(result, ItemsResult)
    assert len(result.items) == 1


@pytest.mark.parametrize("left", [Affiliation.NONE, Affiliation.OUTCAST])
async def test_who_is_no_member_any_more_gets_nothing_on_an_open_link(
    bench: Bench, left: Affiliation
) -> None:
    await lend(bench, Affiliation.MEMBER)
    async with FramePeer(bench.port) as peer:
        await peer.attach("in", source="lent")
        peer.flow(10)
        await peer.ping()
        await bench.ask(SetAffiliations("lent", {ALICE: left}), CAROL)
        await bench.publish("lent", "<x/>", jid=CAROL)
        told = await peer.frame(DETACH, TRANSFER)
        assert told.code == DETACH
        assert b"amqp:unauthorized-access" in told[2]


async def test_who_is_no_member_any_more_is_shown_nothing_on_an_open_link(
    bench: Bench,
) -> None:
    """A browser is a link that copies."""
    await lend(bench, Affiliation.MEMBER)
    async with FramePeer(bench.port) as peer:
        copy = (values.string("lent"), *5 * (NULL,), values.symbol("copy"))
        peer.send(
            ATTACH,
            *(values.string("look"), values.uint(0), b"\x41", NULL, NULL),
            *(described(0x28, *copy), described(0x29)),
        )
        await peer.frame(ATTACH)
        peer.flow(10)
        await bench.publish("lent", "<x/>", jid=CAROL)
        await peer.frame(TRANSFER)
        gone = SetAffiliations("lent", {ALICE: Affiliation.NONE})
        await bench.ask(gone, CAROL)
        await bench.publish("lent", "<x/>", "<y/>", jid=CAROL)
        told = await peer.frame(DETACH, TRANSFER)
        assert told.code == DETACH
