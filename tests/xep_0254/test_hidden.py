"""At the door of XMPP: rights come first, and a hidden node is not there."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP
from slixmpp.exceptions import IqError

from qos.testing import friends, logged_in
from qos.testing.queues import queue_service
from qos.testing.server import LoopbackServer
from waiting import LIMIT_S
from xep_0254.namespaces import EXTENSIONS, OWNER, PUBSUB
from xep_0254.queueing import XEP_0254
from xep_0254.service import QueueService
from xep_qos import XEP_QOS

QUEUE = "queue.localhost"

OPEN = {"pubsub#access_model": "open"}
HIDDEN = {"pubsub#access_model": "whitelist"}

ONE = (
    "<options><x xmlns='jabber:x:data' type='submit'>"
    "<field var='FORM_TYPE' type='hidden'>"
    "<value>http://jabber.org/protocol/pubsub#subscribe_options</value></field>"
    "<field var='pubsub#queue_requests'><value>1</value></field></x></options>"
)

#: Each kind of request, as a set and a get; NODE stands for the name of the node.
REQUESTS: list[tuple[Literal["get", "set"], str, str]] = [
    (
        "set",
        PUBSUB,
        "<publish node='NODE'><item id='1'><a xmlns='u'/></item></publish>",
    ),
    ("set", PUBSUB, "<publish node='NODE'><item><a/><b/></item></publish>"),
    ("set", PUBSUB, f"<subscribe node='NODE' jid='eve@localhost/1'/>{ONE}"),
    ("set", PUBSUB, "<subscribe node='NODE' jid='eve@localhost/1'/>"),
    ("set", PUBSUB, "<unsubscribe node='NODE' jid='eve@localhost/1'/>"),
    ("set", PUBSUB, "<unsubscribe node='NODE' jid='boss@localhost/1'/>"),
    ("get", PUBSUB, "<options node='NODE' jid='eve@localhost/1'/>"),
    ("get", PUBSUB, "<items node='NODE'/>"),
    ("get", PUBSUB, f"<items xmlns:q='{EXTENSIONS}' node='NODE' q:state='dead'/>"),
    ("set", PUBSUB, "<retract node='NODE'><item id='1'/></retract>"),
    ("set", PUBSUB, "<retract node='NODE'><item id='none'/></retract>"),
    ("set", PUBSUB, f"<requeue xmlns='{EXTENSIONS}' node='NODE'/>"),
    ("get", PUBSUB, "<subscriptions node='NODE'/>"),
    ("get", PUBSUB, "<affiliations node='NODE'/>"),
    ("get", OWNER, "<subscriptions node='NODE'/>"),
    ("get", OWNER, "<affiliations node='NODE'/>"),
    ("get", OWNER, "<configure node='NODE'/>"),
    ("set", OWNER, "<configure node='NODE'/>"),
    ("set", OWNER, "<delete node='NODE'/>"),
    ("set", OWNER, "<purge node='NODE'/>"),
    (
        "set",
        OWNER,
        "<affiliations node='NODE'>"
        "<affiliation jid='eve@localhost' affiliation='owner'/></affiliations>",
    ),
]


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    async with friends("boss", "eve", components={QUEUE: "secret"}) as server:
        yield server


@pytest.fixture
async def service(
    server: LoopbackServer, tmp_path: Path
) -> AsyncIterator[QueueService]:
    store = f"sqlite:{tmp_path}/queues.db"
    async with queue_service(
        server, QUEUE, store=store, creators=["boss@localhost"]
    ) as service:
        # A write that a fixture has begun would not hold the clock of the test, which
        # would run to the end of all patience.
        written = asyncio.Event()
        service.engine.save((), lambda *_: written.set())
        await written.wait()
        await XEP_QOS.of(service._xmpp).flush()
        yield service


async def asked(client: ClientXMPP, kind: Literal["get", "set"], content: str) -> str:
    """The error that answers a request, as text."""
    iq = client.make_iq(ito=QUEUE, itype=kind)
    iq.append(ET.fromstring(content))  # noqa: S314 - ours
    with pytest.raises(IqError) as caught:
        await iq.send(timeout=LIMIT_S)  # type: ignore[no-untyped-call]
    answer = caught.value.iq.xml
    error = answer.find("{jabber:client}error")
    assert error is not None, ET.tostring(answer)
    return ET.tostring(error, encoding="unicode")


async def test_a_hidden_queue_answers_as_one_that_is_not_there(
    server: LoopbackServer, service: QueueService
) -> None:
    """By whatever is asked, right or wrong: condition and text are the same."""
    async with (
        logged_in(server, "boss/1", {"xep_0254": {}}) as boss,
        logged_in(server, "eve/1") as eve,
    ):
        await XEP_0254.of(boss).create(QUEUE, "hidden", HIDDEN)
        for kind, xmlns, content in REQUESTS:
            errors = {
                (
                    await asked(
                        eve,
                        kind,
                        f"<pubsub xmlns='{xmlns}'>{content}</pubsub>".replace(
                            "NODE", node
                        ),
                    )
                ).replace(node, "NODE")
                for node in ("hidden", "absent")
            }
            assert len(errors) == 1, errors
            assert "item-not-found" in errors.pop(), content


async def test_a_payload_is_read_only_of_who_may_publish(
    server: LoopbackServer, service: QueueService
) -> None:
    """Two elements are no payload; whoever reads them says so."""
    content = (
        f"<pubsub xmlns='{PUBSUB}'><publish node='open'>"
        "<item><a xmlns='u'/><b xmlns='u'/></item></publish></pubsub>"
    )
    async with (
        logged_in(server, "boss/1", {"xep_0254": {}}) as boss,
        logged_in(server, "eve/1") as eve,
    ):
        await XEP_0254.of(boss).create(QUEUE, "open", OPEN)
        assert "invalid-payload" in await asked(boss, "set", content)
        refused = await asked(eve, "set", content)
        assert "forbidden" in refused
        assert "eve@localhost may not publish to 'open'" in refused


async def test_nor_is_that_of_an_assured_message(
    server: LoopbackServer, service: QueueService
) -> None:
    """A publisher of one node is trusted, but may not publish to another one."""
    async with (
        logged_in(server, "boss/1", {"xep_0254": {}}) as boss,
        logged_in(server, "eve/1") as eve,
    ):
        queueing = XEP_0254.of(boss)
        await queueing.create(QUEUE, "all", {**OPEN, "pubsub#publish_model": "open"})
        for node, config in (("open", OPEN), ("hid", HIDDEN)):
            await queueing.create(QUEUE, node, config)
        for node, condition in (
            ("open", "forbidden"),
            ("hid", "item-not-found"),
            ("absent", "item-not-found"),
        ):
            message = eve.make_message(mto=QUEUE)
            message.append(
                ET.fromstring(  # noqa: S314 - ours
                    f"<pubsub xmlns='{PUBSUB}'><publish node='{node}'>"
                    "<item><a xmlns='u'/><b xmlns='u'/></item></publish></pubsub>"
                )
            )
            delivery = await XEP_QOS.of(eve).submit(message)
            with pytest.raises(Exception, match=condition):
                (await delivery.outcome()).raise_for_status()
