"""Links that are attached again over TCP, with what both ends have not settled.

The 14 rows are those of messaging §3.4.6. Where the gateway is the sender, its entries
are those of a row; where only a publisher can have such an entry, it is the receiver.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from amqp_bench import Bench
from frame_peer import (
    ACCEPTED,
    ATTACH,
    DETACH,
    DISPOSITION,
    FLOW,
    MODIFIED,
    NULL,
    REJECTED,
    RELEASED,
    TRANSFER,
    Frame,
    FramePeer,
    received,
)
from qos.amqp.incoming import IncomingLink
from qos.core.queue.item import ItemState
from qos.testing import ManualClock
from waiting import limit, until

MESSAGE = b"\x00\x53\x77\xa1\x0aten bytes!"
OTHER = b"\x00\x53\x77\xa1\x05other"

#: The codes of the delivery states.
IS_RECEIVED, IS_ACCEPTED, IS_REJECTED, IS_RELEASED, IS_MODIFIED = range(0x23, 0x28)
#: The places of the fields of a transfer.
HANDLE, NUMBER, TAG, FORMAT, SETTLED, MORE, MODE, STATE, RESUME, ABORTED = range(10)


async def away(bench: Bench) -> None:
    """Wait until the gateway knows that all connections are gone."""
    await until(lambda: not bench.gateway._connections)


async def held(bench: Bench, *, second: bool = False, count: int = 1) -> list[bytes]:
    """Let a consumer get items and lose its connection; the tags of its deliveries."""
    await bench.publish("orders", *["<x/>"] * count)
    async with FramePeer(bench.port) as peer:
        await peer.attach("mine", source="orders", second=second)
        peer.flow(10)
        found = [await peer.frame(TRANSFER) for _ in range(count)]
    await away(bench)
    return [tag_of(each) for each in found]


def tag_of(frame: Frame) -> bytes:
    tag = frame.value(TAG)
    assert isinstance(tag, bytes)
    return tag


async def nothing_more(peer: FramePeer) -> None:
    """No transfer comes before the answer to something else."""
    peer.send(0x16, b"\x43", b"\x42")
    found = await peer.frame(TRANSFER, DETACH)
    assert found.code == DETACH


# -- we send: the entries of the gateway are null --------------------------


async def test_row_1_what_the_consumer_does_not_know_is_sent_as_new(
    bench: Bench,
) -> None:
    (tag,) = await held(bench)
    async with FramePeer(bench.port) as peer:
        answer = await peer.attach("mine", source="orders", unsettled={})
        assert answer.unsettled == {tag: NULL}
        assert not answer.flag(8)
        peer.flow(5)
        found = await peer.frame(TRANSFER)
        assert (tag_of(found), found.flag(RESUME)) == (tag, False)
        assert found.payload
        peer.dispose(0, ACCEPTED, settled=True, receiver=True)
        await bench.until_items("orders", 0)


@pytest.mark.parametrize("state", [received(3, 0), received(0, 0), NULL])
async def test_rows_2_and_4_what_the_consumer_has_begun_is_resumed_from_its_beginning(
    bench: Bench, state: bytes
) -> None:
    (tag,) = await held(bench)
    async with FramePeer(bench.port) as peer:
        answer = await peer.attach("mine", source="orders", unsettled={tag: state})
        assert answer.unsettled == {tag: NULL}
        peer.flow(5)
        found = await peer.frame(TRANSFER)
        assert (tag_of(found), found.flag(RESUME)) == (tag, True)
        assert not found.flag(ABORTED)
        assert found[STATE] == NULL
        assert b"<x/>" in found.payload
        peer.dispose(0, ACCEPTED, settled=True, receiver=True)
        await bench.until_items("orders", 0)


@pytest.mark.parametrize("second", [False, True])
async def test_row_3_an_outcome_of_the_consumer_is_applied_and_restated(
    bench: Bench, second: bool
) -> None:
    (tag,) = await held(bench, second=second)
    async with FramePeer(bench.port) as peer:
        await peer.attach(
            "mine", source="orders", second=second, unsettled={tag: ACCEPTED}
        )
        peer.flow(5)
        found = await peer.frame(TRANSFER)
        assert (tag_of(found), found.flag(RESUME)) == (tag, True)
        assert found.flag(SETTLED)
        assert found.state(STATE) == IS_ACCEPTED
        assert not found.payload
        assert not await bench.items("orders")


async def test_other_outcomes_of_the_consumer_are_applied_with_what_they_tell(
    bench: Bench,
) -> None:
    tags = await held(bench, count=3)
    no = b"\x00\x53\x25\xc0\x0e\x01\x00\x53\x1d\xc0\x08\x01\xa3\x05shop!"
    states = dict(zip(tags, (RELEASED, MODIFIED, no), strict=True))
    async with FramePeer(bench.port) as peer:
        await peer.attach("mine", source="orders", unsettled=states)
        peer.flow(3)
        found = [await peer.frame(TRANSFER) for _ in range(3)]
        assert {tag_of(each): each.state(STATE) for each in found} == {
            tags[0]: IS_RELEASED,
            tags[1]: IS_MODIFIED,
            tags[2]: IS_REJECTED,
        }
        assert all(each.flag(SETTLED) and each.flag(RESUME) for each in found)
        live = await bench.items("orders")
        assert [each.delivery_count for each in live.values()] == [0, 1]
    dead = await bench.items("orders", "dead")
    assert dead["xmpp-2"].history[-1].reason == "rejected: shop!"


# -- we send: the entries of the gateway are outcomes ----------------------


async def ended(bench: Bench, state: bytes, told: bytes = ACCEPTED) -> Frame:
    """Accept on a link that is lost at once, and attach again with this state.

    Returns:
        What the gateway says to that.
    """
    (tag,) = await accepted_and_lost(bench, told)
    async with FramePeer(bench.port) as peer:
        entry = {} if state == b"" else {tag: state}
        answer = await peer.attach(
            "mine", source="orders", second=True, unsettled=entry
        )
        assert answer.unsettled is not None
        assert answer.unsettled[tag] == told
        peer.flow(5)
        if state == b"":
            await nothing_more(peer)
            return answer
        found = await peer.frame(TRANSFER)
        assert (tag_of(found), found.flag(RESUME)) == (tag, True)
        assert not found.payload
        if not found.flag(SETTLED):
            peer.dispose(0, found[STATE], settled=True, receiver=True)
        await nothing_more(peer)
    await away(bench)
    # It is settled at both ends now.
    async with FramePeer(bench.port) as peer:
        answer = await peer.attach("mine", source="orders", unsettled={})
        assert answer.unsettled == {}
    return found


async def accepted_and_lost(bench: Bench, told: bytes) -> list[bytes]:
    """Let the connection end while the outcome is being written."""
    await bench.publish("orders", "<x/>")
    async with FramePeer(bench.port) as peer:
        await peer.attach("mine", source="orders", second=True)
        peer.flow(10)
        tag = tag_of(await peer.frame(TRANSFER))
        settled = lost_before(bench, "_applied")
        peer.dispose(0, told, settled=False, receiver=True)
        async with limit():
            await settled.wait()
    await away(bench)
    return [tag]


def lost_before(bench: Bench, answer: str) -> asyncio.Event:
    """Lose the connection of the one link just before this answer to a request of its."""
    links = [each._links for each in bench.gateway._connections]
    (ours,) = [each.ours for link in links for each in link._attached]
    parts = vars(ours)
    where = parts.get("_endings") or parts["_publisher"]
    done, answered = getattr(where, answer), asyncio.Event()

    def lost_first(*args: object) -> None:
        for connection in list(bench.gateway._connections):
            connection._tcp.abort()  # type: ignore[union-attr]  # it is there
            connection.connection_lost(None)
        done(*args)
        answered.set()

    setattr(where, answer, lost_first)
    return answered


async def test_row_10_a_delivery_that_both_have_done_with_is_not_sent(
    bench: Bench,
) -> None:
    await ended(bench, b"")
    assert not await bench.items("orders")


@pytest.mark.parametrize("state", [received(1, 2000), NULL])
async def test_rows_11_and_14_a_consumer_that_waits_for_an_ended_delivery_is_told_so(
    bench: Bench, state: bytes
) -> None:
    found = await ended(bench, state)
    assert found.flag(ABORTED)
    assert not await bench.items("orders")


async def test_row_12_what_both_have_accepted_is_settled(bench: Bench) -> None:
    found = await ended(bench, ACCEPTED)
    assert (found.flag(SETTLED), found.flag(ABORTED)) == (True, False)


async def test_row_13_the_outcome_at_the_sender_counts(bench: Bench) -> None:
    found = await ended(bench, RELEASED)
    assert (found.flag(SETTLED), found.flag(ABORTED)) == (False, False)
    assert found.state(STATE) == IS_ACCEPTED
    assert not await bench.items("orders")


async def test_a_lock_that_timed_out_meanwhile_has_failed(
    timed: Bench, clock: ManualClock
) -> None:
    """The outcome of the consumer comes too late: it learns the one that counts."""
    await timed.create("quick", lock_timeout="5")
    await timed.publish("quick", "<x/>")
    async with FramePeer(timed.port) as peer:
        await peer.attach("mine", source="quick")
        peer.flow(1)
        tag = tag_of(await peer.frame(TRANSFER))
    await away(timed)
    clock.advance(5.0)
    await timed.until_locked("quick", 0)
    async with FramePeer(timed.port) as peer:
        answer = await peer.attach("mine", source="quick", unsettled={tag: ACCEPTED})
        assert answer.unsettled == {tag: MODIFIED}
        peer.flow(1)
        found = await peer.frame(TRANSFER)
        assert (tag_of(found), found.flag(RESUME)) == (tag, True)
        assert (found.flag(SETTLED), found.state(STATE)) == (False, IS_MODIFIED)
    (item,) = (await timed.items("quick")).values()
    assert item.delivery_count == 1


# -- we receive ------------------------------------------------------------


async def published(
    bench: Bench, unsettled: Mapping[bytes, bytes], *, begun: bytes = b""
) -> AsyncIterator[tuple[FramePeer, Frame]]:
    """A publisher with a map of what it has not settled, and our answer.

    Its earlier link has sent `t1`, and a part (`begun`) of `t2`; rcv-settle-mode second.
    """
    async with FramePeer(bench.port) as peer:
        await peer.attach("pub", target="orders", second=True)
        await peer.frame(FLOW)
        peer.transfer(0, b"t1", MESSAGE)
        told = await peer.frame(DISPOSITION)
        assert (told.flag(3), told.state(4)) == (False, IS_ACCEPTED)
        if begun:
            peer.transfer(1, b"t2", begun, more=True)
            await until(lambda: partly(bench))
    await away(bench)
    async with FramePeer(bench.port) as peer:
        yield (
            peer,
            await peer.attach("pub", target="orders", second=True, unsettled=unsettled),
        )


def partly(bench: Bench) -> bool:
    links = [each._links for each in bench.gateway._connections]
    return any(
        getattr(each.ours, "_content", b"") for link in links for each in link._attached
    )


async def test_a_publisher_that_settles_second_has_its_outcome_until_then(
    bench: Bench,
) -> None:
    """rcv-settle-mode second: we settle when it has, and not before."""
    async with FramePeer(bench.port) as peer:
        answer = await peer.attach("pub", target="orders", second=True)
        assert answer.value(4) == 1
        await peer.frame(FLOW)
        peer.transfer(0, b"t1", MESSAGE)
        told = await peer.frame(DISPOSITION)
        assert (told.flag(3), told.state(4)) == (False, IS_ACCEPTED)
        (connection,) = bench.gateway._connections
        (link,) = connection._links._attached
        ours = link.ours
        assert isinstance(ours, IncomingLink)
        assert ours._published.states()
        peer.dispose(0, ACCEPTED, settled=True, receiver=False)
        await until(lambda: not ours._published.states())


async def test_a_publisher_that_does_not_resume_is_told_settled_outcomes(
    bench: Bench,
) -> None:
    """It may wait for one, and send again: it has asked for second, and gets first."""
    async with FramePeer(bench.port) as peer:
        answer = await peer.attach("pub", target="orders", second=True, timeout_s=0)
        assert answer.value(4) == 0
        peer.transfer(0, b"t1", MESSAGE)
        told = await peer.frame(DISPOSITION)
        assert (told.flag(3), told.state(4)) == (True, IS_ACCEPTED)


async def test_row_5_a_message_that_never_came_is_sent_as_new(bench: Bench) -> None:
    entries = {b"t1": received(0, 200), b"t9": received(0, 200)}
    async for peer, answer in published(bench, entries):
        assert answer.unsettled == {b"t1": ACCEPTED}
        peer.transfer(0, b"t9", OTHER)
        found = await peer.frame(DISPOSITION)
        assert found.state(4) == IS_ACCEPTED
        assert len(await bench.items("orders")) == 2


@pytest.mark.parametrize("state", [NULL, received(0, 0), received(0, 2)])
async def test_row_6_a_message_goes_on_where_it_was_cut(
    bench: Bench, state: bytes
) -> None:
    """From any position that the publisher still has, before ours or equal to it."""
    first = b"\x00\x53\x75\xa0\x03one"
    last = b"\x00\x53\x75\xa0\x03two"
    entries = {b"t1": NULL, b"t2": state}
    async for peer, answer in published(bench, entries, begun=first + last[:4]):
        assert answer.unsettled == {b"t1": ACCEPTED, b"t2": received(1, 4)}
        # Its own position, and the data from there on.
        data = (first + last)[2 if state == received(0, 2) else 0 :]
        peer.transfer(0, b"t2", data, state=state, resume=True)
        found = await peer.frame(DISPOSITION)
        assert found.state(4) == IS_ACCEPTED
    assert len(await bench.items("orders")) == 2
    came = await bench.rhea("receive", node="orders", count=2, credit=0, once=2)
    assert len(came) == 2


async def test_a_message_goes_on_after_others_and_in_several_frames(
    bench: Bench,
) -> None:
    """Each transfer may repeat the tag and the flags; the part waits for its own."""
    async for peer, _ in published(
        bench, {b"t1": NULL, b"t2": NULL}, begun=MESSAGE[:5]
    ):
        peer.transfer(0, b"t1", settled=True, state=ACCEPTED, resume=True)
        state = received(0, 5)
        for at in range(5, len(MESSAGE)):
            more = at + 1 < len(MESSAGE)
            data = MESSAGE[at : at + 1]
            peer.transfer(1, b"t2", data, state=state, resume=True, more=more)
        told = await peer.frame(DISPOSITION)
        assert (told.value(1), told.state(4)) == (1, IS_ACCEPTED)
    assert len(await bench.items("orders")) == 2


@pytest.mark.parametrize("ours", [received(0, 5), b""])
async def test_rows_7_and_9_what_cannot_go_on_is_aborted_and_sent_again(
    bench: Bench, ours: bytes
) -> None:
    begun = MESSAGE[:5] if ours else b""
    entries = {b"t2": received(2, 0)}
    async for peer, answer in published(bench, entries, begun=begun):
        assert answer.unsettled == ({b"t2": ours} if ours else {})
        peer.transfer(0, b"t2", resume=True, aborted=True)
        peer.transfer(1, b"t2", OTHER)
        found = await peer.frame(DISPOSITION)
        assert (found.value(1), found.state(4)) == (1, IS_ACCEPTED)
    assert len(await bench.items("orders")) == 2


async def test_row_8_what_we_have_accepted_the_publisher_settles(bench: Bench) -> None:
    async for peer, answer in published(bench, {b"t1": received(3, 5)}):
        assert answer.unsettled == {b"t1": ACCEPTED}
        peer.transfer(0, b"t1", settled=True, state=ACCEPTED, resume=True)
        # The next one has the same tag, which is free now.
        peer.transfer(1, b"t1", OTHER)
        found = await peer.frame(DISPOSITION)
        assert (found.value(1), found.state(4)) == (1, IS_ACCEPTED)
    assert len(await bench.items("orders")) == 2


async def test_a_publisher_that_restates_another_outcome_is_echoed(
    bench: Bench,
) -> None:
    """Row 13, seen from the receiver."""
    async for peer, answer in published(bench, {b"t1": REJECTED}):
        assert answer.unsettled == {b"t1": ACCEPTED}
        peer.transfer(0, b"t1", state=REJECTED, resume=True)
        found = await peer.frame(DISPOSITION)
        assert (found.flag(3), found.state(4)) == (True, IS_REJECTED)


async def test_a_publisher_that_asks_what_became_of_a_delivery_is_told(
    bench: Bench,
) -> None:
    """Resumed with its data and without an outcome: it is not stored twice."""
    async for peer, _ in published(bench, {b"t1": NULL}):
        peer.transfer(0, b"t1", MESSAGE, resume=True)
        found = await peer.frame(DISPOSITION)
        assert (found.flag(3), found.state(4)) == (False, IS_ACCEPTED)
        peer.dispose(0, ACCEPTED, settled=True, receiver=False)
        peer.send(DETACH, b"\x43", b"\x42")
        await peer.frame(DETACH)
        # And with that it is forgotten.
        again = {b"t1": NULL}
        answer = await peer.attach("pub", target="orders", second=True, unsettled=again)
        assert answer.unsettled == {}
    assert len(await bench.items("orders")) == 1


async def test_a_resumed_delivery_that_we_do_not_know_is_released(bench: Bench) -> None:
    async for peer, answer in published(bench, {b"t9": NULL}):
        assert answer.unsettled == {}
        peer.transfer(0, b"t9", OTHER, resume=True)
        found = await peer.frame(DISPOSITION)
        assert found.state(4) == IS_RELEASED
    assert len(await bench.items("orders")) == 1


async def test_a_delivery_of_this_very_link_cannot_be_resumed(bench: Bench) -> None:
    """Not even before its outcome is known; the link goes on."""
    async with FramePeer(bench.port) as peer:
        await peer.attach("pub", target="orders", second=True)
        await peer.frame(FLOW)
        peer.transfer(0, b"t1", MESSAGE)
        peer.transfer(1, b"t1", MESSAGE, resume=True)
        peer.transfer(2, b"t2", OTHER)
        states: dict[object, int] = {}
        while 2 not in states:
            told = await peer.frame(DISPOSITION)
            last = told.value(1) if told[2] == NULL else told.value(2)
            assert isinstance(last, int)
            states.update({each: told.state(4) for each in range(last + 1)})
    assert len(await bench.items("orders")) == 2


async def test_a_delivery_begins_behind_what_we_have(bench: Bench) -> None:
    """A gap cannot be filled: the publisher has to send it as a new one."""
    async for peer, _ in published(bench, {b"t2": NULL}, begun=MESSAGE[:5]):
        peer.transfer(0, b"t2", MESSAGE[9:], state=received(0, 9), resume=True)
        found = await peer.frame(DISPOSITION)
        assert found.state(4) == IS_RELEASED
    assert len(await bench.items("orders")) == 1


async def test_what_is_being_written_when_a_publisher_is_lost_is_not_stored_twice(
    bench: Bench,
) -> None:
    """Also with rcv-settle-mode first, where we have not settled it."""
    async with FramePeer(bench.port) as peer:
        await peer.attach("pub", target="orders")
        await peer.frame(FLOW)
        answered = lost_before(bench, "_written")
        peer.transfer(0, b"t1", MESSAGE)
        async with limit():
            await answered.wait()
    async with FramePeer(bench.port) as peer:
        answer = await peer.attach("pub", target="orders", unsettled={b"t1": NULL})
        assert answer.unsettled == {b"t1": ACCEPTED}
        peer.transfer(0, b"t1", settled=True, state=ACCEPTED, resume=True)
    assert len(await bench.items("orders")) == 1


async def test_a_link_is_taken_from_a_connection_that_is_only_seemingly_there(
    bench: Bench,
) -> None:
    """Its peer has lost it, and attaches again before the gateway can notice that."""
    await bench.create("letters")
    await bench.publish("orders", "<x/>")
    async with FramePeer(bench.port) as dead, FramePeer(bench.port) as peer:
        await dead.attach("mine", source="orders")
        dead.flow(5)
        tag = tag_of(await dead.frame(TRANSFER))
        await dead.attach("pub", target="letters", second=True, handle=1)
        dead.transfer(0, b"t1", MESSAGE, handle=1)
        await dead.frame(DISPOSITION)
        answer = await peer.attach("mine", source="orders", unsettled={tag: ACCEPTED})
        assert answer.unsettled is not None
        assert tag in answer.unsettled
        answer = await peer.attach(
            "pub", target="letters", second=True, unsettled={b"t1": NULL}, handle=1
        )
        assert answer.unsettled == {b"t1": ACCEPTED}
        for _ in range(2):
            assert b"amqp:link:stolen" in (await dead.frame(DETACH))[2]
        peer.flow(1)
        found = await peer.frame(TRANSFER)
        assert (tag_of(found), found.flag(SETTLED)) == (tag, True)
    # The end of the first connection does not end what the second one has.
    await away(bench)
    async with FramePeer(bench.port) as peer:
        answer = await peer.attach("pub", target="letters", unsettled={b"t1": NULL})
        assert answer.unsettled == {b"t1": ACCEPTED}
    assert not await bench.items("orders")
    assert len(await bench.items("letters")) == 1


# -- incomplete maps -------------------------------------------------------


async def test_a_map_that_does_not_fit_is_incomplete_and_ends_in_several_attaches(
    bench: Bench,
) -> None:
    """Transport §2.7.3: only resumed deliveries until the next attach."""
    tags = await held(bench, count=9)
    left = dict.fromkeys(tags, ACCEPTED)
    attaches = 0
    await bench.rhea("send", node="orders")
    while left:
        attaches += 1
        async with FramePeer(bench.port, frame_bytes_max=512) as peer:
            some = dict(list(left.items())[:3])
            answer = await peer.attach(
                "mine", source="orders", unsettled=some, incomplete=len(left) > 3
            )
            assert answer.unsettled is not None
            assert answer.flag(8) == (len(answer.unsettled) < len(left))
            # The last map is whole: then a new item may come as well, if there is credit.
            peer.flow(9 if len(left) > 3 else 3)
            for _ in some:
                found = await peer.frame(TRANSFER)
                assert found.flag(RESUME)
                del left[tag_of(found)]
            await nothing_more(peer)
        await away(bench)
    assert attaches == 3
    assert len(await bench.items("orders")) == 1


async def test_a_publisher_with_an_incomplete_map_may_only_resume(
    bench: Bench,
) -> None:
    async with FramePeer(bench.port) as peer:
        await peer.attach("pub", target="orders", unsettled={}, incomplete=True)
        await peer.frame(FLOW)
        peer.transfer(0, b"t1", MESSAGE)
        found = await peer.frame(DETACH)
        assert b"amqp:not-allowed" in found[2]
    assert not await bench.items("orders")


async def test_rhea_reads_our_map_and_resumed_transfers(bench: Bench) -> None:
    """A client of another maker understands the frames that the shim writes."""
    source = {"address": "orders", "expiry_policy": "connection-close", "timeout": 30}
    mine = {"receiver": {"source": source, "name": "mine"}, "container": "desk"}
    await bench.publish("orders", "<x/>", "<y/>")
    await bench.rhea("receive", **mine, outcome="nothing", die=True, count=2)
    await away(bench)
    mine["receiver"] = {"source": source, "name": "mine", "unsettled": {}}
    told, *found = await bench.rhea("receive", **mine, count=2, tell_unsettled=True)
    assert (told["map"], told["unsettled"]) == (True, 2)
    assert [each["id"] for each in found] == ["xmpp-0", "xmpp-1"]
    await bench.until_items("orders", 0)


# -- other fields that proton hides ----------------------------------------


@pytest.mark.parametrize(
    ("default", "state", "count"),
    [
        (RELEASED, "live", 0),
        (MODIFIED, "live", 1),
        (REJECTED, "dead", 1),
        (NULL, "live", 1),
    ],
)
async def test_the_default_outcome_of_the_source_is_applied(
    bench: Bench, default: bytes, state: str, count: int
) -> None:
    """Settled without an outcome, and cut off (messaging §3.5.3); the answer shows it."""
    await bench.publish("orders", "<x/>", "<y/>")
    async with FramePeer(bench.port) as peer:
        answer = await peer.attach(
            "mine", source="orders", default=default, timeout_s=0
        )
        assert (default == NULL) or default in answer[5]
        peer.flow(2)
        for _ in range(2):
            await peer.frame(TRANSFER)
        peer.dispose(0, settled=True, receiver=True)
        await bench.until_locked("orders", 1)
    await away(bench)
    await bench.until_locked("orders", 0)
    found = await bench.items("orders", state)
    assert [each.delivery_count for each in found.values()] == [count] * 2
    if state == "live":
        assert all(each.state is ItemState.AVAILABLE for each in found.values())


@pytest.mark.parametrize(
    ("default", "state", "count"), [(RELEASED, "live", 0), (REJECTED, "dead", 1)]
)
async def test_the_default_outcome_is_applied_when_a_suspended_source_ends(
    timed: Bench, clock: ManualClock, default: bytes, state: str, count: int
) -> None:
    """The state at the receiver is not known then either (messaging §3.3)."""
    await timed.publish("orders", "<x/>")
    async with FramePeer(timed.port) as peer:
        await peer.attach("mine", source="orders", default=default, timeout_s=1)
        peer.flow(1)
        await peer.frame(TRANSFER)
    await away(timed)
    await timed.until_locked("orders", 1)
    clock.advance(1.0)
    await timed.until_locked("orders", 0)
    found = await timed.items("orders", state)
    assert [each.delivery_count for each in found.values()] == [count]


async def test_a_message_of_another_format_ends_the_link(bench: Bench) -> None:
    """Messaging §3.2.16: only what is a message is published; others go on."""
    async with FramePeer(bench.port) as peer:
        await peer.attach("pub", target="orders")
        await peer.attach("other", target="orders", handle=1)
        peer.transfer(0, b"t1", MESSAGE)
        peer.transfer(1, b"t2", OTHER, message_format=0x80013700)
        found = await peer.frame(DETACH)
        assert found.value(0) == 0
        assert b"amqp:not-implemented" in found[2]
        assert b"2147563264" in found[2]
        peer.transfer(2, b"t1", OTHER, handle=1)
        await bench.until_items("orders", 2)


async def test_frames_of_an_impossible_size_are_a_framing_error(bench: Bench) -> None:
    for size in (0, 7, 1 << 20):
        async with FramePeer(bench.port) as peer:
            peer.write(size.to_bytes(4, "big") + b"\x02\x00\x00\x00")
            found = await peer.frame(0x18)
            assert b"amqp:connection:framing-error" in found[0]


async def test_more_links_than_a_peer_detaches_end_its_connection(bench: Bench) -> None:
    """Refused ones too: otherwise they would pile up."""
    async with FramePeer(bench.port) as peer:
        for number in range(2001):
            peer.send(
                ATTACH, b"\xa1\x05" + b"%05d" % number, b"\x70" + number.to_bytes(4, "big"), b"\x41",
            )  # fmt: skip
        found = await peer.frame(0x18)
        assert b"more than 2000 links" in found[0]
