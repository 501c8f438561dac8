"""Commands that are wrong, late, or of somebody else: each has its error (XEP-0050 §4.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP
from slixmpp.exceptions import IqError

from adhoc_client import NODE
from qos.core.queue.requests import Purge, Refusal
from qos.testing import friends, logged_in
from qos.testing.queues import queue_service
from qos.testing.server import LoopbackServer
from waiting import LIMIT_S, until
from xep_0254 import XEP_0254, NewItem, command_stanza
from xep_0254.namespaces import COMMANDS, DISCO_INFO, DISCO_ITEMS, STANZAS
from xep_0254.service import QueueService

QUEUE = "queue.localhost"

FORM = "<x xmlns='jabber:x:data' type='submit'>{}</x>"
ORDERS = FORM.format("<field var='node'><value>orders</value></field>")

#: The first four of the table of XEP-0050 §4.4 that can happen here.
MALFORMED_ACTION = ("modify", "bad-request", "malformed-action")
BAD_ACTION = ("modify", "bad-request", "bad-action")
BAD_PAYLOAD = ("modify", "bad-request", "bad-payload")
BAD_SESSIONID = ("modify", "bad-request", "bad-sessionid")
SESSION_EXPIRED = ("cancel", "not-allowed", "session-expired")
FORBIDDEN = ("cancel", "forbidden", "")
NOT_FOUND = ("cancel", "item-not-found", "")


class Peer:
    """Writes each command by hand."""

    def __init__(self, client: ClientXMPP) -> None:
        self.client = client

    async def send(
        self, name: str, content: str = "", kind: str = "set", **attributes: str
    ) -> ET.Element:
        """Send a command; returns the answer of either type."""
        written = "".join(f" {key}='{value}'" for key, value in attributes.items())
        node = name if ":" in name or "/" in name else NODE + name
        command = (
            f"<command xmlns='{COMMANDS}' node='{node}'{written}>{content}</command>"
        )
        return await self.ask(command, kind)

    async def ask(self, content: str, kind: str = "set") -> ET.Element:
        iq = self.client.make_iq(ito=QUEUE, itype=kind)  # type: ignore[arg-type]
        iq.append(ET.fromstring(content))  # noqa: S314 - ours
        try:
            answer = await iq.send(timeout=LIMIT_S)  # type: ignore[no-untyped-call]
        except IqError as error:
            answer = error.iq
        xml: ET.Element = answer.xml
        return xml

    async def refused(
        self, name: str, content: str = "", kind: str = "set", **attributes: str
    ) -> tuple[str, str, str]:
        """Send a command; returns type, condition and specific condition of the error."""
        return refusal_in(await self.send(name, content, kind, **attributes))

    async def begun(self, name: str) -> str:
        """Begin a command; returns the id of its session."""
        return command_in(await self.send(name)).get("sessionid", "")

    async def query(self, xmlns: str, node: str) -> ET.Element:
        return await self.ask(f"<query xmlns='{xmlns}' node='{node}'/>", "get")


def refusal_in(answer: ET.Element) -> tuple[str, str, str]:
    assert answer.get("type") == "error", ET.tostring(answer)
    error = answer.find("{jabber:client}error")
    assert error is not None
    names: dict[str, str] = {STANZAS: "", COMMANDS: ""}
    for child in error:
        xmlns, _, name = child.tag[1:].partition("}")
        if name != "text":
            names[xmlns] = name
    assert error.findtext(f"{{{STANZAS}}}text"), "it says what to do"
    return error.get("type", ""), names[STANZAS], names[COMMANDS]


def command_in(answer: ET.Element) -> ET.Element:
    assert answer.get("type") == "result", ET.tostring(answer)
    return answer[0]


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    async with friends("boss", "bee", "eve", components={QUEUE: "secret"}) as server:
        yield server


@pytest.fixture
async def service(
    server: LoopbackServer, tmp_path: Path
) -> AsyncIterator[QueueService]:
    store = f"sqlite:{tmp_path}/queues.db"
    async with queue_service(
        server, QUEUE, store=store, creators=["boss@localhost"]
    ) as service:
        yield service


@pytest.fixture
async def queues(
    server: LoopbackServer, service: QueueService
) -> AsyncIterator[XEP_0254]:
    """With one queue of boss."""
    async with logged_in(server, "boss/plugin", {"xep_0254": {}}) as client:
        plugin = XEP_0254.of(client)
        await plugin.create(QUEUE, "orders")
        yield plugin


@pytest.fixture
async def boss(server: LoopbackServer, queues: XEP_0254) -> AsyncIterator[Peer]:
    async with logged_in(server, "boss/1") as client:
        yield Peer(client)


@pytest.fixture
async def eve(server: LoopbackServer, queues: XEP_0254) -> AsyncIterator[Peer]:
    async with logged_in(server, "eve/1") as client:
        yield Peer(client)


async def test_a_command_that_nobody_has_is_not_found(boss: Peer) -> None:
    assert await boss.refused("shutdown") == NOT_FOUND
    assert await boss.refused("http://jabber.org/protocol/admin#shutdown") == NOT_FOUND
    assert await boss.refused("", sessionid="s1") == NOT_FOUND


async def test_actions_that_are_none_or_not_possible_now(boss: Peer) -> None:
    assert await boss.refused("queue", action="destroy") == MALFORMED_ACTION
    for action in ("next", "prev", "complete", "cancel"):
        assert await boss.refused("queue", action=action) == BAD_ACTION
    sessionid = await boss.begun("queue")
    for action, why in (
        ("destroy", MALFORMED_ACTION),
        ("next", BAD_ACTION),
        ("prev", BAD_ACTION),
    ):
        assert await boss.refused("queue", action=action, sessionid=sessionid) == why
    answer = await boss.send("queue", ORDERS, sessionid=sessionid)
    assert command_in(answer).get("status") == "completed"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "<note xmlns='http://jabber.org/protocol/commands'>orders</note>",
        "<x xmlns='jabber:x:oob'/>",
        ORDERS + ORDERS,
        FORM.format(""),
        ORDERS.replace("submit", "form"),
        ORDERS.replace("'node'", "'nodes'"),
        FORM.format("<field var='node'/>"),
        FORM.format("<field var='node'><value>a</value><value>b</value></field>"),
        FORM.format("<field var='node'><value>a</value></field>" * 2),
        FORM.format("<field var='node'/>" * 101),
        FORM.format(f"<field var='node'>{'<value/>' * 251}</field>"),
        FORM.format(f"<field var='node'><value>{'n' * 100_000}</value></field>"),
    ],
)
async def test_a_payload_that_is_not_the_form(boss: Peer, content: str) -> None:
    """The session stays, and takes the right one."""
    sessionid = await boss.begun("queue")
    assert await boss.refused("queue", content, sessionid=sessionid) == BAD_PAYLOAD
    # XEP-0050 §3.5.1: a form that is canceled counts as submitted.
    content = ORDERS.replace("submit", "cancel")
    answer = await boss.send("queue", content, sessionid=sessionid)
    assert command_in(answer).get("status") == "completed"


async def test_a_session_of_another_account_is_not_there(
    boss: Peer, eve: Peer, queues: XEP_0254
) -> None:
    """By whatever is asked of it, and after its end."""
    sessionid = await boss.begun("purge")
    other_id = f"{sessionid[:-1]}_"
    for action in ("execute", "next", "complete", "cancel", "destroy"):
        for tried in (sessionid, other_id):
            attributes = {"action": action, "sessionid": tried}
            assert await eve.refused("purge", ORDERS, **attributes) == BAD_SESSIONID
    assert await boss.refused("queue", ORDERS, sessionid=sessionid) == BAD_SESSIONID
    answer = await boss.send("purge", action="cancel", sessionid=sessionid)
    assert command_in(answer).get("status") == "canceled"
    assert await boss.refused("purge", sessionid=sessionid) == SESSION_EXPIRED
    assert await eve.refused("purge", sessionid=sessionid) == BAD_SESSIONID


async def test_a_session_ends_with_its_command(boss: Peer) -> None:
    sessionid = await boss.begun("queues")
    assert await boss.refused("queues", sessionid=sessionid) == SESSION_EXPIRED


async def test_a_session_ends_after_ten_minutes(tmp_path: Path) -> None:
    """All of it is made here: the clock of a test begins with the test."""
    async with (
        friends("boss", components={QUEUE: "secret"}) as server,
        queue_service(server, QUEUE, store=f"sqlite:{tmp_path}/queues.db"),
        logged_in(server, "boss/1", {"xep_0254": {}}) as client,
    ):
        await XEP_0254.of(client).create(QUEUE, "orders")
        boss = Peer(client)
        early, late = await boss.begun("queue"), await boss.begun("queue")
        await asyncio.sleep(300)
        # A request that is refused is a sign of life, too.
        assert await boss.refused("queue", "", sessionid=late) == BAD_PAYLOAD
        await asyncio.sleep(301)
        assert await boss.refused("queue", ORDERS, sessionid=early) == SESSION_EXPIRED
        command_in(await boss.send("queue", ORDERS, sessionid=late))


async def test_an_account_has_ten_sessions(boss: Peer) -> None:
    ids = [await boss.begun("queue") for _ in range(11)]
    assert await boss.refused("queue", ORDERS, sessionid=ids[0]) == SESSION_EXPIRED
    for sessionid in ids[1:]:
        command_in(await boss.send("queue", ORDERS, sessionid=sessionid))


async def test_the_form_of_a_stranger_is_not_read(
    eve: Peer, service: QueueService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one that comes with the first request."""

    def read_form(_iq: ET.Element) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr(command_stanza, "read_form", read_form)
    huge = FORM.format(f"<field var='node'><value>{'n' * 200_000}</value></field>")
    for name in ("queues", "queue", "browse", "dead", "workers", "create", "purge"):
        assert await eve.refused(name, huge) == FORBIDDEN
        assert await eve.refused(name, huge, sessionid="s1") == BAD_SESSIONID
    assert len(service._commands._sessions) == 0


async def test_two_requests_at_once_purge_once(
    boss: Peer, queues: XEP_0254, service: QueueService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one comes while the first is being written."""
    sessionid = await boss.begun("purge")
    await boss.send("purge", ORDERS, sessionid=sessionid)
    yes = FORM.format("<field var='confirm'><value>1</value></field>")
    purged: list[object] = []
    request = service.engine.request

    def noted(job: object, *arguments: object) -> None:
        purged.extend([job] if isinstance(job, Purge) else [])
        request(job, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(service.engine, "request", noted)
    answers = await asyncio.gather(
        *(boss.send("purge", yes, sessionid=sessionid) for _ in range(3))
    )
    assert sorted(answer.get("type", "") for answer in answers) == [
        *("error", "error", "result"),
    ]
    assert purged == [Purge("orders")]


async def test_any_language_is_answered_in_english(boss: Peer) -> None:
    """Rather than refused: a reader of French would have no commands at all."""
    answer = await boss.send("queue", **{"xml:lang": "fr"})
    lang = "{http://www.w3.org/XML/1998/namespace}lang"
    assert command_in(answer).get(lang) == "en"


async def test_discovery_says_what_a_command_is_to_who_can_use_it(
    boss: Peer, eve: Peer
) -> None:
    """XEP-0050 §2.2."""
    listing = (await boss.query(DISCO_INFO, COMMANDS))[0]
    (identity,) = listing.iterfind(f"{{{DISCO_INFO}}}identity")
    assert identity.get("type") == "command-list"
    answer = await boss.query(DISCO_INFO, f"{NODE}dead")
    identity = answer[0][0]
    assert identity.attrib == {
        "category": "automation",
        "type": "command-node",
        "name": "Requeue the dead items of a queue",
    }
    features = {child.get("var") for child in answer[0][1:]}
    assert features == {COMMANDS, "jabber:x:data"}
    assert len((await boss.query(DISCO_ITEMS, f"{NODE}dead"))[0]) == 0
    items = (await boss.query(DISCO_ITEMS, COMMANDS))[0]
    assert [item.get("node") for item in items][:2] == [f"{NODE}queues", f"{NODE}queue"]
    assert {item.get("jid") for item in items} == {QUEUE}
    for xmlns in (DISCO_INFO, DISCO_ITEMS):
        assert refusal_in(await eve.query(xmlns, f"{NODE}dead")) == FORBIDDEN
        assert (await eve.query(xmlns, f"{NODE}none")).get("type") == "error"
    assert len((await eve.query(DISCO_ITEMS, COMMANDS))[0]) == 0
    features = {
        feature.get("var")
        for feature in (await eve.query(DISCO_INFO, ""))[0]
        if feature.get("var")
    }
    assert COMMANDS in features


async def test_a_disk_that_fails_is_told(
    boss: Peer, service: QueueService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form is kept, and can be sent again."""
    sessionid = await boss.begun("queue")
    broken = Refusal("the disk is full", condition="resource-constraint", type="wait")

    def stats(_node: object, _requester: object, tell: object) -> bool:
        tell(broken)  # type: ignore[operator]
        return True

    with monkeypatch.context() as patched:
        patched.setattr(service.engine, "stats", stats)
        refused = await boss.refused("queue", ORDERS, sessionid=sessionid)
        assert refused == ("wait", "resource-constraint", "")
        patched.setattr(service.engine, "nodes", lambda _, tell, **__: tell(broken))
        assert await boss.refused("queue") == refused
        assert refusal_in(await boss.query(DISCO_ITEMS, COMMANDS)) == refused
    command_in(await boss.send("queue", ORDERS, sessionid=sessionid))


async def test_a_fault_of_ours_is_answered_and_logged(
    boss: Peer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client would wait for ever, and see no reason."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("ours")

    for name in ("submit", "follow", "command_stanza.render_reply"):
        sessionid = await boss.begun("queue")
        with monkeypatch.context() as patched:
            patched.setattr(f"xep_0254.commands.{name}", fail)
            refused = await boss.refused("queue", ORDERS, sessionid=sessionid)
        assert refused == ("wait", "internal-server-error", "")
    assert caplog.text.count("RuntimeError: ours") == 3


async def test_a_reply_that_the_server_would_not_take_is_refused(
    boss: Peer, queues: XEP_0254, service: QueueService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end the stream of the service (RFC 6120 §4.9.3.14)."""
    await queues.publish(QUEUE, "orders", [NewItem(text="a")])
    monkeypatch.setattr(service._limits.sizes, "limit", 10_000)
    monkeypatch.setattr(
        service._limits, "over", lambda size: 400 if size > 400 else None
    )
    sent: list[str] = []
    monkeypatch.setattr(service._events, "send", sent.append)
    iq = boss.client.make_iq(ito=QUEUE, itype="set", ifrom="boss@localhost/1")
    iq.append(ET.fromstring(f"<command xmlns='{COMMANDS}' node='{NODE}queues'/>"))  # noqa: S314 - ours
    # Not by slixmpp's answer: it knows no <policy-violation/>.
    boss.client.send(iq)
    await until(lambda: bool(sent))
    assert "<policy-violation" in sent[0]
