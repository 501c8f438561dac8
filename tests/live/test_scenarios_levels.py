"""The three levels between real clients and components, and what handlers get."""

import asyncio
from functools import partial
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp import JID, Iq, Message
from slixmpp.plugins.xep_0325.device import Device as ControlDevice
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath
from slixmpp.xmlstream.stanzabase import StanzaBase

from clients import Tls
from devices import (
    NEVER_S,
    Device,
    child,
    component,
    counters_agree,
    device,
    exchange_all_levels,
    request,
)
from passing_time import let_pass
from qos.core.message.model import MARKS_NAMESPACE, NAMESPACES, Level, OutgoingState
from qos.errors import InDoubt, NotDelivered, StillOutstanding
from qos.testing.prosody import MakeProsody, Prosody
from waiting import limit, until
from xep_qos import IncomingInfo

LAMP = "comp.localhost"

# Nothing is lost here: each repeat would be one too many.
client = partial(device, retry_first_s=NEVER_S, retry_max_s=NEVER_S)
gateway = partial(component, retry_first_s=NEVER_S, retry_max_s=NEVER_S)

#: Of a message that must have ended; tests let the time pass.
DEADLINE_S = 500.0

QOS_LEVELS = (Level.ACKNOWLEDGED, Level.ASSURED)


def requests_seen(receiver: Device) -> dict[str, int]:
    """How many requests came in each namespace."""
    seen: dict[str, int] = {}
    for xml in receiver.tap.seen:
        if xml.get("type") == "set" and len(xml):
            namespace = xml[0].tag[1:].partition("}")[0]
            if namespace in NAMESPACES:
                seen[namespace] = seen.get(namespace, 0) + 1
    return seen


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("smacks", [False, True], ids=["plain", "xep_0198"])
async def test_every_level_arrives_between_two_clients(
    prosody: Prosody, namespace: str, smacks: bool
) -> None:
    """The main job, in each of the three namespaces that peers may want."""
    only = (namespace,)
    async with (
        client(prosody, "alice/a", smacks=smacks, namespaces=only) as alice,
        client(prosody, "bob/b", smacks=smacks, namespaces=only) as bob,
    ):
        await exchange_all_levels(alice, bob, bob.jid, alice.jid)
        await exchange_all_levels(bob, alice, alice.jid, bob.jid)
        for end in (alice, bob):
            assert requests_seen(end) == {namespace: 3}
            assert ("stream_management" in end.client.features) is smacks


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("smacks", [False, True], ids=["plain", "xep_0198"])
async def test_every_level_arrives_between_a_client_and_a_component(
    prosody: Prosody, namespace: str, smacks: bool
) -> None:
    """On a component stream `message` has another namespace, and the server adds no
    from.
    """
    only = (namespace,)
    async with (
        gateway(prosody, LAMP, trust="alice@localhost", namespaces=only) as lamp,
        client(prosody, "alice/a", smacks=smacks, trust=LAMP, namespaces=only) as alice,
    ):
        await exchange_all_levels(alice, lamp, LAMP, alice.jid)
        await exchange_all_levels(lamp, alice, alice.jid, LAMP)
        for end in (alice, lamp):
            assert requests_seen(end) == {namespace: 3}


async def test_a_component_sends_and_receives_as_each_of_its_addresses(
    prosody: Prosody,
) -> None:
    """A gateway acts for many devices.

    Each answer and step comes from the right one.
    """
    node = f"kitchen@{LAMP}/ceiling"
    async with (
        gateway(prosody, LAMP, trust="anyone") as lamp,
        client(prosody, "alice/a", trust=node) as alice,
    ):
        await exchange_all_levels(alice, lamp, node, alice.jid)
        for level in QOS_LEVELS:
            message = lamp.message(alice.jid, level.value)
            message["from"] = node
            delivery = await lamp.qos.submit(message, level=level)
            outcome = await delivery.outcome()
            assert outcome.status is OutgoingState.DELIVERED
            (arrival,) = await alice.arrivals.take(1)
            assert (arrival.body, arrival.message["from"]) == (level.value, node)


async def test_two_components_exchange_every_level(make_prosody: MakeProsody) -> None:
    """Neither end has a roster or a presence."""
    secrets = {LAMP: "one", "door.localhost": "two"}
    server = await make_prosody(components=secrets)
    async with (
        gateway(server, LAMP, trust="door.localhost") as lamp,
        gateway(server, "door.localhost", trust="anyone") as door,
    ):
        await exchange_all_levels(lamp, door, "door.localhost", LAMP)
        await exchange_all_levels(door, lamp, LAMP, "door.localhost")


@pytest.mark.parametrize("tls", ["starttls", "direct"])
async def test_every_level_arrives_over_tls(
    make_prosody: MakeProsody, tls: Tls
) -> None:
    """The socket below TLS gets TCP_QUICKACK; nothing else differs."""
    server = await make_prosody(tls=True)
    async with (
        client(server, "alice/a", tls=tls, smacks=True) as alice,
        client(server, "bob/b", tls=tls) as bob,
    ):
        await exchange_all_levels(alice, bob, bob.jid, alice.jid)
        await exchange_all_levels(bob, alice, alice.jid, bob.jid)


async def test_peers_take_the_first_namespace_that_both_know(prosody: Prosody) -> None:
    """Our endpoint serves all three, whatever it prefers itself."""
    async with (
        client(prosody, "alice/a", namespaces=NAMESPACES[2:]) as alice,
        client(prosody, "bob/b", namespaces=NAMESPACES[1::-1]) as bob,
    ):
        await alice.qos.send(bob.jid, "by the third")
        await bob.qos.send(alice.jid, "by the second")
        assert requests_seen(bob) == {NAMESPACES[2]: 2}
        assert requests_seen(alice) == {NAMESPACES[1]: 2}


async def test_what_is_supported_is_found_by_disco(prosody: Prosody) -> None:
    """The proto-XEP, Determining Support.

    And our marks, so that others can ask first.
    """
    async with (
        client(prosody, "alice/a") as alice,
        gateway(prosody, LAMP, trust="anyone"),
        client(prosody, "bob/b") as bob,
    ):
        disco = alice.client.plugin["xep_0030"]
        for jid in (bob.jid, LAMP):
            info = await disco.get_info(jid=JID(jid), local=False)
            features = set(info["disco_info"]["features"])
            assert features >= {*NAMESPACES, MARKS_NAMESPACE}


async def test_a_message_keeps_everything_that_is_in_it(prosody: Prosody) -> None:
    """Type, id, language, foreign elements and their foreign attributes."""
    payload = (
        "<message xmlns='jabber:client' type='headline' id='4711' xml:lang='sv'>"
        "<body>hej</body><subject xml:lang='de'>Tür</subject>"
        "<count xmlns='urn:x:doors' xmlns:y='urn:y' y:unit='people' door='north'>"
        "<y:in>2</y:in><out/></count></message>"
    )
    async with (
        client(prosody, "alice/a") as alice,
        client(prosody, "bob/b") as bob,
    ):
        for level in Level:
            await alice.qos.send(bob.jid, payload=payload, level=level)
            (arrival,) = await bob.arrivals.take(1)
            message = arrival.message
            assert (message["from"], message["to"]) == (alice.jid, bob.jid)
            assert (message["type"], message["id"]) == ("headline", "4711")
            assert (message["lang"], arrival.body) == ("sv", "hej")
            count = message.xml.find("{urn:x:doors}count")
            assert count is not None
            assert count.get("door") == "north"
            assert count.findtext("{urn:y}in") == "2"
            if level is not Level.UNACKNOWLEDGED:  # slixmpp drops it there
                assert count.get("{urn:y}unit") == "people"


@pytest.mark.parametrize("level", QOS_LEVELS)
async def test_a_receipt_request_gets_its_receipt(
    prosody: Prosody, level: Level
) -> None:
    """XEP-0184 needs no change for our messages."""
    receipts: asyncio.Queue[Message] = asyncio.Queue()
    async with (
        client(prosody, "alice/a", plugins={"xep_0184": {}}) as alice,
        client(prosody, "bob/b", plugins={"xep_0184": {}}) as bob,
    ):
        alice.xmpp.add_event_handler("receipt_received", receipts.put_nowait)
        message = alice.message(bob.jid, "are you there?")
        message["id"] = "the-receipt-names-this"
        message["request_receipt"] = True
        delivery = await alice.qos.submit(message, level=level)
        await delivery.outcome()
        async with limit():
            receipt = await receipts.get()
        assert receipt["receipt"] == "the-receipt-names-this"
        assert receipt["from"] == bob.jid


class Lamp(ControlDevice):
    """A device by slixmpp's XEP-0325: it reports when it is switched."""

    def __init__(self) -> None:
        super().__init__("lamp")  # type: ignore[no-untyped-call]
        self._add_control_field("on", "boolean", "false")  # type: ignore[no-untyped-call]
        self.history: list[str] = []

    def _set_field_value(self, name: str, value: str) -> None:
        self.history.append(f"{name}={value}")


@pytest.mark.parametrize("level", QOS_LEVELS)
async def test_a_control_command_acts(prosody: Prosody, level: Level) -> None:
    """The use case of the proto-XEP.

    A set command of XEP-0325 with a quality of service.
    """
    lamp = Lamp()
    async with (
        client(prosody, "alice/a", plugins={"xep_0325": {}}) as alice,
        client(prosody, "bob/b", plugins={"xep_0325": {}}) as bob,
    ):
        control: Any = bob.client.plugin["xep_0325"]
        control.register_node(nodeId="lamp", device=lamp, commTimeout=5)
        for value in ("true", "false"):
            message = alice.message(bob.jid)
            message["set"].add_node("lamp")
            message["set"].add_data("on", "boolean", value)
            delivery = await alice.qos.submit(message, level=level)
            await delivery.outcome()
        await until(lambda: len(lamp.history) == 2)
        assert lamp.history == ["on=true", "on=false"]


@pytest.mark.parametrize("level", Level)
async def test_line_ends_arrive_as_line_feeds_and_a_language_as_it_is(
    prosody: Prosody, level: Level
) -> None:
    """XML has one line end (XML 1.0 §2.11), and servers write no other into a stanza."""
    async with (
        client(prosody, "alice/a") as alice,
        client(prosody, "bob/b") as bob,
    ):
        message = alice.xmpp.make_message(bob.jid)
        message["lang"] = "de"
        message["body"] = "eins\r\nzwei\rdrei\nvier\tfünf  sechs"
        await alice.qos.send(message, level=level)
        (arrival,) = await bob.arrivals.take(1)
        assert arrival.body == "eins\nzwei\ndrei\nvier\tfünf  sechs"
        assert arrival.message["lang"] == "de"


@pytest.mark.parametrize("level", QOS_LEVELS)
async def test_a_handler_that_fails_has_not_taken_its_message(
    prosody: Prosody, level: Level
) -> None:
    """It may have acted, and comes again after a restart: its sender is in doubt."""

    def fail(_message: Message) -> None:
        raise ArithmeticError("the application's own fault")

    def refuses(xml: ET.Element) -> bool:
        return xml.tag.endswith("}iq") and xml.get("type") == "error"

    async with (
        client(prosody, "alice/a") as alice,
        client(prosody, "bob/b") as bob,
    ):
        bob.xmpp.add_event_handler("message", fail)
        for number, body in enumerate(("one", "two"), start=1):
            sending = asyncio.create_task(
                alice.qos.send(bob.jid, body, level=level, deadline_s=DEADLINE_S)
            )
            await bob.arrivals.take(1)
            await alice.tap.wait_seen(refuses, number)
            await let_pass(DEADLINE_S)
            with pytest.raises(InDoubt):
                await sending
        assert bob.arrivals.bodies == ["one", "two"]


async def test_in_filters_of_the_application_see_and_change_what_is_delivered(
    prosody: Prosody,
) -> None:
    """For example, a filter that decrypts must get the message before the handlers."""
    async with (
        client(prosody, "alice/a") as alice,
        client(prosody, "bob/b", smacks=True) as bob,
    ):
        infos: list[IncomingInfo | None] = []

        def shout(stanza: StanzaBase) -> StanzaBase:
            if isinstance(stanza, Message) and stanza["body"]:
                infos.append(bob.qos.incoming(stanza))
                stanza["body"] = stanza["body"].upper()
            return stanza

        bob.xmpp.add_filter("in", shout)
        for level in Level:
            await alice.qos.send(bob.jid, level.value, level=level)
            (arrival,) = await bob.arrivals.take(1)
            assert arrival.body == level.value.upper()
        assert [info and info.level for info in infos] == [
            None if level is Level.UNACKNOWLEDGED else level for level in Level
        ]


async def test_an_in_filter_that_drops_a_message_does_not_upset_the_counters(
    prosody: Prosody,
) -> None:
    """XEP-0198 must not count what the server has not sent, even if a filter drops it."""
    async with (
        client(prosody, "alice/a") as alice,
        client(prosody, "bob/b", smacks=True) as bob,
    ):
        bob.tap.lose(lambda xml: xml.tag.endswith("}message"))
        for _ in range(5):
            await alice.qos.send(bob.jid, "dropped")
        bob.tap.lose(None)
        await counters_agree(bob)
        assert bob.arrivals.bodies == []


@pytest.mark.parametrize("smacks", [False, True], ids=["plain", "xep_0198"])
async def test_out_filters_of_the_application_see_every_iq_of_ours(
    prosody: Prosody, smacks: bool
) -> None:
    """A filter that logs or counts outgoing stanzas must not miss any."""
    seen: list[str] = []
    seen_later: list[str] = []

    def look(stanza: StanzaBase) -> StanzaBase:
        if isinstance(stanza, Iq):
            seen.append(child(stanza.xml))
        return stanza

    async def look_later(stanza: StanzaBase) -> StanzaBase:
        await asyncio.sleep(0)
        if isinstance(stanza, Iq):
            seen_later.append(child(stanza.xml))
        return stanza

    async with (
        client(prosody, "alice/a", smacks=smacks) as alice,
        client(prosody, "bob/b", smacks=smacks) as bob,
    ):
        bob.xmpp.register_handler(
            Callback("x", MatchXPath("{jabber:client}message/{urn:x}x"), lambda _: None)
        )
        await alice.qos.send(bob.jid, "before")
        alice.xmpp.add_filter("out", look)
        alice.xmpp.add_filter("out", look_later)
        foreign = "<x xmlns='urn:x' xmlns:y='urn:y' y:kept='yes'/>"
        await alice.qos.send(bob.jid, payload=foreign)
        await alice.qos.send(bob.jid, "quick", level=Level.ACKNOWLEDGED)
        await bob.qos.send(alice.jid, "back")
        expected = ["assured", "deliver", "acknowledged", "received", "hold"]
        assert [name for name in seen if name in expected] == expected
        assert [name for name in seen_later if name in expected] == expected
        with_foreign = list(filter(request("assured"), bob.tap.seen))[1]
        kept = with_foreign.find(".//{urn:x}x")
        assert kept is not None
        assert kept.get("{urn:y}kept") == "yes"
        if smacks:
            await counters_agree(alice)


async def test_a_plugin_that_was_ended_answers_nothing_more(prosody: Prosody) -> None:
    """`plugin_end` undoes everything that `plugin_init` did, and the peer is told so."""
    async with (
        client(prosody, "alice/a") as alice,
        client(prosody, "bob/b") as bob,
    ):
        await alice.qos.send(bob.jid, "once")
        await bob.qos.aclose()
        info = await alice.client.plugin["xep_0030"].get_info(
            jid=JID(bob.jid), local=False, cached=False
        )
        assert not {*NAMESPACES, MARKS_NAMESPACE} & set(info["disco_info"]["features"])
        with pytest.raises(NotDelivered) as caught:
            await alice.qos.send(bob.jid, "twice")
        assert caught.value.condition == "feature-not-implemented"
        assert caught.value.by == bob.jid
        await bob.ping()
        assert bob.arrivals.bodies == ["once"]


async def test_whoever_waits_for_an_outcome_when_the_plugin_is_closed_is_told(
    prosody: Prosody,
) -> None:
    """Before, they waited for ever, past any deadline."""
    async with client(prosody, "alice/a") as alice:
        send = alice.qos.send(
            "bob@localhost/away", "late", deadline_s=DEADLINE_S, msg_id="m1"
        )
        sending = asyncio.ensure_future(send)
        await until(lambda: len(alice.qos.outstanding()) == 1)
        await alice.qos.aclose()
        with pytest.raises(StillOutstanding, match="'m1' had ended"):
            async with limit():
                await sending
