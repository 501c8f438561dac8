"""Consumers on a real server: effects exactly once, in order, parked when they fail."""

import contextlib
import itertools
import random
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from slixmpp import Message
from slixmpp.xmlstream.matcher import StanzaPath

import consuming_device
from consuming_device import PLACES, Death
from devices import NO_RETRY, Device, device, make_device, outcome_of
from forked import Forked
from qos import Delivery, Handover
from qos.core.message.model import Level, OutgoingState
from qos.errors import (
    AmbiguousMessage,
    LocalProtocolError,
    StoreError,
    UnknownMessage,
)
from qos.testing.prosody import MakeProsody, Prosody
from waiting import limit, until


@pytest.fixture
async def prosody(make_prosody: MakeProsody) -> Prosody:
    return await make_prosody()


@contextlib.asynccontextmanager
async def pair(
    prosody: Prosody, tmp_path: Path, **options: Any
) -> AsyncIterator[tuple[Device, Device]]:
    """Alice, who sends, and Bob, whose store is a file; he is not connected yet."""
    store = f"sqlite:{tmp_path / 'bob.db'}"
    async with (
        make_device(prosody, "bob/lamp", store=store) as bob,
        device(prosody, "alice/desk", **options) as alice,
    ):
        yield alice, bob


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    """The rows that a reader of the file sees."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


async def test_a_consumer_gets_what_matches_and_handlers_get_the_rest(
    prosody: Prosody, tmp_path: Path
) -> None:
    """Each message has one taker."""
    async with pair(prosody, tmp_path) as (alice, bob):
        got: list[tuple[str, int, bool]] = []

        @bob.qos.consumer(match=lambda message: message["body"].startswith("set "))
        async def take(message: Message, handover: Handover) -> None:
            info = bob.qos.incoming(message)
            assert info is not None
            assert info.msg_id == handover.msg_id
            assert str(message["from"]) == alice.jid
            got.append((message["body"], handover.count, handover.redelivered))
            await handover.execute("CREATE TABLE IF NOT EXISTS lamp (level)")
            await handover.execute(
                "INSERT INTO lamp VALUES (:level)", {"level": message["body"][4:]}
            )
            assert await handover.execute("SELECT COUNT(*) FROM lamp") == [(1,)]

        await bob.log_in()
        await alice.qos.send(bob.jid, "set 7")
        await alice.qos.send(bob.jid, "hello")
        assert got == [("set 7", 1, False)]
        assert bob.arrivals.bodies == ["hello"]
        assert rows(tmp_path / "bob.db", "SELECT * FROM lamp") == [("7",)]


async def test_a_matcher_of_slixmpp_can_say_what_a_consumer_takes(
    prosody: Prosody, tmp_path: Path
) -> None:
    """As for handlers. Consumers get no messages at level acknowledged."""
    async with pair(prosody, tmp_path, **NO_RETRY) as (alice, bob):
        got: list[str] = []

        @bob.qos.consumer(match=StanzaPath("message/subject"))
        async def never(message: Message, handover: Handover) -> None:
            got.append("with a subject")

        @bob.qos.consumer()
        async def take(message: Message, handover: Handover) -> None:
            got.append(message["body"])

        await bob.log_in()
        await alice.qos.send(bob.jid, "one")
        message = alice.message(bob.jid, "two")
        delivery = await alice.qos.submit(message, level=Level.ACKNOWLEDGED)
        await outcome_of(delivery)
        assert (got, bob.arrivals.bodies) == (["one"], ["two"])


async def test_one_that_raises_undoes_its_writes_and_is_tried_again(
    prosody: Prosody, tmp_path: Path
) -> None:
    """The sender waits, and is told when the consumer has succeeded."""
    async with pair(prosody, tmp_path) as (alice, bob):
        tries = itertools.count(1)

        @bob.qos.consumer(retry_first_s=0.1)
        async def take(message: Message, handover: Handover) -> None:
            await handover.execute("CREATE TABLE IF NOT EXISTS lamp (level)")
            await handover.execute("INSERT INTO lamp VALUES (1)")
            if next(tries) < 3:
                raise ValueError("no")

        await bob.log_in()
        delivery = await alice.qos.submit(alice.message(bob.jid, "on"))
        outcome = await outcome_of(delivery)
        assert outcome.status is OutgoingState.DELIVERED
        assert next(tries) == 4
        assert rows(tmp_path / "bob.db", "SELECT * FROM lamp") == [(1,)]


async def test_one_that_fails_too_often_is_parked_until_an_operator_decides(
    prosody: Prosody, tmp_path: Path
) -> None:
    """A released message is done, a dropped one is not delivered; later ones go on."""
    async with pair(prosody, tmp_path) as (alice, bob):
        got: list[str] = []
        broken = {"bad", "worse"}

        @bob.qos.consumer(retry_first_s=0.05, retry_max_s=0.1, max_handovers=2)
        async def take(message: Message, handover: Handover) -> None:
            if message["body"] in broken:
                raise ValueError("no")
            got.append(message["body"])

        await bob.log_in()
        bad = await alice.qos.submit(alice.message(bob.jid, "bad"))
        worse = await alice.qos.submit(alice.message(bob.jid, "worse"))
        await alice.qos.send(bob.jid, "good")
        await until(lambda: len(bob.qos.parked()) == 2)
        for each in bob.qos.parked():
            each.payload = ""  # type: ignore[misc]  # it is a copy
        assert got == ["good"]
        assert not bad.ended
        broken.clear()
        bob.qos.release_parked(bad.msg_id, "alice@localhost")
        assert (await outcome_of(bad)).status is OutgoingState.DELIVERED
        assert got == ["good", "bad"]
        bob.qos.drop_parked(worse.msg_id)
        outcome = await outcome_of(worse)
        # The sender has asked more than once, and cannot know the result.
        assert outcome.status in {OutgoingState.IN_DOUBT, OutgoingState.NOT_DELIVERED}
        assert got == ["good", "bad"]
        with pytest.raises(UnknownMessage):
            bob.qos.release_parked(worse.msg_id)


async def test_a_parked_message_whose_id_others_have_used_takes_its_sender(
    prosody: Prosody, tmp_path: Path
) -> None:
    """Small devices count from 1: the message of another sender must not be dropped."""
    async with (
        pair(prosody, tmp_path) as (alice, bob),
        device(prosody, "alice/phone") as phone,
    ):

        @bob.qos.consumer(max_handovers=1)
        async def take(message: Message, handover: Handover) -> None:
            raise ValueError("no")

        await bob.log_in()
        for each in (alice, phone):
            await each.qos.submit(each.message(bob.jid, "on"), msg_id="1")
        await until(lambda: len(bob.qos.parked("1")) == 2)
        with pytest.raises(
            AmbiguousMessage, match="alice@localhost/desk, alice@localhost/phone"
        ):
            bob.qos.drop_parked("1")
        with pytest.raises(AmbiguousMessage):
            bob.qos.release_parked("1", "alice@localhost")
        bob.qos.drop_parked("1", phone.jid)
        await until(lambda: len(bob.qos.parked("1")) == 1)
        (left,) = bob.qos.parked()
        assert left.source == alice.jid


async def test_a_handler_may_send_but_not_while_its_transaction_is_open(
    prosody: Prosody, tmp_path: Path
) -> None:
    """It would wait for its own commit, so it gets an error."""
    async with pair(prosody, tmp_path) as (alice, bob):
        problems: list[str] = []

        @bob.qos.consumer()
        async def take(message: Message, handover: Handover) -> None:
            await bob.qos.send(alice.jid, "before")
            await handover.execute("SELECT 1")
            try:
                await bob.qos.send(alice.jid, "within")
            except StoreError as error:
                problems.append(str(error))

        await bob.log_in()
        await alice.qos.send(bob.jid, "on")
        assert "send before its first statement" in problems[0]
        assert alice.arrivals.bodies == ["before"]


async def test_what_is_refused_while_a_transaction_is_open_leaves_nothing_behind(
    prosody: Prosody, tmp_path: Path
) -> None:
    """Each retry of such a consumer took up a place in the window for ever."""
    async with pair(prosody, tmp_path) as (alice, bob):
        todo: list[Callable[[], Awaitable[object]]] = []
        problems: list[Exception] = []

        @bob.qos.consumer(retry_first_s=0.05, retry_max_s=0.1, max_handovers=1)
        async def take(message: Message, handover: Handover) -> None:
            if message["body"] == "bad":
                raise ValueError("no")
            await handover.execute("SELECT 1")
            for act in todo:
                try:
                    await act()
                except StoreError as error:
                    problems.append(error)

        await bob.log_in()
        bad = await alice.qos.submit(alice.message(bob.jid, "bad"))
        await until(lambda: len(bob.qos.parked()) == 1)
        away = bob.message("carol@localhost/x", "later")
        waiting = await bob.qos.submit(away, msg_id="waiting")

        async def decide(decision: Callable[[str], None]) -> None:
            decision(bad.msg_id)

        todo += [partial(bob.qos.send, alice.jid, "hi", msg_id="m")] * 6
        todo += [waiting.withdraw]
        todo += [partial(decide, bob.qos.release_parked)]
        todo += [partial(decide, bob.qos.drop_parked)]
        await alice.qos.send(bob.jid, "go")
        assert [str(each).partition(":")[0] for each in problems] == ["sqlite"] * 9
        assert len(bob.qos.outstanding()) == 1
        assert [each.msg_id for each in bob.qos.parked()] == [bad.msg_id]

        await bob.qos.send(alice.jid, "hi", msg_id="m")
        assert alice.arrivals.bodies == ["hi"]
        await waiting.withdraw()
        assert len(bob.qos.outstanding()) == 0
        bob.qos.drop_parked(bad.msg_id)
        assert bob.qos.parked() == []


async def test_what_cannot_be_is_said_when_it_is_asked_for(prosody: Prosody) -> None:
    """A memory store has no transactions, and two consumers need two names."""
    async with (
        make_device(prosody, "bob/lamp") as bob,
        device(prosody, "alice/desk") as alice,
    ):
        qos = bob.qos
        problems: list[str] = []

        @qos.consumer()
        async def take(message: Message, handover: Handover) -> None:
            try:
                await handover.execute("SELECT 1")
            except LocalProtocolError as error:
                problems.append(f"{error} {handover.key}")

        with pytest.raises(LocalProtocolError, match="there is a consumer 'test_"):
            qos.consumer()(take)
        with pytest.raises(
            LocalProtocolError, match=r"max_handovers must be .* at least 1: 0"
        ):
            qos.consumer(name="other", max_handovers=0)(take)
        with pytest.raises(ValueError, match="retry_first_s must be"):
            qos.consumer(name="other", retry_first_s=0)
        await bob.log_in()
        with pytest.raises(LocalProtocolError, match="before the client connects"):
            qos.consumer(name="other")
        await alice.qos.send(bob.jid, "on")
        assert "only a store sqlite:PATH has transactions" in problems[0]


@pytest.mark.crash
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(2))
async def test_each_effect_is_there_once_wherever_the_device_dies(
    prosody: Prosody, tmp_path: Path, seed: int
) -> None:
    """In the handler, at its commit, and before its sender is told."""
    rng = random.Random(seed)
    places = [*PLACES, *rng.choices(PLACES, k=4)]
    rng.shuffle(places)
    path = tmp_path / "bob.db"
    async with device(prosody, "alice/desk") as alice:
        numbers = itertools.count()
        sent: list[str] = []
        sending: list[Delivery] = []

        async def send(count: int) -> None:
            """Messages of this life: those of the one before may have been answered."""
            for number in itertools.islice(numbers, count):
                sent.append(f"message {number}")
                message = alice.message("bob@localhost/device", sent[-1])
                sending.append(await alice.qos.submit(message))

        for place in places:
            times = rng.randint(1, 6)
            await send(times)
            async with _living(prosody, path, place, times) as process, limit():
                assert await process.wait() == -signal.SIGKILL
        async with _living(prosody, path, "", 0):
            outcomes = [await outcome_of(delivery) for delivery in sending]
    assert {outcome.status for outcome in outcomes} == {OutgoingState.DELIVERED}
    assert sorted(rows(path, "SELECT body FROM took")) == sorted((b,) for b in sent)


@contextlib.asynccontextmanager
async def _living(
    prosody: Prosody, path: Path, place: str, times: int
) -> AsyncIterator[Forked]:
    account = prosody.address, prosody.c2s_port, prosody.accounts["bob"]
    process = await Forked.start(
        consuming_device.run, *account, path, Death(place, times)
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
