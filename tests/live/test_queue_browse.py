"""XEP-0060 and XEP-0030 around the queue: what is offered, and what is not."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from qos.testing.prosody import Prosody
from queue_service import (
    BAD_REQUEST,
    DISCO_INFO,
    DISCO_ITEMS,
    ERRORS,
    EXTENSIONS,
    NO_ROOM,
    NODE_CONFIG,
    NOT_FOUND,
    OWNER,
    PRIVATE,
    PUBSUB,
    QUEUEING,
    RSM,
    Peer,
    Refused,
    Served,
    form,
    item,
    peers,
    publish,
    pubsub,
    retract,
    served,
    unlock,
)
from waiting import until

NODE = "orders"
#: A store that has failed, and has not been read again yet.
UNREADABLE = Refused("wait", "internal-server-error")
UNSUPPORTED = Refused("cancel", "feature-not-implemented", "unsupported")

pytestmark = pytest.mark.asyncio(loop_scope="module")


def create(node: str, config: Mapping[str, str] | None = None) -> str:
    configure = (
        "" if config is None else f"<configure>{form(NODE_CONFIG, config)}</configure>"
    )
    return pubsub(f"<create node='{node}'/>{configure}")


# -- browse ----------------------------------------------------------------


async def test_a_browse_locks_nothing_and_shows_each_item_once(queues: Served) -> None:
    """As AMQP's copy mode: page by page (XEP-0059), in the order of publishing."""

    async def page(peer: Peer, more: str, of: str = "") -> tuple[list[str], str, str]:
        content = f"<items node='{NODE}'{of}/><set xmlns='{RSM}'>{more}</set>"
        answer = await peer.done(pubsub(content), "get")
        shown = [each.get("id", "") for each in answer.iter(f"{{{PUBSUB}}}item")]
        last = answer.findtext(f".//{{{RSM}}}last", "")
        return shown, last, answer.findtext(f".//{{{RSM}}}count", "")

    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        ids = [str(number) for number in range(7)]
        await alice.publish(NODE, *map(item, ids))
        shown, after = list[str](), ""
        for size in (3, 3, 1, 0):
            found, last, count = await page(bob, f"<max>3</max><after>{after}</after>")
            assert (len(found), count) == (size, "7")
            shown, after = shown + found, last
            if found:
                # An item that ends meanwhile causes no gap and no repeat.
                assert last
        assert shown == ids
        assert (await page(bob, "<max>0</max>"))[0] == []
        assert (await page(bob, "<max>5</max>", " max_items='2'"))[0] == ids[:2]
        one = await bob.done(
            pubsub(f"<items node='{NODE}'><item id='3'/><item id='no'/></items>"), "get"
        )
        (three,) = one.iter(f"{{{PUBSUB}}}item")
        assert (three.get("id"), "".join(three.itertext())) == ("3", PRIVATE)
        assert (await alice.stats(NODE))["available"] == "7"
        await bob.subscribe(NODE)
        first = await bob.item()
        assert first.q["first-acquirer"] == "true"
        states = {name: q["state"] for name, q in (await bob.browse(NODE)).items()}
        assert states.pop("0") == "acquired"
        assert set(states.values()) == {"available"}
        # Only owners see the holder.
        assert "holder" not in (await bob.browse(NODE))["0"]
        assert (await alice.browse(NODE))["0"]["holder"] == bob.jid


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        ("<items node='{}' max_items='-1'/>", BAD_REQUEST),
        ("<items node='{}' max_items='many'/>", BAD_REQUEST),
        ("<items node='{}' q:state='all'/>", BAD_REQUEST),
        ("<items node='{}'><item/></items>", BAD_REQUEST),
        ("<items/>", Refused("modify", "bad-request", "nodeid-required")),
        ("<items node='no'/>", NOT_FOUND),
        (f"<items node='{{}}'/><set xmlns='{RSM}'><max>x</max></set>", BAD_REQUEST),
        (
            f"<items node='{{}}'/><set xmlns='{RSM}'><before/></set>",
            Refused("cancel", "feature-not-implemented"),
        ),
    ],
)
async def test_a_browse_that_is_not_understood_is_refused(
    queues: Served, content: str, refusal: Refused
) -> None:
    """It must not be answered with everything."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        assert await alice.refused(pubsub(content.format(NODE)), "get") == refusal


@pytest.mark.parametrize("state", ["live", "accepted", "dead"])
@pytest.mark.parametrize(
    "after", ["no number", "-1", "9" * 18, "9" * 25, "9" * 1024, "²"]
)
async def test_a_cursor_that_we_did_not_make_harms_nobody(
    queues: Served, state: str, after: str
) -> None:
    """It is opaque to clients, and any text gets an answer."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        content = (
            f"<items node='{NODE}' q:state='{state}'/>"
            f"<set xmlns='{RSM}'><after>{after}</after></set>"
        )
        answer = await alice.ask(pubsub(content), "get")
        if answer.get("type") == "error":
            assert Refused.of(answer) in {BAD_REQUEST, NOT_FOUND}
        await alice.publish(NODE, item("1"))


async def test_a_large_browse_is_cut_to_what_goes_through_a_stream(
    queues: Served,
) -> None:
    """An answer over the server's limit would end the connection for everybody."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        for number in range(5):
            await alice.publish(NODE, item(str(number), "x" * 90_000))
        shown, after = list[str](), ""
        while len(shown) < 5:
            content = (
                f"<items node='{NODE}'/><set xmlns='{RSM}'><after>{after}</after></set>"
            )
            answer = await alice.done(pubsub(content), "get")
            found = [each.get("id", "") for each in answer.iter(f"{{{PUBSUB}}}item")]
            assert found
            assert answer.findtext(f".//{{{RSM}}}count") == "5"
            shown, after = shown + found, answer.findtext(f".//{{{RSM}}}last", "")
        assert shown == ["0", "1", "2", "3", "4"]


# -- what is not offered, and what is --------------------------------------


@pytest.mark.parametrize(
    ("content", "xmlns", "kind", "feature"),
    [
        ("<default/>", PUBSUB, "get", "retrieve-default-sub"),
        ("<collection node='{}'/>", OWNER, "set", "collections"),
        ("<redirect/>", OWNER, "set", "redirect"),
        (
            "<subscriptions node='{}'><subscription jid='bob@localhost'"
            " subscription='none'/></subscriptions>",
            OWNER,
            "set",
            "manage-subscriptions",
        ),
        (
            "<publish node='{}'><item/></publish><publish-options>"
            "<x xmlns='jabber:x:data' type='submit'/></publish-options>",
            PUBSUB,
            "set",
            "publish-options",
        ),
    ],
)
async def test_what_is_not_offered_is_unsupported(
    queues: Served, content: str, xmlns: str, kind: str, feature: str
) -> None:
    """XEP-0060: feature-not-implemented, with the missing feature."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        answer = await alice.ask(pubsub(content.format(NODE), xmlns), kind)
        assert Refused.of(answer) == UNSUPPORTED
        (unsupported,) = answer.iter(f"{{{ERRORS}}}unsupported")
        assert unsupported.get("feature") == feature


async def test_the_service_says_what_it_is_and_has(queues: Served) -> None:
    """XEP-0030: identity, features, nodes; and the same for each node."""
    async with peers(queues, "alice/a") as (alice,):
        for name in ("b", "a", "c"):
            await alice.create(name)
        answer = await alice.done(f"<query xmlns='{DISCO_INFO}'/>", "get")
        identities = {
            (each.get("category"), each.get("type"))
            for each in answer.iter(f"{{{DISCO_INFO}}}identity")
        }
        assert ("pubsub", "service") in identities
        features = {each.get("var") for each in answer.iter(f"{{{DISCO_INFO}}}feature")}
        names = (
            "create-nodes",
            "publish",
            "subscribe",
            "purge-nodes",
            "access-whitelist",
        )
        assert features >= {
            PUBSUB,
            QUEUEING,
            EXTENSIONS,
            *(f"{PUBSUB}#{n}" for n in names),
        }
        answer = await alice.done(f"<query xmlns='{DISCO_ITEMS}'/>", "get")
        found = [each.attrib for each in answer.iter(f"{{{DISCO_ITEMS}}}item")]
        assert found == [{"jid": queues.jid, "node": name} for name in "abc"]
        paged = (
            f"<query xmlns='{DISCO_ITEMS}'><set xmlns='{RSM}'><max>1</max>"
            "<after>a</after></set></query>"
        )
        answer = await alice.done(paged, "get")
        (second,) = answer.iter(f"{{{DISCO_ITEMS}}}item")
        assert second.get("node") == "b"
        answer = await alice.done(f"<query xmlns='{DISCO_INFO}' node='a'/>", "get")
        (identity,) = answer.iter(f"{{{DISCO_INFO}}}identity")
        assert (identity.get("category"), identity.get("type")) == ("pubsub", "leaf")
        features = {each.get("var") for each in answer.iter(f"{{{DISCO_INFO}}}feature")}
        assert features >= {PUBSUB, QUEUEING}
        answer = await alice.done(f"<query xmlns='{DISCO_ITEMS}' node='a'/>", "get")
        (query,) = answer
        assert (query.attrib, len(query)) == ({"node": "a"}, 0)
        for xmlns in (DISCO_INFO, DISCO_ITEMS):
            none = f"<query xmlns='{xmlns}' node='none'/>"
            assert await alice.refused(none, "get") == NOT_FOUND


async def test_a_full_disk_is_answered_to_who_looks_as_well(queues: Served) -> None:
    """An unreadable node is not a missing one, and silence would be a time-out."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        node = f"<query xmlns='{DISCO_INFO}' node='{NODE}'/>"
        nodes = f"<query xmlns='{DISCO_ITEMS}'/>"
        with queues.full_disk():
            published = await alice.start_asking(publish(NODE, item("1")))
            asked = [await alice.start_asking(each, "get") for each in (node, nodes)]
            for iq_id in (published, *asked):
                refusal = Refused.of(await alice.answered(iq_id))
                assert refusal in (NO_ROOM, UNREADABLE)
            for each in (node, nodes):
                assert await alice.refused(each, "get") == UNREADABLE
            query = f"<query xmlns='{DISCO_INFO}' node='none'/>"
            assert await alice.refused(query, "get") == NOT_FOUND

        async def is_read_again() -> bool:
            return (await alice.ask(node, "get")).get("type") == "result"

        await until(is_read_again)
        assert await alice.browse(NODE) == {}


async def test_another_address_of_the_component_is_not_the_service(
    queues: Served,
) -> None:
    """It answers, but not as a queue; no request stays without an answer."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        for to in (f"someone@{queues.jid}", f"{queues.jid}/resource"):
            for content, kind in (
                (publish(NODE, item("1")), "set"),
                (create("other"), "set"),
                (retract(NODE, "1"), "get"),
            ):
                answer = await alice.ask(content, kind, to)
                assert (answer.get("type"), answer.get("from")) == ("error", to)
        assert await alice.browse(NODE) == {}
        assert await alice.refused(publish("other", item("1"))) == NOT_FOUND


async def test_an_account_serves_as_well_as_a_component(
    server: Prosody, tmp_path: Path
) -> None:
    """At its full JID: presence goes to it, and events come from it."""
    jid = "carol@localhost/queue"
    async with (
        served(server, tmp_path, jid=jid) as queues,
        peers(queues, "alice/a", "bob/b", "bob/c") as (alice, bob, other),
    ):
        await alice.create(NODE, {"queue#backoff": "0"})
        features = await alice.done(f"<query xmlns='{DISCO_INFO}'/>", "get")
        assert QUEUEING in {
            each.get("var") for each in features.iter(f"{{{DISCO_INFO}}}feature")
        }
        items = await alice.done(f"<query xmlns='{DISCO_ITEMS}'/>", "get")
        (node,) = items.iter(f"{{{DISCO_ITEMS}}}item")
        assert node.attrib == {"jid": jid, "node": NODE}
        await bob.be_present()
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"), item("2"))
        message = await bob.items()
        assert (message.get("from"), message.get("to")) == (jid, bob.jid)
        await bob.done(unlock(NODE, "1"))
        two = await bob.item()
        await queues.restart()
        await bob.be_present()
        assert (await bob.item()).named == two.named
        await bob.cut()
        await alice.until_stats(NODE, subscribers="0", available="2")
        await other.subscribe(NODE, 2)
        assert {(await other.item()).id for _ in range(2)} == {"1", "2"}
        content = (
            "<assured xmlns='urn:xmpp:qos' msgId='1'><message xmlns='jabber:client'>"
            f"{publish(NODE, item('3'))}</message></assured>"
        )
        await alice.done(content)
        await alice.done("<deliver xmlns='urn:xmpp:qos' msgId='1'/>")
        assert "3" in await alice.browse(NODE)
