"""Peers that claim to be somebody else, or answer for somebody else.

A server sets the sender of a stanza, but does not check to whom a request was sent; and
stanzas through another server are no more reliable. So here no server sets anything:
each stanza arrives as it was forged. Forgeries at a real server are tried at the end,
and in tests/live (test_raw_sender.py, test_raw_receiver.py, test_queue_decisions.py).
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from slixmpp import Message

from grammar import Asked
from qos.core.message.model import MARKS_NAMESPACE as MARKS
from qos.core.message.model import NAMESPACES, OutgoingState
from qos.engine import Delivery
from qos.testing.prosody import Prosody, mutual
from raw_client import RawClient, stanza
from siege import QUEUES, Siege, besieged_device, besieged_service
from waiting import limit
from xep_0254.namespaces import EVENT, OWNER, PUBSUB, QUEUEING, SUBSCRIBE_OPTIONS
from xep_qos import XEP_QOS

QOS = NAMESPACES[0]
EXTENSIONS = "xmpp-qos:queue:0"
ALICE = "alice@localhost/a"
INNER = "<message xmlns='jabber:client'><body>held</body></message>"

#: Everybody except Alice's device, as similar to it as possible.
LIARS = {
    "a stranger": "mallory@localhost/m",
    "her account": "alice@localhost",
    "another device of hers": "alice@localhost/b",
    "one with her name elsewhere": "alice@elsewhere/a",
    "a resource that begins like hers": "alice@localhost/a/x",
    "the server": "localhost",
    "our own account": "bob@localhost",
    "ourselves": "bob@localhost/b",
    "nobody": "",
}
#: An error may come from our own server, when the peer is absent.
ONES_OWN = {"the server", "our own account", "nobody"}


def iq(kind: str, source: str, iq_id: str, content: str, to: str = "") -> bytes:
    """An iq with any sender."""
    sender = f" from='{source}'" if source else ""
    return f"<iq type='{kind}' id='{iq_id}'{sender} to='{to}'>{content}</iq>".encode()


# -- answers to what we send -------------------------------------------------


@dataclass
class Pending:
    """Bob, with two messages to Alice: one offered, one to be released."""

    siege: Siege
    offered: Delivery
    releasing: Delivery
    offer_id: str = ""
    deliver_id: str = ""

    async def answer(self, kind: str, source: str, iq_id: str, content: str) -> None:
        self.siege.send(iq(kind, source, iq_id, content, self.siege.jid))
        await self.siege.settle()

    def requests(self, kind: str) -> list[ET.Element]:
        return [
            xml
            for xml in self.siege.written
            if xml.find(f"{{{QOS}}}{kind}") is not None
        ]

    @property
    def untouched(self) -> bool:
        """Whether an answer had no effect."""
        return (
            not self.offered.ended
            and not self.releasing.ended
            and len({xml.get("id") for xml in self.requests("deliver")}) == 1
        )


@asynccontextmanager
async def pending() -> AsyncIterator[Pending]:
    async with besieged_device(retry_first_s=60.0) as siege:
        qos = XEP_QOS.of(siege.xmpp)
        message = siege.xmpp.make_message(ALICE, "x")
        found = Pending(siege, await qos.submit(message), await qos.submit(message))
        await siege.settle()
        # It first asks for our identity: answer that we know only the proto-XEP.
        for xml in list(siege.written):
            if xml.get("type") == "get":
                await found.answer("result", ALICE, xml.get("id", ""), _info())
        for xml in found.requests("assured"):
            (asked,) = xml
            if asked.get("msgId") == found.offered.msg_id:
                found.offer_id = xml.get("id", "")
            else:
                received = f"<received msgId='{asked.get('msgId')}' xmlns:m='{MARKS}' m:hold='token'/>"
                await found.answer("result", ALICE, xml.get("id", ""), received)
        (deliver,) = found.requests("deliver")
        found.deliver_id = deliver.get("id", "")
        assert found.offer_id
        assert found.untouched
        yield found


def _info() -> str:
    info = "http://jabber.org/protocol/disco#info"
    return f"<query xmlns='{info}'><feature var='{QOS}'/></query>"


HOLD = f"<hold xmlns='{MARKS}'>token</hold>"
NOT_ALLOWED = (
    "<error type='cancel'><not-allowed xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
    "</error>"
)


async def test_received_counts_only_from_whom_it_was_offered_to() -> None:
    """Otherwise a third party could make us release a message that nobody holds."""
    async with pending() as bob:
        received = f"<received msgId='{bob.offered.msg_id}'/>"
        for liar in LIARS.values():
            await bob.answer("result", liar, bob.offer_id, received)
            assert bob.untouched, liar
        await bob.answer("result", ALICE, bob.offer_id, received)
        assert not bob.untouched


async def test_a_result_counts_only_from_whom_it_was_asked_of() -> None:
    """Otherwise a third party could make us believe in a delivery."""
    async with pending() as bob:
        for liar in LIARS.values():
            await bob.answer("result", liar, bob.deliver_id, HOLD)
            assert bob.untouched, liar
        await bob.answer("result", ALICE, bob.deliver_id, HOLD)
        outcome = await bob.releasing.outcome()
        assert outcome.status is OutgoingState.DELIVERED


async def test_an_error_counts_only_from_whom_was_asked_or_the_own_server() -> None:
    """Otherwise a third party could end any message."""
    async with pending() as bob:
        for name, liar in LIARS.items():
            if name not in ONES_OWN:
                for iq_id in (bob.offer_id, bob.deliver_id):
                    await bob.answer("error", liar, iq_id, NOT_ALLOWED)
                    assert bob.untouched, liar
        await bob.answer("error", ALICE, bob.offer_id, NOT_ALLOWED)
        assert bob.offered.ended


async def test_an_answer_to_what_was_never_asked_is_nothing() -> None:
    """Ids have 128 random bits: a guess never hits a pending one."""
    contents = ("", HOLD, "<received msgId='{}'/>", NOT_ALLOWED)
    async with pending() as bob:
        msg_ids = (bob.offered.msg_id, bob.releasing.msg_id)
        for content, msg_id in product(contents, msg_ids):
            for guess in ("1", msg_id, secrets.token_hex(16), bob.offer_id[:-1]):
                kind = "error" if "error" in content else "result"
                await bob.answer(kind, ALICE, guess, content.format(msg_id))
                assert bob.untouched, (content, guess)


async def test_a_result_without_the_hold_is_no_delivery() -> None:
    """Another device under the full JID of the holder does not know the token."""
    another = f"<hold xmlns='{MARKS}'>guess</hold>"
    async with pending() as bob:
        for content in ("", another, "<hold>token</hold>", f"<x>{HOLD}</x>"):
            await bob.answer("result", ALICE, bob.deliver_id, content)
            assert bob.untouched, content


async def test_old_answers_replayed_change_nothing() -> None:
    """A server that resumes a stream may send all of them again."""
    async with pending() as bob:
        received = f"<received msgId='{bob.offered.msg_id}'/>"
        replay = [
            iq("result", ALICE, bob.offer_id, received, bob.siege.jid),
            iq("result", ALICE, bob.deliver_id, HOLD, bob.siege.jid),
        ]
        bob.siege.send(b"".join(replay))
        await bob.siege.settle()
        assert bob.releasing.ended
        sent = len(bob.siege.written)
        bob.siege.send(b"".join(replay * 3))
        await bob.siege.settle()
        # The answers to the pings of `settle`.
        assert len(bob.siege.written) == sent + 2
        assert not bob.offered.ended


# -- requests to us ----------------------------------------------------------


@dataclass
class Held:
    """Bob, who holds two messages of Alice: one with a mark and one without."""

    siege: Siege
    arrived: list[Message]
    token: str

    async def ask(self, source: str, content: str) -> ET.Element:
        asked = Asked(source, secrets.token_hex(4))
        self.siege.send(iq("set", source, asked.iq_id, content, self.siege.jid))
        await self.siege.settle([asked])
        return next(xml for xml in self.siege.written if xml.get("id") == asked.iq_id)


def assured(msg_id: str, mark: str = "", inner: str = INNER) -> str:
    marks = f" xmlns:m='{MARKS}' m:sender='{mark}'" if mark else ""
    return f"<assured xmlns='{QOS}' msgId='{msg_id}'{marks}>{inner}</assured>"


def deliver(msg_id: str, mark: str = "", hold: str = "") -> str:
    marks = {"sender": mark, "hold": hold}
    given = "".join(f" m:{name}='{text}'" for name, text in marks.items() if text)
    return f"<deliver xmlns='{QOS}' xmlns:m='{MARKS}' msgId='{msg_id}'{given}/>"


@asynccontextmanager
async def held() -> AsyncIterator[Held]:
    async with besieged_device(trust="anyone") as siege:
        arrived: list[Message] = []
        siege.xmpp.add_event_handler("message", arrived.append)
        bob = Held(siege, arrived, "")
        await bob.ask(ALICE, assured("plain"))
        answer = await bob.ask(ALICE, assured("marked", "store"))
        bob.token = answer[0].get(f"{{{MARKS}}}hold", "")
        assert bob.token
        yield bob


async def test_what_is_held_for_one_is_released_by_nobody_else() -> None:
    """Knowing or guessing a msgId must not be enough to hand over another's message."""
    async with held() as bob:
        for liar in LIARS.values():
            await bob.ask(liar, deliver("plain"))
            await bob.ask(liar, deliver("marked", "store", "guess"))
            await bob.ask(liar, deliver("marked", "", bob.token))
            if liar.partition("/")[0] != "alice@localhost":
                await bob.ask(liar, deliver("marked", "store", bob.token))
            assert not bob.arrived, liar
        await bob.ask(ALICE, deliver("plain"))
        assert len(bob.arrived) == 1
        # Our sender may come back under another resource: it knows the token.
        await bob.ask(
            LIARS["another device of hers"], deliver("marked", "store", bob.token)
        )
        assert len(bob.arrived) == 2


async def test_nobody_can_use_up_the_msg_id_of_another() -> None:
    """The same msgId with another sender or mark is another message."""
    async with held() as bob:
        other = INNER.replace("held", "forged")
        for liar in LIARS.values():
            await bob.ask(liar, assured("plain", inner=other))
            await bob.ask(liar, assured("marked", "store", inner=other))
        await bob.ask(ALICE, deliver("plain"))
        await bob.ask(ALICE, deliver("marked", "store", bob.token))
        assert [message["body"] for message in bob.arrived] == ["held", "held"]


DEPTHS = {
    "the message": "<message xmlns='jabber:client' from='{0}' to='{0}'>{1}</message>",
    "the message, inherited": "<message from='{0}' to='{0}'>{1}</message>",
    "by a prefix": "<c:message xmlns:c='jabber:client' from='{0}' to='{0}'>{1}</c:message>",
}


async def test_who_it_is_from_is_who_the_iq_is_from_at_any_depth() -> None:
    """The proto-XEP: overwritten, against forged identities."""
    king = "king@localhost/k"
    body = f"<body xmlns='jabber:client' from='{king}'>x</body>"
    forged = f"from='{king}' to='{king}' msgId='forged'"
    async with held() as bob:
        for depth, kind in product(DEPTHS, ("assured", "acknowledged")):
            inner = DEPTHS[depth].format(king, body)
            await bob.ask(ALICE, f"<{kind} xmlns='{QOS}' {forged}>{inner}</{kind}>")
            await bob.ask(ALICE, deliver("forged"))
            message = bob.arrived.pop()
            assert str(message["from"]) == ALICE, (depth, kind)
            assert str(message["to"]) == bob.siege.jid, (depth, kind)


async def test_old_requests_replayed_hand_over_no_marked_message_twice() -> None:
    """This is the purpose of the marks.

    Without one it is a new message (msgIds repeat).
    """
    async with held() as bob:
        replay = (
            assured("marked", "store"),
            deliver("marked", "store", bob.token),
            deliver("marked", "store"),
        )
        for _ in range(3):
            for content in replay:
                await bob.ask(ALICE, content)
        assert len(bob.arrived) == 1


# -- queues ------------------------------------------------------------------

JOB = "<item id='1'><x xmlns='urn:x'/></item>"
OPTIONS = (
    "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'><value>"
    f"{SUBSCRIBE_OPTIONS}</value></field><field var='pubsub#queue_requests'>"
    "<value>9</value></field></x>"
)
BEE = "bee@localhost/1"
BOSS = "boss@localhost/1"


def pubsub(content: str, xmlns: str = PUBSUB) -> str:
    return f"<pubsub xmlns='{xmlns}' xmlns:q='{EXTENSIONS}'>{content}</pubsub>"


#: Requests that only the bee that holds the item, or the owner of the queue, may make.
ACTS: dict[str, str] = {
    "retract": pubsub("<retract node='jobs'><item id='1'/></retract>"),
    "retract with the token": pubsub(
        "<retract node='jobs'><item id='1' q:token='{token}'/></retract>"
    ),
    "unlock": pubsub(
        f"<unlock xmlns='{QUEUEING}' node='jobs'><item id='1' q:token='{{token}}'/></unlock>"
    ),
    "extend": pubsub(
        "<q:extend node='jobs' seconds='9'><item id='1' q:token='{token}'/></q:extend>"
    ),
    "subscribe the bee": pubsub(
        f"<subscribe node='jobs' jid='{BEE}'/><options>{OPTIONS}</options>"
    ),
    "unsubscribe the bee": pubsub(f"<unsubscribe node='jobs' jid='{BEE}'/>"),
    "publish": pubsub(f"<publish node='jobs'>{JOB}</publish>"),
    "publish as the boss": pubsub(
        f"<publish node='jobs'><item id='9' publisher='{BOSS}'/></publish>"
    ),
    "purge": pubsub("<purge node='jobs'/>", OWNER),
    "delete": pubsub("<delete node='jobs'/>", OWNER),
    "become owner": pubsub(
        "<affiliations node='jobs'><affiliation jid='{liar}' affiliation='owner'/>"
        "</affiliations>",
        OWNER,
    ),
}

THIEVES = {
    "a stranger": "mallory@localhost/m",
    "another worker": "wasp@localhost/1",
    "the worker's name elsewhere": "bee@elsewhere/1",
    "the boss's name elsewhere": "boss@elsewhere/1",
    "the service itself": QUEUES,
}


@dataclass
class AttackedQueue:
    """A queue of the boss, with an item that the bee holds."""

    siege: Siege
    token: str = ""

    async def ask(self, source: str, content: str) -> ET.Element:
        asked = Asked(source, secrets.token_hex(4))
        self.siege.send(iq("set", source, asked.iq_id, content, QUEUES))
        await self.siege.settle([asked])
        return next(
            xml
            for xml in self.siege.written
            if xml.get("id") == asked.iq_id and xml.get("to") == source
        )

    async def expect(self, matches: Callable[[ET.Element], bool]) -> ET.Element:
        async with limit():
            while not (found := list(filter(matches, self.siege.written))):
                await self.siege.settle()
        return found[0]


OPEN_QUEUE = (
    "<create node='jobs'/><configure><x xmlns='jabber:x:data' type='submit'>"
    "<field var='FORM_TYPE'>"
    "<value>http://jabber.org/protocol/pubsub#node_config</value></field>"
    "<field var='pubsub#access_model'><value>open</value></field></x></configure>"
)


@asynccontextmanager
async def attacked_queue(folder: Path) -> AsyncIterator[AttackedQueue]:
    async with besieged_service(folder) as siege:
        made = AttackedQueue(siege)
        options = f"<subscribe node='jobs' jid='{BEE}'/><options>{OPTIONS}</options>"
        for source, content in (
            (BOSS, OPEN_QUEUE),
            (BEE, options),
            (BOSS, f"<publish node='jobs'>{JOB}</publish>"),
        ):
            answer = await made.ask(source, pubsub(content))
            assert answer.get("type") == "result", ET.tostring(answer)
        event = await made.expect(lambda xml: xml.find(f"{{{EVENT}}}event") is not None)
        (item,) = event.iter(f"{{{EVENT}}}item")
        made.token = item.get(f"{{{EXTENSIONS}}}token", "")
        assert made.token
        yield made


async def test_nobody_does_what_is_anothers_in_a_queue(tmp_path: Path) -> None:
    """The item stays with the bee, and the queue with the boss, token or no token."""
    async with attacked_queue(tmp_path) as queue:
        for act, thief in product(ACTS, THIEVES.values()):
            liar = thief.partition("/")[0]
            content = ACTS[act].format(token=queue.token, liar=liar)
            answer = await queue.ask(thief, content)
            assert answer.get("type") == "error", (act, thief, ET.tostring(answer))
        done = ACTS["retract with the token"].format(token=queue.token)
        assert (await queue.ask(BEE, done)).get("type") == "result"


async def test_nobody_speaks_for_the_worker_that_has_an_item(tmp_path: Path) -> None:
    """Its presence, errors and answers count only from itself: the lock stays."""
    async with attacked_queue(tmp_path) as queue:
        event_id = next(
            xml.get("id")
            for xml in queue.siege.written
            if xml.find(f"{{{EVENT}}}event") is not None
        )
        for thief in THIEVES.values():
            head = f"from='{thief}' to='{QUEUES}'"
            for xml in (
                f"<presence {head} type='unavailable'/>",
                f"<message {head} type='error' id='{event_id}'>{NOT_ALLOWED}</message>",
                f"<iq {head} type='error' id='{event_id}'>{NOT_ALLOWED}</iq>",
                f"<iq {head} type='result' id='{event_id}'/>",
            ):
                queue.siege.send(xml.encode())
        await queue.siege.settle()
        extended = await queue.ask(BEE, ACTS["extend"].format(token=queue.token))
        assert extended.get("type") == "result", ET.tostring(extended)


# -- a real server -----------------------------------------------------------


@pytest.mark.xmpp
async def test_what_a_real_server_lets_through_of_forged_senders_is_harmless(
    tmp_path: Path,
) -> None:
    """Prosody refuses a from that is not the session's: such a stanza never arrives."""
    accounts = dict.fromkeys(("alice", "mallory"), "secret")
    async with (
        Prosody(
            tmp_path, accounts=accounts, rosters=mutual(("alice", "mallory"))
        ) as server,
        RawClient("alice@localhost/a", "secret", port=server.c2s_port) as alice,
    ):
        await alice.send_presence()
        for forged in (
            "alice@localhost/a",
            "alice@localhost",
            "localhost",
            "king@elsewhere/k",
        ):
            async with RawClient(
                "mallory@localhost/m", "secret", port=server.c2s_port
            ) as mallory:
                text = iq("set", forged, "forged", assured("1"), alice.jid).decode()
                await mallory.send(text)
                await mallory.send(
                    "<iq type='get' id='p'><ping xmlns='urn:xmpp:ping'/></iq>"
                )
                await mallory.expect(lambda xml: True)
        await alice.ping()
        for xml in alice.received(stanza("iq", id="forged")):
            assert xml.get("from") == "mallory@localhost/m"
