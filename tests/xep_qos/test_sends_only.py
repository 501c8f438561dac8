"""The option `receives=False`: an endpoint that sends, and accepts nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP
from slixmpp.exceptions import IqError

from qos.core.message.batch import BATCH_NAMESPACE
from qos.core.message.model import (
    MARKS_NAMESPACE,
    NAMESPACES,
    Incoming,
    IncomingState,
    Level,
    OutgoingState,
)
from qos.errors import LocalProtocolError
from qos.stores import store_from_url
from qos.testing import LoopbackServer, friends, logged_in
from waiting import LIMIT_S, until
from xep_qos import XEP_QOS

SENDS_ONLY = {"xep_qos": {"receives": False}}
MESSAGE = "<message xmlns='jabber:client'><body>x</body></message>"
OFFER = f"<assured xmlns='urn:xmpp:qos' %smsgId='m1'>{MESSAGE}</assured>"
RELEASE = "<deliver xmlns='urn:xmpp:qos' %smsgId='m1'/>"
CONFIRM = f"<acknowledged xmlns='urn:xmpp:qos' %s>{MESSAGE}</acknowledged>"


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    async with friends("alice", "bob") as server:
        yield server


def takes(client: ClientXMPP) -> None:
    """Register handlers that would take each message with a body."""
    client.add_event_handler("message", lambda _message: None)


class Iqs(list[ET.Element]):
    """All iqs that reach a client."""

    def watch(self, client: ClientXMPP) -> None:
        """A filter before that of the plugin, which removes its own iqs."""
        client.add_filter("in", self._note)

    def _note(self, stanza: Any) -> Any:
        if stanza.name == "iq":
            self.append(stanza.xml)
        return stanza


@pytest.mark.parametrize("how", ["alone", "in a batch"])
@pytest.mark.parametrize("request_", [OFFER, RELEASE, CONFIRM])
async def test_each_request_is_refused_once_so_that_its_sender_tries_again(
    server: LoopbackServer, request_: str, how: str
) -> None:
    """A batch is refused as a whole: nobody reads its contents."""
    iqs = Iqs()
    async with (
        logged_in(server, "alice/1", prepare=iqs.watch) as alice,
        logged_in(server, "bob/1", SENDS_ONLY, prepare=takes),
    ):
        text = request_ % ""
        if how == "in a batch":
            element = request_ % "id='i1' "
            text = f"<batch xmlns='{BATCH_NAMESPACE}'>{element}</batch>"
        iq = alice.make_iq_set(ito="bob@localhost/1")
        iq.append(ET.fromstring(text))  # noqa: S314 - our own text
        with pytest.raises(IqError) as refused:
            await iq.send(timeout=LIMIT_S)  # type: ignore[no-untyped-call]
        assert refused.value.condition == "service-unavailable"
        assert refused.value.iq["error"]["type"] == "cancel"
        ping = alice.make_iq_get("urn:xmpp:ping", ito="bob@localhost/1")
        with contextlib.suppress(IqError):
            await ping.send(timeout=LIMIT_S)  # type: ignore[no-untyped-call]
        answers = [each for each in iqs if each.get("id") == iq["id"]]
        assert len(answers) == 1


async def test_it_advertises_nothing_and_so_a_bare_jid_is_never_resolved_to_it(
    server: LoopbackServer,
) -> None:
    """Neither in its disco#info nor in the hash of its presence (XEP-0115)."""
    async with (
        logged_in(server, "alice/1") as alice,
        logged_in(server, "bob/1", SENDS_ONLY, prepare=takes),
    ):
        disco: Any = alice.plugin["xep_0030"]
        info = await disco.get_info(
            jid="bob@localhost/1", cached=False, timeout=LIMIT_S
        )
        ours = {*NAMESPACES, MARKS_NAMESPACE, BATCH_NAMESPACE}
        assert not ours & set(info["disco_info"]["features"])
        message = alice.make_message("bob@localhost", mbody="x")
        delivery = await XEP_QOS.of(alice).submit(message, deadline_s=0.5)
        outcome = await delivery.outcome()
        assert (outcome.status, outcome.attempts) == (OutgoingState.NOT_DELIVERED, 0)


@pytest.mark.parametrize("level", [Level.ASSURED, Level.ACKNOWLEDGED])
async def test_it_gets_the_answers_to_what_it_sends_those_to_batches_included(
    server: LoopbackServer, level: Level
) -> None:
    """Results are not requests."""
    iqs = Iqs()
    async with (
        logged_in(server, "alice/1", SENDS_ONLY, prepare=iqs.watch) as alice,
        logged_in(server, "bob/1", prepare=takes),
    ):
        qos = XEP_QOS.of(alice)
        sending = [qos.send("bob@localhost", str(n), level=level) for n in range(50)]
        outcomes = await asyncio.gather(*sending)
        assert {each.status for each in outcomes} == {OutgoingState.DELIVERED}
        batch = f"{{{BATCH_NAMESPACE}}}batch"
        assert any(each.find(batch) is not None for each in iqs)


async def test_what_its_store_holds_for_others_stays_there(
    server: LoopbackServer, tmp_path: Path
) -> None:
    """A process that receives hands them over: the same store, at another time."""
    url = f"sqlite:{tmp_path}/bob.db"
    futures: list[asyncio.Future[None]] = []

    def in_hand(client: ClientXMPP) -> None:
        def take(message: Any) -> None:
            futures.append(client.loop.create_future())
            XEP_QOS.of(client).take_until(message, futures[-1])

        client.add_event_handler("message", take)

    async with logged_in(server, "alice/1") as alice:
        options = {"xep_qos": {"store": url}}
        async with logged_in(server, "bob/1", options, prepare=in_hand):
            message = alice.make_message("bob@localhost/1", mbody="x")
            await XEP_QOS.of(alice).submit(message)
            await until(lambda: futures)
        before = await _incoming(url)
        assert [each.state for each in before] == [IncomingState.RELEASING]
        quick = {"xep_qos": {"store": url, "receives": False, "hold_ttl_s": 0.01}}
        async with logged_in(server, "bob/1", quick, prepare=takes) as bob:
            message = bob.make_message("alice@localhost/1", mbody="y")
            sent = await XEP_QOS.of(bob).submit(message, deadline_s=0.3)
            await sent.outcome()
    assert await _incoming(url) == before


async def _incoming(url: str) -> list[Incoming]:
    """A message in a store that is held for its sender."""
    store = store_from_url(url)
    incoming = list(store.open().incoming)
    await store.close()
    return incoming


async def test_what_makes_sense_for_a_receiver_alone_is_refused(
    server: LoopbackServer,
) -> None:
    """Using it here is a misunderstanding of the endpoint."""
    async with logged_in(server, "bob/1", SENDS_ONLY) as bob:
        qos = XEP_QOS.of(bob)
        with pytest.raises(LocalProtocolError, match="receives=False"):
            qos.consumer()


async def test_the_option_is_true_or_false() -> None:
    """Any non-empty text is true in Python, even "no"."""
    client = ClientXMPP("bob@localhost", "")
    with pytest.raises(ValueError, match="receives must be"):
        client.register_plugin("xep_qos", {"receives": "no"})
