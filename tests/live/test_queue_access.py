"""Rights at a queue: affiliations, access models, and subscriptions."""

from collections.abc import Mapping
from xml.etree import ElementTree as ET

import pytest

from queue_service import (
    BAD_REQUEST,
    DISCO_INFO,
    DISCO_ITEMS,
    FORBIDDEN,
    NODE_CONFIG,
    NOT_ACCEPTABLE,
    NOT_FOUND,
    OWNER,
    PRIVATE,
    PUBSUB,
    Refused,
    Served,
    form,
    item,
    peers,
    publish,
    pubsub,
    subscribe,
)

NODE = "orders"

pytestmark = pytest.mark.asyncio(loop_scope="module")


def configure(node: str, config: Mapping[str, str]) -> str:
    content = f"<configure node='{node}'>{form(NODE_CONFIG, config)}</configure>"
    return pubsub(content, OWNER)


# -- who may what ----------------------------------------------------------


async def test_only_owners_do_what_owners_do(queues: Served) -> None:
    """A publisher and a member are no owners; a missing node is not found."""
    async with peers(queues, "alice/a", "bob/b", "carol/c", "mallory/m") as found:
        alice, *others = found
        await alice.create(NODE)
        await alice.affiliate(NODE, bob="publisher", carol="member")
        for kind, content in (
            ("get", f"<configure node='{NODE}'/>"),
            ("set", f"<configure node='{NODE}'>{form(NODE_CONFIG, {})}</configure>"),
            ("set", f"<delete node='{NODE}'/>"),
            ("set", f"<purge node='{NODE}'/>"),
            ("get", f"<subscriptions node='{NODE}'/>"),
            ("get", f"<affiliations node='{NODE}'/>"),
            (
                "set",
                f"<affiliations node='{NODE}'><affiliation jid='mallory@localhost'"
                " affiliation='owner'/></affiliations>",
            ),
        ):
            for peer in others:
                assert await peer.refused(pubsub(content, OWNER), kind) == FORBIDDEN
            elsewhere = pubsub(content.replace(NODE, "none"), OWNER)
            assert await alice.refused(elsewhere, kind) == NOT_FOUND
        for peer in others:
            assert (
                await peer.refused(pubsub(f"<q:requeue node='{NODE}'/>")) == FORBIDDEN
            )


@pytest.mark.parametrize("model", ["open", "whitelist"])
async def test_affiliations_decide_who_may_publish_and_subscribe(
    queues: Served, model: str
) -> None:
    """docs/design/queue.md P3: open, whitelist; an outcast has no rights."""
    may: dict[str, tuple[bool, bool]] = {
        "owner": (True, True),
        "publisher": (True, True),
        "member": (False, True),
        "publish-only": (True, False),
        "none": (False, model == "open"),
        "outcast": (False, False),
    }
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, {"pubsub#access_model": model})
        browse = pubsub(f"<items node='{NODE}'/>")
        options = {"pubsub#queue_requests": "1"}
        for what, (publishes, subscribes) in may.items():
            await alice.affiliate(NODE, bob=what)
            answer = await bob.ask(publish(NODE, item(what)))
            assert (answer.get("type") == "result") is publishes, what
            hidden = not (publishes or subscribes)
            denied = NOT_FOUND if hidden else FORBIDDEN
            if not publishes:
                assert Refused.of(answer) == denied
            for request, kind in (
                (subscribe(NODE, bob.jid, options), "set"),
                (browse, "get"),
            ):
                answer = await bob.ask(request, kind)
                assert (answer.get("type") == "result") is subscribes, what
                if not subscribes:
                    assert Refused.of(answer) == denied
                    assert PRIVATE not in ET.tostring(answer, encoding="unicode")
            if what == "none" and model == "whitelist":
                # A stranger does not even get the options form.
                assert await bob.refused(subscribe(NODE, bob.jid, None)) == NOT_FOUND
        await alice.done(configure(NODE, {"pubsub#publish_model": "open"}))
        assert await bob.refused(publish(NODE, item("9"))) == NOT_FOUND
        await alice.affiliate(NODE, bob="member")
        await bob.publish(NODE, item("9"))


async def test_affiliations_are_listed_for_oneself_and_for_the_owner(
    queues: Served,
) -> None:
    """XEP-0060 §5.7 and §8.9; the last owner stays."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.create("bobs")
        await alice.affiliate(NODE, bob="member", carol="outcast")
        for of, wanted in (
            ("", {NODE: "member", "bobs": "owner"}),
            (f" node='{NODE}'", {NODE: "member"}),
        ):
            answer = await bob.done(pubsub(f"<affiliations{of}/>"), "get")
            found = {
                each.get("node"): each.get("affiliation")
                for each in answer.iter(f"{{{PUBSUB}}}affiliation")
            }
            assert found == wanted
        asked = pubsub(f"<affiliations node='{NODE}'/>", OWNER)
        answer = await alice.done(asked, "get")
        assert {
            each.get("jid"): each.get("affiliation")
            for each in answer.iter(f"{{{OWNER}}}affiliation")
        } == {
            "alice@localhost": "owner",
            "bob@localhost": "member",
            "carol@localhost": "outcast",
        }
        for content, refusal in (
            ("jid='alice@localhost' affiliation='none'", NOT_ACCEPTABLE),
            ("jid='alice@localhost' affiliation='member'", NOT_ACCEPTABLE),
            ("jid='bob@localhost' affiliation='king'", BAD_REQUEST),
            ("jid='bob@localhost'", BAD_REQUEST),
        ):
            change = (
                f"<affiliations node='{NODE}'><affiliation {content}/></affiliations>"
            )
            assert await alice.refused(pubsub(change, OWNER)) == refusal
        await alice.affiliate(NODE, bob="owner")
        await bob.affiliate(NODE, alice="none")
        assert await alice.refused(asked, "get") == FORBIDDEN


async def test_an_affiliation_is_of_the_account_however_its_jid_is_written(
    queues: Served,
) -> None:
    """RFC 7622: a JID has one normal form.

    An outcast in capitals is the same outcast.
    """
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        for jid in ("Bob@Localhost", "bob@localhost/some"):
            change = (
                f"<affiliations node='{NODE}'><affiliation jid='{jid}'"
                " affiliation='outcast'/></affiliations>"
            )
            await alice.done(pubsub(change, OWNER))
            options = {"pubsub#queue_requests": "1"}
            assert await bob.refused(subscribe(NODE, bob.jid, options)) == NOT_FOUND
            await alice.affiliate(NODE, bob="none")


async def test_subscriptions_are_ones_own(queues: Served) -> None:
    """XEP-0060 §6: nobody makes, sees or ends the subscriptions of others."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE)
        await alice.create("other")
        subid = await bob.subscribe(NODE)
        await bob.subscribe("other")
        await carol.subscribe(NODE)
        who = f"node='{NODE}' jid='{bob.jid}'"
        options = {"pubsub#queue_requests": "1"}
        change = form(f"{PUBSUB}#subscribe_options", options)
        invalid = Refused("modify", "bad-request", "invalid-jid")
        assert await carol.refused(subscribe(NODE, bob.jid, options)) == invalid
        for content, kind in (
            (pubsub(f"<unsubscribe {who}/>"), "set"),
            (pubsub(f"<options {who}/>"), "get"),
            (pubsub(f"<options {who}>{change}</options>"), "set"),
        ):
            assert await carol.refused(content, kind) == FORBIDDEN
        for of, wanted in (("", {NODE, "other"}), (f" node='{NODE}'", {NODE})):
            answer = await bob.done(pubsub(f"<subscriptions{of}/>"), "get")
            found = list(answer.iter(f"{{{PUBSUB}}}subscription"))
            assert {each.get("node") for each in found} == wanted
            assert {each.get("jid") for each in found} == {bob.jid}
        asked = pubsub(f"<subscriptions node='{NODE}'/>", OWNER)
        answer = await alice.done(asked, "get")
        found = list(answer.iter(f"{{{OWNER}}}subscription"))
        assert {each.get("jid") for each in found} == {bob.jid, carol.jid}
        wrong = pubsub(f"<unsubscribe {who} subid='no such'/>")
        assert (await bob.refused(wrong)).pubsub == "invalid-subid"
        await bob.done(pubsub(f"<unsubscribe {who} subid='{subid}'/>"))
        for content, kind in (("unsubscribe", "set"), ("options", "get")):
            refused = await bob.refused(pubsub(f"<{content} {who}/>"), kind)
            assert refused == Refused("cancel", "unexpected-request", "not-subscribed")


async def test_a_node_has_so_many_affiliations_and_no_more(queues: Served) -> None:
    """All of them are written with the node; a list over the limit changes nothing."""

    def change(count: int) -> str:
        each = "".join(
            f"<affiliation jid='user{number}@localhost' affiliation='member'/>"
            for number in range(count)
        )
        return pubsub(f"<affiliations node='{NODE}'>{each}</affiliations>", OWNER)

    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        assert await alice.refused(change(1000)) == NOT_ACCEPTABLE
        asked = pubsub(f"<affiliations node='{NODE}'/>", OWNER)
        answer = await alice.done(asked, "get")
        assert len(list(answer.iter(f"{{{OWNER}}}affiliation"))) == 1
        await alice.done(change(999))
        answer = await alice.done(asked, "get")
        assert len(list(answer.iter(f"{{{OWNER}}}affiliation"))) == 1000


# -- strangers -------------------------------------------------------------


def affiliate(*affiliations: tuple[str, str]) -> str:
    """A request to change affiliations, with JIDs as they are written."""
    each = "".join(
        f"<affiliation jid='{jid}' affiliation='{what}'/>" for jid, what in affiliations
    )
    return pubsub(f"<affiliations node='{NODE}'>{each}</affiliations>", OWNER)


async def test_a_node_is_shown_to_who_may_use_it(queues: Served) -> None:
    """To a stranger it looks like a missing node; XEP-0060 says what he may ask for."""
    async with peers(queues, "alice/a", "bob/b", "mallory/m") as found:
        alice, bob, mallory = found
        await alice.create(NODE, {"pubsub#access_model": "whitelist"})
        await alice.affiliate(NODE, bob="member")
        names = f"<query xmlns='{DISCO_ITEMS}'/>"
        info = f"<query xmlns='{DISCO_INFO}' node='{NODE}'/>"
        no_info = f"<query xmlns='{DISCO_INFO}' node='nothing'/>"
        for peer in (alice, bob):
            assert NODE in ET.tostring(await peer.done(names, "get"), "unicode")
            await peer.done(info, "get")
        assert NODE not in ET.tostring(await mallory.done(names, "get"), "unicode")
        there, not_there = [await mallory.ask(each, "get") for each in (info, no_info)]
        assert Refused.of(there) == Refused.of(not_there) == NOT_FOUND
        for request in ("subscriptions", "affiliations"):
            content = pubsub(f"<{request} node='{NODE}'/>")
            assert await mallory.refused(content, "get") == NOT_FOUND
            await bob.done(content, "get")


async def test_two_spellings_of_one_jid_are_refused(queues: Served) -> None:
    """The last one would win, but an owner may have meant the first."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        for other in ("BOB@localhost", "bob@LOCALHOST.", "bob@localhost/1"):
            two = affiliate(("bob@localhost", "outcast"), (other, "member"))
            assert await alice.refused(two) == BAD_REQUEST
        await alice.done(affiliate(("bob@localhost", "member")))


@pytest.mark.parametrize(
    "name", ["bob@localhost.", "Bob@LocalHost", "bob@localhost./x"]
)
async def test_an_outcast_is_one_however_he_is_spelled(
    queues: Served, name: str
) -> None:
    """RFC 7622 §3.2: the final dot is not part of a domain."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE)
        await alice.done(affiliate((name, "outcast")))
        one = {"pubsub#queue_requests": "1"}
        assert await bob.refused(subscribe(NODE, bob.jid, one)) == NOT_FOUND
        await alice.publish(NODE, item("1"))
        await bob.no_items()
        await alice.done(affiliate((name, "none")))
        await bob.subscribe(NODE)
