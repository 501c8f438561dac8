"""docs/design/protocol.md §2 and §3: a raw sender, and the plugin receives.

The sender writes the stanzas of the proto-XEP by hand; only the receiver is ours.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from slixmpp import Message
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import StanzaPath
from slixmpp.xmlstream.stanzabase import StanzaBase

from devices import component, device
from passing_time import let_pass
from qos.core.message.effects import Save
from qos.core.message.model import Incoming, IncomingState, Level
from qos.core.message.receiver import key_of
from qos.core.message.receiver_table import Request
from qos.errors import StoreFull
from qos.stores import MemoryStore, SqliteStore
from qos.stores.base import Change, Remember
from qos.testing.prosody import MakeProsody, Prosody
from raw_client import RawComponent, stanza
from test_raw_peers import (
    ALL_QOS,
    CLIENT,
    DISCO,
    MARKS,
    PRIVATE,
    QOS,
    acknowledged,
    answer_to,
    ask,
    asks,
    assured,
    confirms,
    deliver,
    error_of,
    is_empty,
    message,
    raw,
    received,
    request_text,
    shows,
    synced,
)
from waiting import limit, until

ALICE, BOB = "alice@localhost/a", "bob@localhost/b"

#: For how long something is kept, in tests that let this time pass.
KEPT_S = 600.0

# The proto-XEP's second example of assured service, made well-formed.
LEFT = (
    "<log xmlns='urn:xmpp:eventlog' timestamp='2015-11-12T11:23:54Z' id='Left'>"
    "<message>Left.</message></log>"
)


class GatedStore(MemoryStore):
    """A store that looks durable, and writes when the test says so."""

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[Sequence[Change], asyncio.Future[None]]] = []
        self.gate = False

    def write(self, changes: Sequence[Change]) -> Any:
        # A value for the next start may come at any time: no message waits for it.
        if not self.gate or all(isinstance(each, Remember) for each in changes):
            return super().write(changes)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((changes, future))
        return future

    async def come(self, count: int = 1) -> None:
        """Wait until this many writes are waiting."""
        await until(lambda: len(self.waiting) >= count)

    def pass_on(self) -> None:
        """Do the first waiting write."""
        changes, future = self.waiting.pop(0)
        super().write(changes)
        future.set_result(None)

    def fail(self) -> None:
        """Fail the first waiting write."""
        _, future = self.waiting.pop(0)
        future.set_exception(StoreFull(self.url, "no space left"))


# -- the text, to the letter -----------------------------------------------


@pytest.mark.parametrize("xmlns", ALL_QOS)
async def test_the_texts_exchange_works_to_the_letter(
    prosody: Prosody, xmlns: str
) -> None:
    """All three namespaces are served, each with the stanzas of the proto-XEP.

    docs/design/protocol.md §2.1.
    """
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        logs: list[Message] = []
        bob.xmpp.add_event_handler("message", logs.append)
        await alice.send(
            f"""
    <iq id='456' type='set'
        from='{alice.jid}'
        to='{bob.jid}'>
       <qos:assured xmlns:qos='{xmlns}' msgId='4645623466'>
          <message>
             {LEFT}
             <body>Left.</body>
          </message>
       </qos:assured>
    </iq>"""
        )
        answer = await answer_to(alice, "456")
        assert (answer.get("from"), answer.get("to")) == (bob.jid, alice.jid)
        assert answer[0].tag == f"{{{CLIENT}}}received"
        msg_id, hold = received(answer)
        assert msg_id == "4645623466"
        assert hold
        await synced(alice, bob.jid)
        assert not bob.arrivals.all
        await alice.send(
            f"""
    <iq id='457' type='set'
        from='{alice.jid}'
        to='{bob.jid}'>
       <qos:deliver xmlns:qos='{xmlns}' msgId='4645623466'/>
    </iq>"""
        )
        assert is_empty(await answer_to(alice, "457"))
        (arrival,) = bob.arrivals.all
        assert arrival.body == "Left."
        assert arrival.message["from"] == alice.jid
        assert arrival.message["to"] == bob.jid
        assert arrival.message.xml.find("{urn:xmpp:eventlog}log") is not None
        assert arrival.info is not None
        assert (arrival.info.level, arrival.info.msg_id) == (Level.ASSURED, msg_id)
        assert not arrival.info.redelivered


@pytest.mark.parametrize("xmlns", ALL_QOS)
async def test_acknowledged_is_answered_empty_and_handed_over(
    prosody: Prosody, xmlns: str
) -> None:
    """The proto-XEP: an empty response is returned."""
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        answer = await ask(alice, bob.jid, acknowledged("80", xmlns=xmlns), iq_id="123")
        assert is_empty(answer)
        (arrival,) = await bob.arrivals.take(1)
        assert arrival.body == "80"
        assert arrival.message["from"] == alice.jid
        assert arrival.info is not None
        assert (arrival.info.level, arrival.info.msg_id) == (Level.ACKNOWLEDGED, "123")


async def test_every_acknowledged_is_handed_over_whatever_its_iq_id(
    prosody: Prosody,
) -> None:
    """No suppression by iq id, since a peer may count from 1 after each start.

    docs/design/protocol.md §3.14.
    """
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        for body in ("on", "on", "off"):
            assert is_empty(await ask(alice, bob.jid, acknowledged(body), iq_id="1"))
        await bob.arrivals.reach(3)
        assert bob.arrivals.bodies == ["on", "on", "off"]


@pytest.mark.parametrize(
    "form",
    [
        "<assured xmlns='{qos}' msgId='1'><message><body>b</body></message></assured>",
        "<assured xmlns='{qos}' msgId='1'><message xmlns='jabber:client'><body>b</body>"
        "</message></assured>",
        "<q:assured xmlns:q='{qos}' msgId='1'><q:message><q:body>b</q:body></q:message>"
        "</q:assured>",
        "<q:assured xmlns:q='{qos}' msgId='1'><message><body>b</body></message>"
        "</q:assured>",
        "<assured xmlns='{qos}' msgId='1'>\n <message><body>b</body></message>\n"
        "<other xmlns='urn:x'/></assured>",
        "<assured xmlns='{qos}' msgId='1'><message xmlns=''><body>b</body></message>"
        "</assured>",
        "<assured xmlns='{qos}' msgId='1'><message xmlns='jabber:component:accept'>"
        "<body>b</body></message></assured>",
    ],
)
@pytest.mark.parametrize("to_component", [False, True], ids=["client", "component"])
async def test_a_message_reaches_its_handler_however_it_was_written(
    prosody: Prosody, form: str, to_component: bool
) -> None:
    """docs/design/protocol.md §2.2: prefixes never matter, nor does the namespace."""
    made = (
        component(prosody, "comp.localhost", trust="anyone")
        if to_component
        else device(prosody, "bob/b")
    )
    async with raw(prosody, "alice/a") as alice, made as end:
        to = "lamp@comp.localhost/1" if to_component else end.jid
        answer = await ask(alice, to, form.format(qos=QOS))
        assert answer.get("from") == to
        assert received(answer)[0] == "1"
        assert is_empty(await ask(alice, to, deliver("1")))
        (arrival,) = await end.arrivals.take(1)
        assert arrival.body == "b"
        assert arrival.message["to"] == to
        assert arrival.message["from"] == alice.jid


@pytest.mark.parametrize("kind", ["normal", "chat", "groupchat", "headline", "error"])
async def test_a_message_of_any_type_is_handed_over(
    prosody: Prosody, kind: str
) -> None:
    """The proto-XEP: any type of message.

    Its from is that of the iq, so it forges nothing.
    """
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        got: list[StanzaBase] = []
        bob.xmpp.register_handler(Callback("all", StanzaPath("message"), got.append))
        content = f"<acknowledged xmlns='{QOS}'>{message('b', f'type={kind!r}')}"
        assert is_empty(await ask(alice, bob.jid, content + "</acknowledged>"))
        await synced(alice, bob.jid)
        assert [each.xml.get("type") for each in got] == [kind]
        assert got[0]["from"] == alice.jid
        assert bob.qos.incoming(got[0]) is not None


async def test_to_and_from_are_those_of_the_iq_whatever_stands_inside(
    prosody: Prosody,
) -> None:
    """The proto-XEP: they MUST be overwritten.

    Inner elements are not ours to change.
    """
    inner = (
        "<body>b</body><forwarded xmlns='urn:xmpp:forward:0'><message "
        "xmlns='jabber:client' from='carol@localhost/1' to='bob@localhost/1'/>"
        "</forwarded>"
    )
    forged = (
        "<message xmlns='jabber:client' from='carol@localhost/c' "
        f"to='carol@localhost'>{inner}</message>"
    )
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        content = (
            f"<assured xmlns='{QOS}' msgId='1' from='carol@localhost/c'>{forged}"
            "</assured>"
        )
        received(await ask(alice, bob.jid, content))
        assert is_empty(await ask(alice, bob.jid, deliver("1")))
        content = f"<acknowledged xmlns='{QOS}'>{forged}</acknowledged>"
        assert is_empty(await ask(alice, bob.jid, content))
        for arrival in await bob.arrivals.take(2):
            assert arrival.message["from"] == alice.jid
            assert arrival.message["to"] == bob.jid
            within = arrival.message.xml.find(f".//{{{CLIENT}}}message")
            assert within is not None
            assert within.get("from") == "carol@localhost/1"


# -- one message, held once ------------------------------------------------


async def test_a_repeated_assured_is_answered_alike_and_held_once(
    prosody: Prosody,
) -> None:
    """The proto-XEP: simply ignored, as one is already held.

    Still `received` is returned.
    """
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        first = received(await ask(alice, bob.jid, assured("1", "first"), iq_id="1"))
        again = received(await ask(alice, bob.jid, assured("1", "first"), iq_id="1"))
        other = received(await ask(alice, bob.jid, assured("1", "changed"), iq_id="2"))
        assert first == again == other
        assert is_empty(await ask(alice, bob.jid, deliver("1")))
        await synced(alice, bob.jid)
        assert bob.arrivals.bodies == ["first"]


async def test_each_deliver_is_acknowledged_and_one_hands_over(
    prosody: Prosody,
) -> None:
    """The proto-XEP.

    It will acknowledge each one, but only one message is delivered.
    """
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        received(await ask(alice, bob.jid, assured("1", "once")))
        for iq_id in ("1", "1", "2", "3"):
            assert is_empty(await ask(alice, bob.jid, deliver("1"), iq_id=iq_id))
        await synced(alice, bob.jid)
        assert bob.arrivals.bodies == ["once"]


async def test_a_marked_deliver_gets_the_same_answer_again_and_again(
    prosody: Prosody,
) -> None:
    """Done and remembered: the same answer, with the hold.

    docs/design/protocol.md §3.7.
    """
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        _, hold = received(await ask(alice, bob.jid, assured("1", "once", mark="s")))
        for _ in range(3):
            answer = await ask(alice, bob.jid, deliver("1", mark="s", hold=hold))
            assert confirms(answer, hold)
        assert bob.arrivals.bodies == ["once"]


async def test_a_hold_names_one_held_message(prosody: Prosody) -> None:
    """docs/protocol.md#marks-xmpp-qosstore0: a token of that one held message."""
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        holds = [
            received(await ask(alice, bob.jid, assured(msg_id, mark=mark)))[1]
            for msg_id in ("1", "2")
            for mark in ("", "s", "t")
        ]
        assert len(set(holds)) == 6


async def test_an_unmarked_msg_id_may_be_used_again_after_a_success(
    prosody: Prosody,
) -> None:
    """In the proto-XEP ids are reused.

    A small device repeats them after each start: docs/design/protocol.md §3.4.
    """
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        holds = set()
        for _ in range(3):
            holds.add(received(await ask(alice, bob.jid, assured("1", "on")))[1])
            assert is_empty(await ask(alice, bob.jid, deliver("1")))
        assert len(holds) == 3
        assert bob.arrivals.bodies == ["on"] * 3


async def test_a_marked_message_that_is_done_is_received_and_never_handed_over_again(
    prosody: Prosody,
) -> None:
    """docs/design/protocol.md §3.4.

    The sender lost our answers, or its store was restored: the tombstone answers.
    """
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        _, hold = received(await ask(alice, bob.jid, assured("1", "once", mark="s")))
        assert confirms(
            await ask(alice, bob.jid, deliver("1", mark="s", hold=hold)), hold
        )
        again = await ask(alice, bob.jid, assured("1", "once", mark="s"))
        assert received(again) == ("1", hold)
        assert confirms(
            await ask(alice, bob.jid, deliver("1", mark="s", hold=hold)), hold
        )
        assert is_empty(await ask(alice, bob.jid, deliver("1", mark="s")))
        await synced(alice, bob.jid)
        assert bob.arrivals.bodies == ["once"]


# -- keys ------------------------------------------------------------------


async def test_two_resources_that_count_from_1_are_two_senders(
    prosody: Prosody,
) -> None:
    """docs/design/protocol.md §3.1: without a mark the key has the full JID."""
    async with (
        raw(prosody, "alice/a") as one,
        raw(prosody, "alice/b") as two,
        device(prosody, "bob/b") as bob,
    ):
        received(await ask(one, bob.jid, assured("1", "of one")))
        received(await ask(two, bob.jid, assured("1", "of two")))
        assert is_empty(await ask(two, bob.jid, deliver("1")))
        await bob.arrivals.reach(1)
        assert is_empty(await ask(one, bob.jid, deliver("1")))
        await bob.arrivals.reach(2)
        assert bob.arrivals.bodies == ["of two", "of one"]


async def test_one_of_ours_under_a_new_resource_is_the_same_sender(
    prosody: Prosody,
) -> None:
    """With a mark the key has the account and the store instead of the resource.

    docs/design/protocol.md §3.1.
    """
    async with device(prosody, "bob/b") as bob:
        async with raw(prosody, "alice/a") as before:
            _, hold = received(await ask(before, bob.jid, assured("1", "x", mark="s")))
        async with raw(prosody, "alice/new") as after:
            again = received(await ask(after, bob.jid, assured("1", "x", mark="s")))
            assert again == ("1", hold)
            done = await ask(after, bob.jid, deliver("1", mark="s", hold=hold))
            assert confirms(done, hold)
        (arrival,) = bob.arrivals.all
        # Its from is that of the `assured`, as in the proto-XEP.
        assert arrival.message["from"] == "alice@localhost/a"


async def test_a_mark_does_not_reach_into_another_account(prosody: Prosody) -> None:
    """The sender chooses the mark; the server sets the account."""
    async with (
        raw(prosody, "alice/a") as alice,
        raw(prosody, "mallory/m") as mallory,
        device(prosody, "bob/b", trust="anyone") as bob,
    ):
        _, hold = received(await ask(alice, bob.jid, assured("1", "a", mark="s")))
        theirs = received(await ask(mallory, bob.jid, assured("1", "m", mark="s")))
        assert theirs[1] != hold
        stolen = await ask(mallory, bob.jid, deliver("1", mark="s", hold=hold))
        assert error_of(stolen) == ("item-not-found", "cancel", hold)
        unmarked = await ask(mallory, bob.jid, deliver("1", hold=hold))
        assert error_of(unmarked) == ("item-not-found", "cancel", hold)
        await synced(mallory, bob.jid)
        assert not bob.arrivals.all
        done = await ask(alice, bob.jid, deliver("1", mark="s", hold=hold))
        assert confirms(done, hold)
        assert bob.arrivals.bodies == ["a"]


async def test_marked_and_unmarked_messages_are_told_apart(prosody: Prosody) -> None:
    """One account may have a device of ours and a foreign one."""
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        received(await ask(alice, bob.jid, assured("1", "plain")))
        received(await ask(alice, bob.jid, assured("1", "ours", mark="s")))
        received(await ask(alice, bob.jid, assured("1", "other store", mark="t")))
        for mark in ("t", "s", ""):
            assert is_empty(await ask(alice, bob.jid, deliver("1", mark=mark)))
        await synced(alice, bob.jid)
        assert bob.arrivals.bodies == ["other store", "ours", "plain"]


# -- deliver for what is not held ------------------------------------------


async def test_an_unknown_deliver_is_acknowledged_without_a_hold_and_not_with_one(
    prosody: Prosody,
) -> None:
    """The proto-XEP acknowledges an unknown `deliver`; a hold closes that gap.

    docs/design/protocol.md §3.7.
    """
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        for mark in ("", "s"):
            assert is_empty(await ask(alice, bob.jid, deliver("7", mark=mark)))
            answer = await ask(alice, bob.jid, deliver("7", mark=mark, hold="guess"))
            assert error_of(answer) == ("item-not-found", "cancel", "guess")
        await synced(alice, bob.jid)
        assert not bob.arrivals.all


async def test_a_deliver_with_another_hold_releases_nothing(prosody: Prosody) -> None:
    """A message is held under one token; any other is item-not-found.

    docs/design/protocol.md §3.7.
    """
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        _, hold = received(await ask(alice, bob.jid, assured("1", "x", mark="s")))
        wrong = await ask(alice, bob.jid, deliver("1", mark="s", hold="wrong"))
        assert error_of(wrong) == ("item-not-found", "cancel", "wrong")
        await synced(alice, bob.jid)
        assert not bob.arrivals.all
        assert confirms(
            await ask(alice, bob.jid, deliver("1", mark="s", hold=hold)), hold
        )
        wrong = await ask(alice, bob.jid, deliver("1", mark="s", hold="wrong"))
        assert error_of(wrong) == ("item-not-found", "cancel", "wrong")
        assert bob.arrivals.bodies == ["x"]


async def test_a_hold_with_what_xml_escapes_comes_back_as_it_was(
    prosody: Prosody,
) -> None:
    """Whatever the token is, its sender must recognize it."""
    hold = "<&>'\" ä😀"
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        answer = await ask(
            alice, bob.jid, deliver(hold, mark=hold, hold=hold), iq_id=hold
        )
        assert error_of(answer) == ("item-not-found", "cancel", hold)
        answer = await ask(alice, bob.jid, assured(hold, mark=hold), iq_id=hold)
        assert received(answer)[0] == hold


# -- while something is being written --------------------------------------


async def test_nothing_is_answered_before_what_the_answer_says_is_written(
    prosody: Prosody,
) -> None:
    """docs/design/protocol.md §3.6: also for a second `assured`."""
    store = GatedStore()
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", store=store) as bob,
    ):
        store.gate = True
        for iq_id in ("1", "2"):
            text, _ = request_text(bob.jid, assured("7", "x", mark="s"), iq_id=iq_id)
            await alice.send(text)
        await store.come()
        await synced(alice, bob.jid)
        assert not alice.received(stanza("iq"))
        store.pass_on()
        first, second = [received(await answer_to(alice, i)) for i in ("1", "2")]
        assert first == second
        for iq_id in ("3", "4"):
            content = deliver("7", mark="s", hold=first[1])
            await alice.send(request_text(bob.jid, content, iq_id=iq_id)[0])
        await alice.send(
            request_text(bob.jid, assured("7", "x", mark="s"), iq_id="5")[0]
        )
        await store.come()
        await synced(alice, bob.jid)
        assert not alice.received(stanza("iq"))
        assert not bob.arrivals.all
        store.pass_on()  # releasing
        assert confirms(await answer_to(alice, "3"), first[1])
        assert bob.arrivals.bodies == ["x"]
        await synced(alice, bob.jid)
        # The end is not on disk: there is no later answer for that key.
        assert not alice.received(stanza("iq"))
        store.pass_on()
        assert confirms(await answer_to(alice, "4"), first[1])
        assert received(await answer_to(alice, "5")) == first
        assert bob.arrivals.bodies == ["x"]
        store.gate = False


async def test_an_unmarked_assured_during_the_release_is_a_new_message_afterwards(
    prosody: Prosody,
) -> None:
    """No answer until the release is done; then nothing is held.

    docs/design/protocol.md §3.3 and §3.4.
    """
    store = GatedStore()
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", store=store) as bob,
    ):
        _, hold = received(await ask(alice, bob.jid, assured("1", "old")))
        store.gate = True
        await alice.send(request_text(bob.jid, deliver("1"), iq_id="2")[0])
        await store.come()
        await alice.send(request_text(bob.jid, assured("1", "new"), iq_id="3")[0])
        await synced(alice, bob.jid)
        assert not alice.received(stanza("iq"))
        store.gate = False
        store.pass_on()
        assert is_empty(await answer_to(alice, "2"))
        msg_id, new_hold = received(await answer_to(alice, "3"))
        assert (msg_id, new_hold != hold) == ("1", True)
        assert bob.arrivals.bodies == ["old"]
        assert is_empty(await ask(alice, bob.jid, deliver("1")))
        assert bob.arrivals.bodies == ["old", "new"]


async def test_acknowledged_is_written_then_answered_then_handed_over(
    prosody: Prosody,
) -> None:
    """A receiver that dies after its answer must still have the message.

    docs/design/protocol.md §3.14.
    """
    store = GatedStore()
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", store=store) as bob,
    ):
        store.gate = True
        await alice.send(request_text(bob.jid, acknowledged("x"), iq_id="1")[0])
        await store.come()
        await synced(alice, bob.jid)
        assert not alice.received(stanza("iq"))
        assert not bob.arrivals.all
        store.pass_on()
        assert is_empty(await answer_to(alice, "1"))
        assert bob.arrivals.bodies == ["x"]
        store.gate = False
        store.pass_on()  # forgotten
        assert not list(store.incoming())


async def test_an_option_answers_acknowledged_without_writing(
    prosody: Prosody,
) -> None:
    """Without the write, the order is that of the proto-XEP.

    docs/design/protocol.md §3.14.
    """
    store = GatedStore()
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", store=store, write_acknowledged=False) as bob,
    ):
        store.gate = True
        assert is_empty(await ask(alice, bob.jid, acknowledged("x")))
        await bob.arrivals.reach(1)
        store.gate = False
        for _ in range(len(store.waiting)):
            store.pass_on()


async def test_what_cannot_be_written_is_refused_and_not_counted(
    prosody: Prosody,
) -> None:
    """The quota is given back; the peer is told to try again.

    docs/design/protocol.md §3.5.
    """
    store = GatedStore()
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", store=store, quota_messages=1) as bob,
    ):
        for content in (assured("1", "x"), acknowledged("y")):
            store.gate = True
            await alice.send(request_text(bob.jid, content, iq_id="1")[0])
            await store.come()
            store.fail()
            answer = await answer_to(alice, "1")
            assert error_of(answer) == ("resource-constraint", "wait", "")
            store.gate = False
        assert not bob.arrivals.all
        received(await ask(alice, bob.jid, assured("1", "x")))
        assert is_empty(await ask(alice, bob.jid, deliver("1")))
        assert is_empty(await ask(alice, bob.jid, acknowledged("y")))
        assert bob.arrivals.bodies == ["x", "y"]


async def test_a_release_that_cannot_be_written_hands_nothing_over(
    prosody: Prosody,
) -> None:
    """The message stays held, and the next `deliver` releases it."""
    store = GatedStore()
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", store=store) as bob,
    ):
        _, hold = received(await ask(alice, bob.jid, assured("1", "x", mark="s")))
        content = deliver("1", mark="s", hold=hold)
        store.gate = True
        await alice.send(request_text(bob.jid, content, iq_id="2")[0])
        await store.come()
        store.fail()
        # Any sender repeats the step after this error.
        assert error_of(await answer_to(alice, "2"))[1] == "wait"
        store.gate = False
        assert not bob.arrivals.all
        assert confirms(await ask(alice, bob.jid, content), hold)
        assert bob.arrivals.bodies == ["x"]


# -- expiry ----------------------------------------------------------------


@pytest.mark.parametrize("mark", ["", "s"])
async def test_a_held_message_expires_and_is_answered_item_not_found(
    prosody: Prosody, mark: str
) -> None:
    """Otherwise a withdrawn message would fill a quota for ever.

    docs/design/protocol.md §3.9.
    """
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", hold_ttl_s=KEPT_S, quota_messages=1) as bob,
    ):
        _, old = received(await ask(alice, bob.jid, assured("1", "old", mark=mark)))
        full = await ask(alice, bob.jid, assured("2", "x", mark=mark))
        assert error_of(full) == ("resource-constraint", "wait", "")

        # The quota is free again as soon as it has expired.
        await let_pass(KEPT_S)
        received(await ask(alice, bob.jid, assured("2", "x", mark=mark)))
        with_hold = await ask(alice, bob.jid, deliver("1", mark=mark, hold=old))
        assert error_of(with_hold) == ("item-not-found", "cancel", old)
        without = await ask(alice, bob.jid, deliver("1", mark=mark))
        assert error_of(without) == ("item-not-found", "cancel", "")
        assert not bob.arrivals.all


@pytest.mark.parametrize("mark", ["", "s"])
async def test_a_new_hold_removes_the_memory_of_what_expired(
    prosody: Prosody, mark: str
) -> None:
    """docs/design/protocol.md §3.9: the old hold stays unknown."""
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", hold_ttl_s=KEPT_S) as bob,
    ):
        _, old = received(await ask(alice, bob.jid, assured("1", "old", mark=mark)))
        again = received(await ask(alice, bob.jid, assured("1", "new", mark=mark)))
        assert again == ("1", old)
        await let_pass(KEPT_S)
        _, hold = received(await ask(alice, bob.jid, assured("1", "new", mark=mark)))
        assert hold != old
        stale = await ask(alice, bob.jid, deliver("1", mark=mark, hold=old))
        assert error_of(stale) == ("item-not-found", "cancel", old)
        done = await ask(alice, bob.jid, deliver("1", mark=mark, hold=hold))
        assert confirms(done, hold)
        assert bob.arrivals.bodies == ["new"]


async def test_a_tombstone_lasts_as_long_as_it_is_told_to(prosody: Prosody) -> None:
    """Later a `deliver` with the hold is in doubt at its sender, which is never false."""
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", tombstone_ttl_s=KEPT_S) as bob,
    ):
        _, hold = received(await ask(alice, bob.jid, assured("1", "x", mark="s")))
        content = deliver("1", mark="s", hold=hold)
        assert confirms(await ask(alice, bob.jid, content), hold)
        assert confirms(await ask(alice, bob.jid, content), hold)
        await let_pass(KEPT_S)
        answer = await ask(alice, bob.jid, content)
        assert error_of(answer) == ("item-not-found", "cancel", hold)
        assert bob.arrivals.bodies == ["x"]


async def test_tombstones_are_bounded_and_the_oldest_goes_first(
    prosody: Prosody,
) -> None:
    """docs/promises.md#between-ours: an evicted tombstone gives *in doubt*."""
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", tombstones_max=4) as bob,
    ):
        contents = []
        for number in range(3):  # an account has half of the room
            answer = await ask(alice, bob.jid, assured(str(number), "x", mark="s"))
            _, hold = received(answer)
            contents.append(deliver(str(number), mark="s", hold=hold))
            assert confirms(await ask(alice, bob.jid, contents[-1]), hold)
        kinds = [(await ask(alice, bob.jid, each)).get("type") for each in contents]
        assert kinds == ["error", "result", "result"]
        assert len(bob.arrivals.all) == 3


# -- restarts --------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["sqlite", "files"])
async def test_what_is_held_and_what_is_done_survive_a_restart(
    prosody: Prosody, tmp_path: Path, scheme: str
) -> None:
    """`received` is said only when it is on disk; tombstones likewise.

    docs/design/protocol.md §3.6.
    """
    store = f"{scheme}:{tmp_path / 'bob'}"
    async with raw(prosody, "alice/a") as alice:
        async with device(prosody, "bob/b", store=store) as bob:
            _, done = received(await ask(alice, BOB, assured("1", "one", mark="s")))
            answer = await ask(alice, BOB, deliver("1", mark="s", hold=done))
            assert confirms(answer, done)
            _, held = received(await ask(alice, BOB, assured("2", "two", mark="s")))
            plain = received(await ask(alice, BOB, assured("2", "plain")))
            assert bob.arrivals.bodies == ["one"]
        async with device(prosody, "bob/b", store=store) as bob:
            again = await ask(alice, BOB, assured("1", "one", mark="s"))
            assert received(again) == ("1", done)
            answer = await ask(alice, BOB, deliver("1", mark="s", hold=done))
            assert confirms(answer, done)
            again = await ask(alice, BOB, assured("2", "two", mark="s"))
            assert received(again) == ("2", held)
            answer = await ask(alice, BOB, deliver("2", mark="s", hold=held))
            assert confirms(answer, held)
            assert received(await ask(alice, BOB, assured("2", "plain"))) == plain
            assert is_empty(await ask(alice, BOB, deliver("2")))
            assert bob.arrivals.bodies == ["two", "plain"]
            infos = [arrival.info for arrival in bob.arrivals.all]
            assert [info and info.redelivered for info in infos] == [False, False]


async def test_what_was_being_released_is_handed_over_again_and_marked(
    prosody: Prosody, tmp_path: Path
) -> None:
    """Between the two writes only the application can know whether it acted.

    docs/design/protocol.md §3.10.
    """
    path = tmp_path / "bob.db"
    requests = [
        Request(
            kind="assured",
            iq_id="1",
            source=ALICE,
            to=BOB,
            namespace=QOS,
            msg_id="1",
            mark="s",
        ),
        Request(kind="acknowledged", iq_id="i2", source=ALICE, to=BOB, namespace=QOS),
    ]
    store = SqliteStore(str(path))
    store.open()
    written = []
    for number, request in enumerate(requests):
        payload = message(f"body {number}")
        record = Incoming(
            key=key_of(request, "token"),
            msg_id=request.msg_id or request.iq_id,
            source=ALICE,
            to=BOB,
            level=Level(request.kind),
            payload=payload,
            size=len(payload),
            received_at=1.0,
            changed_at=float(number),
            state=IncomingState.RELEASING,
            mark=request.mark,
            hold="the-hold" if request.mark else "",
        )
        written.append(store.write((Save(record),)))
    for future in written:
        if future is not None:
            await future
    await store.close()
    async with (
        raw(prosody, "alice/a") as alice,
        device(prosody, "bob/b", store=f"sqlite:{path}") as bob,
    ):
        first, second = await bob.arrivals.take(2)
        assert {first.body, second.body} == {"body 0", "body 1"}
        for arrival in (first, second):
            assert arrival.info is not None
            assert arrival.info.redelivered
            assert arrival.message["from"] == ALICE
            assert arrival.info.msg_id in {"1", "i2"}
        answer = await ask(alice, BOB, deliver("1", mark="s", hold="the-hold"))
        assert confirms(answer, "the-hold")
        await synced(alice, BOB)
        assert len(bob.arrivals.all) == 2


async def test_what_is_stored_counts_against_the_quota_after_a_restart(
    prosody: Prosody, tmp_path: Path
) -> None:
    """Otherwise every restart would give each sender a new quota."""
    options: dict[str, Any] = {
        "store": f"sqlite:{tmp_path / 'bob.db'}",
        "quota_messages": 2,
    }
    async with raw(prosody, "alice/a") as alice:
        async with device(prosody, "bob/b", **options):
            for msg_id in ("1", "2"):
                received(await ask(alice, BOB, assured(msg_id)))
        async with device(prosody, "bob/b", **options):
            full = await ask(alice, BOB, assured("3"))
            assert error_of(full) == ("resource-constraint", "wait", "")
            assert is_empty(await ask(alice, BOB, deliver("1")))
            received(await ask(alice, BOB, assured("3")))


# -- components and rooms of addresses -------------------------------------


async def test_a_component_answers_as_each_of_its_addresses(prosody: Prosody) -> None:
    """Its messages say which of them was addressed."""
    async with (
        raw(prosody, "alice/a") as alice,
        component(prosody, "comp.localhost", trust="anyone") as lamps,
    ):
        addresses = ["comp.localhost", "one@comp.localhost", "two@comp.localhost/x"]
        for number, address in enumerate(addresses):
            answer = await ask(alice, address, assured(str(number), "x", mark="s"))
            assert answer.get("from") == address
            _, hold = received(answer)
            content = deliver(str(number), mark="s", hold=hold)
            answer = await ask(alice, address, content)
            assert answer.get("from") == address
            assert confirms(answer, hold)
        arrivals = await lamps.arrivals.take(3)
        assert [arrival.message["to"] for arrival in arrivals] == addresses
        answer = await ask(alice, addresses[1], f"<assured xmlns='{QOS}'/>")
        assert answer.get("from") == addresses[1]
        assert error_of(answer) == ("bad-request", "modify", "")


async def test_a_component_advertises_qos_at_each_of_its_addresses(
    prosody: Prosody,
) -> None:
    """docs/design/protocol.md §2.1: the component answers requests at all of its JIDs.

    Our sender finds its way to a bare address by disco#info alone:
    docs/design/protocol.md §4.12.
    """
    async with (
        raw(prosody, "alice/a") as alice,
        component(prosody, "comp.localhost", trust="anyone") as lamps,
        device(prosody, "bob/b") as bob,
    ):
        for to in ("comp.localhost", "lamp@comp.localhost", "lamp@comp.localhost/1"):
            await alice.send(
                f"<iq type='get' id='{to}' to='{to}'><query xmlns='{DISCO}'/></iq>"
            )
            info = await answer_to(alice, to)
            features = [each.get("var") for each in info.iter(f"{{{DISCO}}}feature")]
            assert {*ALL_QOS, MARKS} <= set(features), to
            async with limit():
                outcome = await bob.qos.send(to, "x")
            assert outcome.to == to
        assert lamps.arrivals.bodies == ["x"] * 3


async def test_a_component_that_is_not_ours_sends_as_many(prosody: Prosody) -> None:
    """docs/design/protocol.md §2.2: all is in `jabber:component:accept` there."""
    ((jid, secret),) = prosody.components.items()
    async with (
        RawComponent(jid, secret, port=prosody.component_port) as lamps,
        device(prosody, "bob/b", trust=f"@{jid}") as bob,
    ):
        for user in ("one", "two"):
            sender = f"{user}@{jid}/1"
            content = f"<assured xmlns='{QOS}' msgId='1'><message><body>{user}</body></message></assured>"
            answer = await ask(lamps, bob.jid, content, from_=sender)
            assert answer.get("to") == sender
            assert received(answer)[0] == "1"
        for user in ("two", "one"):
            sender = f"{user}@{jid}/1"
            assert is_empty(await ask(lamps, bob.jid, deliver("1"), from_=sender))
        content = (
            f"<q:acknowledged xmlns:q='{QOS}'><message><body>plain</body></message>"
            "</q:acknowledged>"
        )
        assert is_empty(await ask(lamps, bob.jid, content, from_=f"three@{jid}"))
        arrivals = await bob.arrivals.take(3)
        assert [arrival.body for arrival in arrivals] == ["two", "one", "plain"]
        assert [arrival.message["from"] for arrival in arrivals] == [
            f"two@{jid}/1",
            f"one@{jid}/1",
            f"three@{jid}",
        ]


# -- large and deep --------------------------------------------------------


async def test_a_message_of_200_kb_goes_through_whole(prosody: Prosody) -> None:
    """It is below the server's limit, so nothing special happens."""
    body = "x" * 200_000
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        received(await ask(alice, bob.jid, assured("1", body)))
        assert is_empty(await ask(alice, bob.jid, deliver("1")))
        assert is_empty(await ask(alice, bob.jid, acknowledged(body)))
        await bob.arrivals.reach(2)
        assert bob.arrivals.bodies == [body] * 2


async def test_foreign_attributes_and_languages_arrive(prosody: Prosody) -> None:
    """slixmpp's own serialiser drops them; a payload may be of any XEP."""
    inner = "<x xmlns='urn:x' xmlns:y='urn:y' y:a='1' xml:lang='de'>t<z/>u</x>"
    content = (
        f"<acknowledged xmlns='{QOS}'><message xmlns='jabber:client' id='m7' "
        f"xml:lang='en'><body>b</body>{inner}</message></acknowledged>"
    )
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        assert is_empty(await ask(alice, bob.jid, content))
        (arrival,) = await bob.arrivals.take(1)
        x = arrival.message.xml.find("{urn:x}x")
        assert x is not None
        assert x.attrib == {
            "{urn:y}a": "1",
            "{http://www.w3.org/XML/1998/namespace}lang": "de",
        }
        assert (x.text, x[0].tag, x[0].tail) == ("t", "{urn:x}z", "u")
        assert (arrival.message["id"], arrival.message["lang"]) == ("m7", "en")


async def test_a_failing_handler_fails_alone(prosody: Prosody) -> None:
    """Its exception does not become an answer, and later messages are served.

    Its message is not taken. By the text alone, level acknowledged is answered before.

    docs/design/protocol.md §5.8.
    """
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:

        def fail(_: Message) -> None:
            raise ZeroDivisionError

        bob.xmpp.add_event_handler("message", fail)
        bob.xmpp.loop.set_exception_handler(lambda _loop, _context: None)
        for msg_id in ("1", "2"):
            received(await ask(alice, bob.jid, assured(msg_id, "x")))
            refused = await ask(alice, bob.jid, deliver(msg_id))
            assert error_of(refused) == ("unexpected-request", "wait", "")
        assert is_empty(await ask(alice, bob.jid, acknowledged("x")))
        await synced(alice, bob.jid)
        assert len(bob.arrivals.all) == 3


async def test_a_handler_may_answer_from_within(prosody: Prosody) -> None:
    """A delivered message is like any other: a reply is sent after the hand-over."""
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:

        def reply(got: Message) -> None:
            bob.xmpp.send_message(got["from"], "pong")

        bob.xmpp.add_event_handler("message", reply)
        received(await ask(alice, bob.jid, assured("1", "ping")))
        assert is_empty(await ask(alice, bob.jid, deliver("1")))
        pong = await alice.expect(stanza("message", from_=bob.jid))
        assert pong.findtext(f"{{{CLIENT}}}body") == "pong"


async def test_requests_that_are_not_ours_are_not_touched(prosody: Prosody) -> None:
    """An iq of type get, another namespace, another element: slixmpp's own answer."""
    async with raw(prosody, "alice/a") as alice, device(prosody, "bob/b") as bob:
        for content in (
            f"<assured xmlns='urn:xmpp:qos:99' msgId='1'>{message(PRIVATE)}</assured>",
            f"<received xmlns='{QOS}' msgId='1'/>",
            f"<withdraw xmlns='{QOS}' msgId='1'/>",
            f"<hold xmlns='{MARKS}'>x</hold>",
        ):
            answer = await ask(alice, bob.jid, content)
            condition, _, _ = error_of(answer)
            assert condition in {"feature-not-implemented", "service-unavailable"}
            assert not shows(answer)
        await alice.send(
            f"<iq type='get' id='g' to='{bob.jid}'>{assured('1')}</iq>"
            f"<message to='{bob.jid}'>{assured('1')}<body>plain</body></message>"
        )
        condition, _, _ = error_of(await answer_to(alice, "g"))
        assert condition in {"feature-not-implemented", "service-unavailable"}
        (arrival,) = await bob.arrivals.take(1)
        assert (arrival.body, arrival.info) == ("plain", None)


async def test_the_server_answers_for_an_address_that_is_not_there(
    make_prosody: MakeProsody,
) -> None:
    """A bare JID shows nothing of QoS: the server of its account answers for it."""
    server = await make_prosody()
    async with raw(server, "alice/a") as alice, device(server, "bob/b") as bob:
        answer = await ask(alice, "bob@localhost", assured("1"))
        assert answer.get("type") == "error"
        await synced(alice, bob.jid)
        assert not bob.tap.count(asks())
