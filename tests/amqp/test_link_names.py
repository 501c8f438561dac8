"""Two links of one name: each link is found by its own identity, never by its name.

A name belongs to one link of a direction between two containers (transport §2.6.1). A
second attach on the same connection steals it: the first link ends before the second
is served, and nothing of the first reaches the second.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from proton import Delivery, Message

from amqp_bench import Bench, gateway
from frame_peer import (
    ACCEPTED,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    TRANSFER,
    Frame,
    FramePeer,
)
from qos.core.amqp import values
from qos.core.amqp.sections import Section, section
from qos.core.queue.item import ItemState
from qos.core.queue.requests import Subscriptions
from qos.core.queue.results import SubscriptionsResult
from raw_amqp import RawAmqp
from waiting import until

STOLEN = b"amqp:link:stolen"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with gateway(tmp_path) as bench:
        await bench.create("a")
        await bench.create("b")
        yield bench


def message(text: str) -> bytes:
    return section(Section.VALUE, values.string(text))


async def two_sessions(peer: FramePeer) -> None:
    peer.begin(1)
    assert (await peer.frame(BEGIN)).value(0) == 0
    assert (await peer.frame(BEGIN)).value(0) == 1


async def subscriptions(bench: Bench, node: str) -> int:
    result = await bench.ask(Subscriptions(node, owner=True))
    assert isinstance(result, SubscriptionsResult)
    return len(result.subscriptions)


async def counts(bench: Bench) -> tuple[int, int]:
    return len(await bench.items("a")), len(await bench.items("b"))


# -- publishers ------------------------------------------------------------


async def test_a_second_sender_of_a_name_steals_the_first_and_each_message_is_in_its_queue(
    bench: Bench,
) -> None:
    """Messages accepted on the link to `a` are in `a`; no others are accepted."""
    async with FramePeer(bench.port) as peer:
        await two_sessions(peer)
        await peer.attach("out", target="a", timeout_s=0)
        peer.transfer(0, b"1", message("to a"))
        first = await peer.frame(DISPOSITION)
        assert (first.value(1), first.state(4)) == (0, 0x24)
        await peer.attach("out", target="b", timeout_s=0, channel=1)
        peer.transfer(1, b"2", message("to a, too late"))
        peer.transfer(0, b"3", message("to b"), channel=1)
        told = [await peer.frame(DETACH, DISPOSITION) for _ in range(2)]
        (ended,) = [each for each in told if each.code == DETACH]
        (second,) = [each for each in told if each.code == DISPOSITION]
        assert STOLEN in ended[2]
        assert ended.channel == 0
        assert (second.channel, second.value(1), second.state(4)) == (1, 0, 0x24)
        assert await counts(bench) == (1, 1)


@pytest.mark.parametrize("second", ["b", "no such node"])
async def test_the_end_of_a_second_sender_ends_nothing_else(
    bench: Bench, second: str
) -> None:
    """Nor does it hold a registered entry: the name is free again."""
    async with FramePeer(bench.port) as peer:
        await two_sessions(peer)
        await peer.attach("out", target="a", timeout_s=0)
        await peer.attach("out", target=second, channel=1)
        peer.detach(channel=1)
        peer.detach(channel=0)
        for number in range(2):
            await peer.attach("out", target="a", handle=1, channel=number)
            peer.transfer(0, b"1", message("again"), handle=1, channel=number)
            found = await peer.frame(DISPOSITION)
            assert (found.channel, found.state(4)) == (number, 0x24)
            peer.detach(handle=1, channel=number)
    assert await counts(bench) == (2, 0)


async def test_a_second_attach_that_is_refused_steals_nothing(bench: Bench) -> None:
    async with FramePeer(bench.port) as peer:
        await two_sessions(peer)
        await peer.attach("out", target="a")
        await peer.attach("out", target="no such node", channel=1)
        peer.transfer(0, b"1", message("to a"))
        assert (await peer.frame(DISPOSITION)).state(4) == 0x24


async def test_two_senders_of_a_name_by_proton_get_their_own_outcomes(
    bench: Bench,
) -> None:
    """One session each, as a client that names its links itself makes them."""

    def work() -> tuple[int, str, int]:
        client = RawAmqp(bench.port)
        first = client.sender("a", name="out")
        accepted = client.send(first, Message(body="a").encode())
        second = client.sender("b", name="out", session=client.session())
        client.until(lambda: first.remote_condition is not None)
        condition = first.remote_condition
        assert condition is not None
        told = client.send(second, Message(body="b").encode())
        client.close()
        return accepted, condition.name, told

    accepted = int(Delivery.ACCEPTED)
    assert await asyncio.to_thread(work) == (accepted, "amqp:link:stolen", accepted)
    assert await counts(bench) == (1, 1)


async def test_two_senders_of_a_name_by_rhea_get_their_own_outcomes(
    bench: Bench,
) -> None:
    told = await bench.rhea("two of a name", nodes=["a", "b"])
    outcomes = [each["accepted"] for each in told if "accepted" in each]
    stolen = [each["error"]["condition"] for each in told if "error" in each]
    assert stolen == ["amqp:link:stolen"]
    assert (await counts(bench)) == (outcomes.count("a"), outcomes.count("b"))
    assert "b" in outcomes


# -- consumers -------------------------------------------------------------


async def test_a_second_receiver_of_a_name_gets_nothing_of_the_first(
    bench: Bench,
) -> None:
    """Items of the first link are released at once; each acceptance ends its own item."""
    await bench.publish("a", "<x/>")
    async with FramePeer(bench.port) as peer:
        await two_sessions(peer)
        await peer.attach("in", source="a", timeout_s=0)
        peer.flow(1)
        await peer.frame(TRANSFER)
        await peer.attach("in", source="b", timeout_s=0, channel=1)
        assert STOLEN in next(each for each in peer.dropped if each.code == DETACH)[2]
        await until(lambda: _is_free(bench, "a"))
        await bench.publish("b", "<y/>")
        peer.flow(1, channel=1)
        assert (await peer.frame(TRANSFER)).channel == 1
        peer.dispose(0, ACCEPTED, settled=True, receiver=True, channel=1)
        # Too late: its link has ended.
        peer.dispose(0, ACCEPTED, settled=True, receiver=True)
        await bench.until_items("b", 0)
        assert await counts(bench) == (1, 0)


async def _is_free(bench: Bench, node: str) -> bool:
    found = (await bench.items(node)).values()
    return all(each.state is ItemState.AVAILABLE for each in found)


@pytest.mark.parametrize("ends", ["refused", "detached", "session"])
async def test_no_subscription_of_two_receivers_of_a_name_is_left(
    bench: Bench, ends: str
) -> None:
    """A ghost would lock items until they are dead, after its connection is gone."""
    async with FramePeer(bench.port) as peer:
        await two_sessions(peer)
        await peer.attach("in", source="a", timeout_s=0)
        peer.flow(5)
        node = "no such node" if ends == "refused" else "b"
        await peer.attach("in", source=node, timeout_s=0, channel=1)
        if ends == "detached":
            peer.detach(channel=1)
        elif ends == "session":
            peer.send(END, channel=1)
    await until(lambda: not bench.gateway.consumers)
    await bench.publish("a", "<x/>")
    (found,) = (await bench.items("a")).values()
    assert found.state is ItemState.AVAILABLE
    assert not len(bench.gateway.links)
    assert not await subscriptions(bench, "a")


async def test_a_receiver_that_may_outlive_its_link_goes_on_in_another_session(
    bench: Bench,
) -> None:
    """The second attach of its name steals its terminus, with what it holds."""
    await bench.publish("a", "<x/>")
    async with FramePeer(bench.port) as peer:
        await two_sessions(peer)
        await peer.attach("in", source="a")
        peer.flow(1)
        first = await peer.frame(TRANSFER)
        await peer.attach("in", source="a", unsettled={}, channel=1)
        peer.flow(1, channel=1)
        again = await peer.frame(TRANSFER)
        assert (again.channel, again[2]) == (1, first[2])
        peer.dispose(0, ACCEPTED, settled=True, receiver=True, channel=1)
        await bench.until_items("a", 0)


async def test_a_name_that_is_attached_to_another_node_ends_its_earlier_terminus(
    bench: Bench,
) -> None:
    """Its subscription would lock items for nobody, and its timer would never run."""
    async with FramePeer(bench.port) as peer:
        await peer.attach("in", source="a")
        peer.flow(1)
        peer.detach(closed=False)
        await peer.frame(DETACH)
        await peer.attach("in", source="b", handle=1)
        await bench.publish("a", "<x/>")
        (found,) = (await bench.items("a")).values()
        assert found.state is ItemState.AVAILABLE
        assert not bench.gateway.termini
    assert not await subscriptions(bench, "a")


async def test_a_name_may_be_used_in_both_directions(bench: Bench) -> None:
    """A link is known by its role too: what its frames tell is told to it.

    A delivery-tag that went to the receiver would be missing at the sender, whose outcome
    would be settled before the publisher has it.
    """
    async with FramePeer(bench.port) as peer:
        await peer.attach("both", source="b")
        await peer.attach("both", target="a", handle=1, second=True)
        peer.transfer(0, b"t", message("to a"), handle=1)
        told = await peer.frame(DISPOSITION)
        assert (told.flag(3), told.state(4)) == (False, 0x24)


# -- what a peer may use once ----------------------------------------------


async def _refusal(peer: FramePeer) -> Frame:
    found = await peer.frame(CLOSE)
    assert b"amqp:not-allowed" in found[0]
    return found


async def test_a_handle_in_use_is_refused(bench: Bench) -> None:
    async with FramePeer(bench.port) as peer:
        await peer.attach("out", target="a")
        peer.send(ATTACH, values.string("other"), values.uint(0), values.boolean(False))
        assert b"the handle 0" in (await _refusal(peer))[0]


async def test_a_name_in_use_on_its_session_is_refused(bench: Bench) -> None:
    async with FramePeer(bench.port) as peer:
        await peer.attach("out", target="a")
        peer.send(ATTACH, values.string("out"), values.uint(1), values.boolean(False))
        assert b"'out'" in (await _refusal(peer))[0]


async def test_a_channel_in_use_is_refused(bench: Bench) -> None:
    async with FramePeer(bench.port) as peer:
        await peer.attach("out", target="a")
        peer.begin(0)
        assert b"the channel 0" in (await _refusal(peer))[0]
