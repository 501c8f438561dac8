"""Publishing once or repeatedly, by an iq or by a message, on the wire.

docs/design/queue.md §3.
"""

import asyncio
import contextlib
import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from clients import connected_client
from passing_time import let_pass
from qos.core.message.model import OutgoingState
from qos.errors import NotDelivered
from qos.stores import SqliteStore
from qos.testing.prosody import Prosody
from queue_service import (
    CONFLICT,
    EAGER,
    EVENT,
    EXTENSIONS,
    FORBIDDEN,
    NO_ROOM,
    NOT_FOUND,
    PRIVATE,
    Refused,
    Served,
    delivered,
    item,
    peers,
    publish,
    pubsub,
    retract,
    unlock,
)
from raw_client import stanza
from xep_qos import XEP_QOS

NODE = "orders"
QOS = "urn:xmpp:qos"
Q = f"xmlns:q='{EXTENSIONS}'"

pytestmark = pytest.mark.asyncio(loop_scope="module")


# -- repeats ---------------------------------------------------------------


async def test_a_repeat_is_a_success_and_no_second_item(queues: Served) -> None:
    """A publisher whose result was lost asks again; from any resource, at any time."""
    async with peers(queues, "alice/a", "alice/b", "bob/b") as (alice, other, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE, 5)
        for peer in (alice, other, alice):
            assert await peer.publish(NODE, item("1")) == ["1"]
        one = await bob.item()
        assert await alice.publish(NODE, item("1")) == ["1"]
        await queues.restart()
        assert await alice.publish(NODE, item("1")) == ["1"]
        await bob.synced()
        assert (await bob.item()).named == one.named
        await bob.done(retract(NODE, one.named))
        await bob.told("retract", "1")
        for _ in range(2):
            assert await other.publish(NODE, item("1")) == ["1"]
            await queues.restart()
        await bob.nothing()
        assert await alice.browse(NODE) == {}


async def test_a_repeat_while_the_first_is_being_written_is_one_item(
    queues: Served,
) -> None:
    """A hasty publisher does not wait; each answer comes after the commit."""
    async with peers(queues, "alice/a", "alice/b") as (alice, other):
        await alice.create(NODE)
        asked = []
        for _ in range(10):
            for peer in (alice, other):
                iq_id = await peer.start_asking(publish(NODE, item("1")))
                asked.append((peer, iq_id))
        for peer, iq_id in asked:
            assert (await peer.answered(iq_id)).get("type") == "result"
        stats = await alice.stats(NODE)
        assert (stats["available"], stats["bytes"]) == ("1", str(len(payload_of())))


def payload_of() -> str:
    """The payload of `item()`, as it is stored."""
    return f"<example xmlns='urn:xmpp:example'>{PRIVATE}</example>"


async def test_the_same_payload_written_otherwise_is_a_repeat(queues: Served) -> None:
    """Servers reorder attributes and choose prefixes; the content stays the same."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        for payload in (
            "<x xmlns='urn:x' a='1' b='2'><y/></x>",
            "<x b='2' a='1' xmlns='urn:x'><y></y></x>",
            "<z:x xmlns:z='urn:x' a='1' b='2'><z:y/></z:x>",
        ):
            request = publish(NODE, f"<item id='1'>{payload}</item>")
            await alice.done(request)
        assert list(await alice.browse(NODE)) == ["1"]


async def test_the_same_id_with_anything_else_is_a_conflict(queues: Served) -> None:
    """Nothing is overwritten: a worker may have the item, or may have done it."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await alice.affiliate(NODE, bob="publisher")
        await alice.publish(NODE, item("1"))
        others = (
            (bob, item("1")),
            (alice, item("1", "changed")),
            (alice, item("1", "")),
        )
        for peer, changed in others:
            assert await peer.refused(publish(NODE, changed)) == CONFLICT
            assert (await alice.stats(NODE))["available"] == "1"
        await bob.subscribe(NODE)
        one = await bob.item()
        assert one.payload == PRIVATE
        await bob.done(retract(NODE, one.named))
        for peer, changed in others:
            assert await peer.refused(publish(NODE, changed)) == CONFLICT
        assert await alice.browse(NODE) == {}


async def test_the_window_counts_from_the_end_of_the_item(queues: Served) -> None:
    """A queue may be longer than the window; waiting items are always known."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, {"queue#dedupe_window": "600"})
        await alice.publish(NODE, item("1"))
        await let_pass(1_000)
        assert float((await alice.stats(NODE))["oldest_seconds"]) >= 1_000
        await alice.publish(NODE, item("1"))
        await bob.subscribe(NODE)
        one = await bob.item()
        await bob.done(retract(NODE, one.named))
        await alice.publish(NODE, item("1"))
        assert await alice.browse(NODE) == {}
        # The end was just now; after the window it is a new item.
        await let_pass(600)
        await alice.publish(NODE, item("1"))
        again = await bob.item()
        assert again.token != one.token
        assert again.q["first-acquirer"] == "true"


async def test_without_a_window_an_id_is_free_when_its_item_has_ended(
    queues: Served,
) -> None:
    """As long as its item lives, the id is known."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, {"queue#dedupe_window": "0"})
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        await alice.publish(NODE, item("1"))
        one = await bob.item()
        await bob.done(retract(NODE, one.named))
        await alice.publish(NODE, item("1", "another"))
        two = await bob.item()
        assert two.payload == "another"
        # The token of the first item is remembered, and does not settle the second.
        await bob.done(retract(NODE, one.named))
        (left,) = (await alice.browse(NODE)).values()
        assert left["state"] == "acquired"
        await bob.done(retract(NODE, two.named))


# -- ids, payloads, limits -------------------------------------------------


async def test_an_item_without_an_id_gets_one_of_the_services(queues: Served) -> None:
    """XEP-0060 §7.1.2; several in one request get different ids."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        made = await alice.publish(NODE, item(), item("1"), item())
        made += await alice.publish(NODE, item())
        assert len(set(made)) == 4
        assert made[1] == "1"
        assert set(await alice.browse(NODE)) == set(made)


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "<x/>",
        "<x xmlns=''/>",
        "<x xmlns='urn:x' xmlns:p='urn:p' p:a='&lt;&amp;&quot;&apos;'>&lt;&amp;]]&gt;</x>",
        "<x xmlns='urn:x' xml:lang='de'> ä€😀&#9;&#10;\n </x>",
        "<message xmlns='jabber:client' to='a@b'><body>b</body></message>",
        "<item xmlns='http://jabber.org/protocol/pubsub' id='2'/>",
        "<x xmlns='urn:x'><y xmlns=''><z xmlns='urn:x'/></y></x>",
    ],
)
async def test_a_payload_reaches_the_worker_as_it_was(
    queues: Served, payload: str
) -> None:
    """Also after a redelivery, from the store, and in a browse."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, EAGER)
        await alice.done(publish(NODE, f"<item id='1'>{payload}</item>"))
        # An element without a namespace in a request is in that of pubsub.
        context = "<e xmlns='http://jabber.org/protocol/pubsub'>"
        wanted = [canonical(x) for x in ET.fromstring(f"{context}{payload}</e>")]  # noqa: S314
        await bob.subscribe(NODE)
        for _ in range(2):
            message = await bob.items()
            (one,) = message.iter(f"{{{EVENT}}}item")
            assert [canonical(x) for x in one] == wanted
            assert one.get("publisher") == alice.account
            await queues.restart()
            await bob.done(unlock(NODE, "1"))
        answer = await alice.done(pubsub(f"<items node='{NODE}'/>"), "get")
        (shown,) = answer.iter("{http://jabber.org/protocol/pubsub}items")
        assert [canonical(x) for x in shown[0]] == wanted


def canonical(element: ET.Element) -> str:
    """An element in a form in which equal ones are equal."""
    element.tail = None
    return ET.canonicalize(ET.tostring(element))


async def test_a_full_node_refuses_the_publisher_and_nobody_else(
    queues: Served,
) -> None:
    """Dedupe comes before the limits; redelivered items are still counted."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create("letters", {"queue#max_items": "1"})
        config = {"queue#max_items": "2", "queue#dead_letter_node": "letters"}
        await alice.create(NODE, config | EAGER)
        await alice.publish("letters", item("full"))
        await alice.publish(NODE, item("1"), item("2"))
        assert await alice.refused(publish(NODE, item("3"))) == NO_ROOM
        await alice.publish(NODE, item("1"), item("2"))
        await bob.subscribe(NODE)
        one = await bob.item()
        # There is room for a redelivery, a dead letter and a requeue.
        await bob.done(unlock(NODE, one.named))
        two = await bob.item()
        await bob.done(unlock(NODE, two.named, content="<q:rejected/>"))
        assert (await alice.stats("letters"))["available"] == "2"
        await alice.publish(NODE, item("3"))
        assert (await bob.item()).id in {"1", "2", "3"}
        await alice.done(pubsub(f"<q:requeue node='{NODE}'/>"))
        assert len(await alice.browse(NODE)) == 3
        assert await alice.refused(publish(NODE, item("4"))) == NO_ROOM


async def test_a_node_that_is_full_in_bytes_refuses_too(queues: Served) -> None:
    """Bytes of payload; an item without payload always finds room there."""
    async with peers(queues, "alice/a") as (alice,):
        limit = len(payload_of()) * 2
        await alice.create(NODE, {"queue#max_bytes": str(limit)})
        await alice.publish(NODE, item("1"), item("2"))
        assert await alice.refused(publish(NODE, item("3"))) == NO_ROOM
        await alice.publish(NODE, item("3", ""))
        await alice.done(retract(NODE, "1"))
        await alice.publish(NODE, item("4"))


# -- by messages -----------------------------------------------------------


#: The mark of our sender, in each message.
MARK = "xmlns:m='xmpp-qos:store:0' m:sender='store-1'"


def assured(msg_id: str, content: str, more: str = "", mark: str = "") -> str:
    """A message at level assured, the first step."""
    return (
        f"<assured xmlns='{QOS}' msgId='{msg_id}' {mark}>"
        f"<message xmlns='jabber:client' {more}>{content}</message></assured>"
    )


def deliver(msg_id: str, mark: str = "") -> str:
    """The second step."""
    return f"<deliver xmlns='{QOS}' msgId='{msg_id}' {mark}/>"


def own_publish(payload: str = PRIVATE) -> str:
    """One item, whose id the service must make."""
    return publish(NODE, item(payload=payload))


@contextlib.contextmanager
def killed_when_published(queues: Served) -> Iterator[None]:
    """The message is released and published, but never on disk as done."""
    assert queues.xmpp is not None
    store = XEP_QOS.of(queues.xmpp).store
    assert isinstance(store, SqliteStore)
    commits = itertools.count(1)

    def probe(step: str) -> None:
        # The first write is its release.
        if step == "commit" and next(commits) > 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    store.probe = probe
    yield


async def test_an_assured_message_publishes_when_it_is_released(
    queues: Served,
) -> None:
    """A held message is not published yet.

    The answer to the release comes after the commit.
    """
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        for _ in range(2):
            await alice.done(assured("7", publish(NODE, item())))
        assert await alice.browse(NODE) == {}
        for _ in range(3):
            await alice.done(deliver("7"))
        assert len(await alice.browse(NODE)) == 1
        await alice.done(assured("8", publish(NODE, item())))
        await alice.done(deliver("8"))
        assert len(await alice.browse(NODE)) == 2


async def test_those_who_count_from_1_publish_all_that_they_send(
    queues: Served,
) -> None:
    """Two resources are two senders; after a success an id is free.

    docs/design/protocol.md §3.1 and §3.4.
    """
    async with peers(queues, "alice/a", "alice/b") as (kitchen, cellar):
        await kitchen.create(NODE)
        for peer, degrees in ((kitchen, "20"), (cellar, "11"), (kitchen, "20")):
            await peer.done(assured("1", own_publish(degrees)))
            await peer.done(deliver("1"))
        acknowledged = (
            f"<acknowledged xmlns='{QOS}'><message xmlns='jabber:client'>"
            f"{own_publish('12')}</message></acknowledged>"
        )
        for _ in range(2):
            await cellar.send(
                f"<iq type='set' id='1' to='{queues.jid}'>{acknowledged}</iq>"
            )
            await cellar.answered("1")
        await kitchen.until_stats(NODE, available="5")
        assert not cellar.received(stanza("message", type="error"))


async def test_one_of_ours_that_says_it_again_has_said_it_once(queues: Served) -> None:
    """Even from another resource, or after it has lost its store; the mark tells."""
    async with peers(queues, "alice/a", "alice/b") as (alice, other):
        await alice.create(NODE)
        for peer, mark in (
            (alice, MARK),
            (other, MARK),
            (other, MARK.replace("store-1", "store-2")),
        ):
            await peer.done(assured("job-1", own_publish(), mark=mark))
            await peer.done(deliver("job-1", mark))
        assert len(await alice.browse(NODE)) == 1


@pytest.mark.parametrize("mark", ["", MARK], ids=["not ours", "ours"])
async def test_a_message_handed_over_again_is_published_once(
    queues: Served, mark: str
) -> None:
    """The process died between two commits: of the publish, and of the message."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        await alice.done(assured("1", own_publish("20"), mark=mark))
        with killed_when_published(queues):
            await alice.done(deliver("1", mark))
        await queues.restart()
        # It is handed over again; a repeat is answered when that is done.
        await alice.done(deliver("1", mark))
        await alice.until_stats(NODE, available="1")
        assert queues.xmpp is not None
        await alice.done(assured("2", own_publish("21"), mark=mark))
        await alice.done(deliver("2", mark))
        assert len(await alice.browse(NODE)) == 2


async def test_a_message_publishes_several_items_with_and_without_ids(
    queues: Served,
) -> None:
    """All or none, as by iq; acknowledged messages publish as well."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        content = publish(NODE, item(), item("1"), item())
        for _ in range(2):
            await alice.done(assured("1", content, mark=MARK))
            await alice.done(deliver("1", MARK))
        assert len(await alice.browse(NODE)) == 3
        content = f"<message xmlns='jabber:client'>{publish(NODE, item('2'))}</message>"
        await alice.done(f"<acknowledged xmlns='{QOS}'>{content}</acknowledged>")
        assert len(await alice.browse(NODE)) == 4


async def test_what_is_held_is_published_once_across_restarts(queues: Served) -> None:
    """Between the steps, and after the last one if the sender is ours.

    Stores remember.
    """
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE, 5)
        await alice.done(assured("7", publish(NODE, item()), mark=MARK))
        await queues.restart()
        await alice.done(deliver("7", MARK))
        await bob.synced()
        one = await bob.item()
        await queues.restart()
        await alice.done(assured("7", publish(NODE, item()), mark=MARK))
        await alice.done(deliver("7", MARK))
        await bob.synced()
        assert (await bob.item()).named == one.named
        await bob.nothing()
        assert list(await alice.browse(NODE)) == [one.id]


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        (publish("no such node", item("1")), NOT_FOUND),
        (publish("closed", item("1")), FORBIDDEN),
        (publish("full", item("2")), NO_ROOM),
        (publish("full", item("1", "changed")), CONFLICT),
        (publish("full"), Refused("modify", "bad-request", "item-required")),
        (
            pubsub("<publish node='full'><item id='3'>text</item></publish>"),
            Refused("modify", "bad-request", "invalid-payload"),
        ),
    ],
    ids=["no node", "no publisher", "full", "conflict", "no item", "text"],
)
async def test_a_refused_publish_is_answered_by_a_message_of_type_error(
    queues: Served, content: str, refusal: Refused
) -> None:
    """RFC 6120 §8.3; the message itself was delivered, and must not be repeated."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create("closed")
        await alice.create("full", {"queue#max_items": "1"})
        await alice.affiliate("full", bob="publisher")
        await bob.publish("full", item("1"))
        await bob.done(assured("1", content, "id='m1'"))
        await bob.done(deliver("1"))
        error = await bob.expect(stanza("message", type="error", id="m1"))
        assert error.get("from") == queues.jid
        assert Refused.of(error) == refusal
        assert list(await alice.browse("full")) == ["1"]
        await bob.done(deliver("1"))


async def test_a_refused_publish_is_the_outcome_of_the_message_where_both_are_ours(
    queues: Served, server: Prosody, caplog: pytest.LogCaptureFixture
) -> None:
    """Alone and in a batch: with the condition, the reason, and who refused."""
    async with (
        peers(queues, "alice/a") as (alice,),
        connected_client(server, "carol/c", {"xep_qos": {}}) as carol,
    ):
        await alice.create("closed")
        # Otherwise her message would not be held: by default only publishers may have
        # messages held.
        await alice.create("hers")
        await alice.affiliate("hers", carol="publisher")
        sender = XEP_QOS.of(carol)
        for node, condition in (("closed", "forbidden"), ("none", "item-not-found")):
            contents = [publish(node, item(str(number))) for number in range(3)]
            ends = await asyncio.gather(
                *(sender.send(queues.jid, payload=content) for content in contents),
                return_exceptions=True,
            )
            for end in ends:
                assert isinstance(end, NotDelivered), end
                assert (end.condition, end.by) == (condition, queues.jid)
                assert end.text
        await sender.aclose()
        assert await alice.browse("closed") == {}
    assert "rejected with forbidden" in caplog.text


async def test_a_plain_message_publishes_nothing(queues: Served) -> None:
    """It may be lost or doubled without notice."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        await alice.send(
            f"<message to='{queues.jid}'>{publish(NODE, item('1'))}</message>"
        )
        assert await alice.browse(NODE) == {}


async def test_our_own_client_publishes_while_the_service_restarts(
    queues: Served, server: Prosody, tmp_path: Path
) -> None:
    """`xep_qos` repeats until there is a confirmation; each message is one item."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await alice.affiliate(NODE, carol="publisher")
        options: dict[str, object] = {
            "store": f"sqlite:{tmp_path / 'carol.sqlite'}",
            "retry_first_s": 0.1,
            "retry_max_s": 0.2,
        }
        async with connected_client(server, "carol/c", {"xep_qos": options}) as carol:
            sender = XEP_QOS.of(carol)
            async with asyncio.TaskGroup() as group:
                for number in range(10):
                    content = publish(NODE, item(payload=str(number)))
                    group.create_task(sender.send(queues.jid, payload=content))
                    if number in {3, 7}:
                        await queues.restart()
            await sender.aclose()
        assert len(await alice.browse(NODE)) == 10
        await bob.subscribe(NODE, 20)
        found = [(await bob.item()).payload for _ in range(10)]
        assert sorted(found) == [str(number) for number in range(10)]
        await bob.nothing()


async def test_an_event_is_not_read_as_a_request(queues: Served) -> None:
    """An event of a service that is sent back to it must not publish."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await alice.affiliate(NODE, bob="publisher")
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        message = await bob.event()
        assert delivered(message)
        echo = ET.tostring(message[0], encoding="unicode")
        await bob.done(assured("1", echo))
        await bob.done(deliver("1"))
        await bob.nothing()


async def test_a_message_that_publishes_nothing_is_rejected(
    queues: Served, server: Prosody
) -> None:
    """Nobody at a component takes it: its sender would repeat it for ever."""
    async with (
        peers(queues, "alice/a") as (alice,),
        connected_client(server, "carol/c", {"xep_qos": {}}) as carol,
    ):
        await alice.create(NODE)
        await alice.affiliate(NODE, carol="publisher")
        with pytest.raises(NotDelivered, match="no items to publish") as ended:
            await XEP_QOS.of(carol).send(queues.jid, "hello", deadline_s=60)
        assert (ended.value.condition, ended.value.by) == ("bad-request", queues.jid)
        error = "<message xmlns='jabber:client' type='error'><body>x</body></message>"
        outcome = await XEP_QOS.of(carol).send(queues.jid, payload=error, deadline_s=60)
        assert outcome.status is OutgoingState.DELIVERED
        await XEP_QOS.of(carol).aclose()


async def test_a_stranger_s_messages_are_not_held(queues: Served) -> None:
    """There is no queue to which he could publish, so nothing is held for him."""
    async with peers(queues, "alice/a", "mallory/m") as (alice, mallory):
        await alice.create(NODE, {"pubsub#access_model": "whitelist"})
        refused = await mallory.refused(assured("1", publish(NODE, item("1"))))
        assert refused == Refused("cancel", "not-allowed")
        await alice.affiliate(NODE, mallory="publisher")
        await mallory.done(assured("1", publish(NODE, item("1"))))
