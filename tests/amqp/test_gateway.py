"""The gateway with proton's own client and with rhea: publish, consume, each outcome."""

import asyncio
import errno
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message, symbol
from proton.reactor import Copy
from proton.utils import (
    BlockingConnection,
    ConnectionClosed,
    LinkDetached,
    SendException,
)

from amqp_bench import BOSS, DOMAIN, Bench, gateway
from qos.amqp import bounds, browsing, outgoing
from qos.amqp.browsing import BrowsingLink
from qos.core.amqp import item_rendering
from qos.core.queue import ready_items, selector_time
from qos.core.queue.item import Affiliation, Item, ItemState
from qos.core.queue.requests import (
    Delete,
    Publish,
    PublishedItem,
    Purge,
    SetAffiliations,
    Subscribe,
)
from qos.testing import ManualClock
from raw_amqp import RawAmqp
from waiting import LIMIT_S, limit, until


def send(client: BlockingConnection, *bodies: str, node: str = "orders") -> None:
    sender = client.create_sender(node)
    for body in bodies:
        assert sender.send(Message(body=body)).remote_state == Delivery.ACCEPTED


def receive(
    client: BlockingConnection, count: int, node: str = "orders"
) -> list[Message]:
    receiver = client.create_receiver(node, credit=count, name="takes")
    found = []
    for _ in range(count):
        found.append(receiver.receive(timeout=LIMIT_S))
        receiver.accept()
    return found


async def test_what_proton_publishes_it_consumes(bench: Bench) -> None:
    """Accepted after the commit; gone when its accepted outcome is on disk."""
    await bench.proton(lambda client: send(client, "one", "two", "three"))
    assert len(await bench.items("orders")) == 3
    found = await bench.proton(lambda client: receive(client, 3))
    assert [each.body for each in found] == ["one", "two", "three"]
    assert all(each.durable and each.first_acquirer for each in found)
    await bench.until_items("orders", 0)


async def test_what_rhea_publishes_it_consumes(bench: Bench) -> None:
    sent = await bench.rhea("send", node="orders", count=50)
    assert sent == [{"outcome": "accepted"}] * 50
    found = await bench.rhea("receive", node="orders", count=50)
    assert [each["body"] for each in found] == [f"body {n}" for n in range(50)]
    await bench.until_items("orders", 0)


async def test_each_outcome_is_what_it_says(bench: Bench) -> None:
    """Accepted ends; rejected is dead with its reason; released and modified come again."""
    await bench.rhea("send", node="orders", count=5, prefix="m", quiet=True)
    outcomes = {0: "accept", 1: "reject", 2: "release", 3: "fail", 4: "not here"}
    # With drain, each of them once: what comes again finds no credit.
    none = {"credit_window": 0}
    found = await bench.rhea(
        "receive", node="orders", outcomes=outcomes, receiver=none, drain=6
    )
    assert [each.get("id") for each in found] == [*(f"m{n}" for n in range(5)), None]
    live = await bench.items("orders")
    assert live.keys() == {"string:m2", "string:m3", "string:m4"}
    assert all(each.state is ItemState.AVAILABLE for each in live.values())
    assert [live[f"string:m{n}"].delivery_count for n in (2, 3, 4)] == [0, 1, 0]
    assert live["string:m4"].excluded
    await bench.until_items("orders", 1, "dead")
    dead = await bench.items("orders", "dead")
    assert dead["string:m1"].history[-1].reason == "rejected: shop:bad: no"


async def test_a_redelivery_tells_how_often_it_has_failed(bench: Bench) -> None:
    await bench.rhea("send", node="orders", quiet=True)
    outcomes = {0: "fail", 1: "release", 2: "fail"}
    found = await bench.rhea("receive", node="orders", count=4, outcomes=outcomes)
    assert [(each["count"], each["first"]) for each in found] == [
        (0, True),
        (1, False),
        (1, False),
        (2, False),
    ]


async def test_an_item_that_fails_too_often_becomes_a_dead_letter(bench: Bench) -> None:
    await bench.create("letters")
    await bench.create("jobs", max_deliveries="2", dead_letter_node="letters")
    await bench.rhea("send", node="jobs", prefix="m", quiet=True)
    await bench.rhea("receive", node="jobs", count=2, outcome="fail")
    await bench.until_items("letters", 1)
    (found,) = await bench.rhea("receive", node="letters")
    assert (found["body"], found["count"]) == ("body 0", 0)


async def test_credit_is_the_limit_of_what_is_locked(bench: Bench) -> None:
    await bench.publish("orders", *["<x/>"] * 10)

    waiting = asyncio.create_task(
        bench.rhea(
            "receive", node="orders", outcome="nothing", credit=0, once=3, count=4
        )
    )
    await bench.until_locked("orders", 3)
    # Another link has what this one has no credit for.
    await bench.rhea("receive", node="orders", count=7, credit=0, once=7)
    left = await bench.items("orders")
    assert left.keys() == {"xmpp-0", "xmpp-1", "xmpp-2"}
    assert all(each.state is ItemState.ACQUIRED for each in left.values())
    await bench.ask(Delete("orders"))
    await waiting


@pytest.mark.parametrize("items", [0, 1, 4])
async def test_a_drained_link_has_used_its_credit_or_has_none(
    bench: Bench, items: int
) -> None:
    """The consumer learns that there is nothing more, without waiting for a time-out."""
    if items:
        await bench.publish("orders", *["<x/>"] * items)
    none = {"credit_window": 0}
    found = await bench.rhea("receive", node="orders", receiver=none, drain=5, count=9)
    assert len(found) == items + 1
    assert found[-1] == {"drained": True}
    await bench.until_items("orders", 0)


async def test_more_items_than_credit_to_drain_are_not_sent(bench: Bench) -> None:
    await bench.publish("orders", *["<x/>"] * 9)
    none = {"credit_window": 0}
    found = await bench.rhea("receive", node="orders", receiver=none, drain=5, count=5)
    assert [each["id"] for each in found] == [f"xmpp-{n}" for n in range(5)]
    await bench.until_items("orders", 4)


async def test_a_presettled_transfer_is_accepted_before_it_leaves(bench: Bench) -> None:
    """At most once: the consumer asked for it."""
    await bench.publish("orders", "<x/>", "<y/>")
    settled = {"snd_settle_mode": 1}
    found = await bench.rhea("receive", node="orders", count=2, receiver=settled)
    assert [each["id"] for each in found] == ["xmpp-0", "xmpp-1"]
    assert not await bench.items("orders")


async def test_messages_that_come_together_have_outcomes_of_their_own(
    bench: Bench,
) -> None:
    """They are published by one request; if one is refused, the others are not."""
    messages = [
        Message(id=name, body=f"{name} {number}").encode()
        for number, name in enumerate(["a", "b", "a", "c", "b", "d"])
    ]

    def send_all() -> list[int]:
        client = RawAmqp(bench.port)
        outcomes = client.send_all(client.sender("orders"), *messages)
        client.close()
        return outcomes

    yes, no = int(Delivery.ACCEPTED), int(Delivery.REJECTED)
    assert await asyncio.to_thread(send_all) == [yes, yes, no, yes, no, yes]
    # In their order.
    assert [*await bench.items("orders")] == [f"string:{name}" for name in "abcd"]


async def test_accepted_before_the_link_ends_is_accepted(bench: Bench) -> None:
    """Although both come in one read: the end of a link releases only what is held."""
    await bench.publish("orders", "<x/>", "<y/>", "<z/>")

    def accept() -> None:
        client = RawAmqp(bench.port)
        client.accept_and_detach(client.receiver("orders", 2), 2)
        client.close()

    await asyncio.to_thread(accept)
    await bench.until_items("orders", 1)
    (left,) = (await bench.items("orders")).values()
    assert (left.item_id, left.delivery_count) == ("xmpp-2", 0)


async def test_a_presettled_message_is_published(bench: Bench) -> None:
    await bench.rhea(
        "send",
        node="orders",
        count=1,
        sender={"target": {"address": "orders"}, "snd_settle_mode": 1},
        linger=200,
    )
    await bench.until_items("orders", 1)


async def test_a_receiver_that_settles_second_hears_of_the_commit(bench: Bench) -> None:
    """rcv-settle-mode second: its outcome, then ours with settled, then its own."""
    await bench.publish("orders", "<x/>")
    second = {"rcv_settle_mode": 1, "autosettle": False}
    found = await bench.rhea(
        "receive", node="orders", receiver=second, tell_settled=True
    )
    assert found[1] == {"settled": True, "state": "accepted"}
    assert not await bench.items("orders")


# -- XMPP and AMQP at one queue --------------------------------------------


async def test_what_amqp_publishes_an_xmpp_worker_can_read(bench: Bench) -> None:
    worker = "bob@example.org/w"
    members = SetAffiliations("orders", {"bob@example.org": Affiliation.MEMBER})
    await bench.ask(members)
    await bench.ask(Subscribe("orders", worker, {"pubsub#queue_requests": "5"}), worker)
    await bench.rhea("send", node="orders", message={"body": "a < b"})
    async with limit():
        await bench.xmpp.came.wait()
    ((to, _, payload),) = bench.xmpp.items
    assert to == worker
    assert payload.startswith("<message xmlns='xmpp-qos:amqp:0'>")
    assert payload.endswith("<body>a &lt; b</body></message>")


async def test_what_xmpp_publishes_amqp_gets_as_one_data_section(bench: Bench) -> None:
    await bench.publish("orders", "<order xmlns='shop'>7</order>")

    def take(client: BlockingConnection) -> tuple[object, str, bytes, float]:
        (found,) = receive(client, 1)
        body = memoryview(found.body)  # type: ignore[arg-type]  # proton's own memory
        return found.id, found.content_type, bytes(body), found.creation_time

    *told, created_at = await bench.proton(take)
    assert told == ["xmpp-0", "application/xml", b"<order xmlns='shop'>7</order>"]
    assert isinstance(created_at, float)
    assert created_at > 0


async def test_annotations_are_passed_on_and_those_of_one_hop_are_not(
    bench: Bench,
) -> None:
    def through(client: BlockingConnection) -> Message:
        message = Message(body="x")
        message.annotations = {symbol("x-opt-shop"): 5}
        message.instructions = {symbol("x-opt-hop"): 1}
        client.create_sender("orders").send(message)
        return receive(client, 1)[0]

    found = await bench.proton(through)
    assert found.annotations == {"x-opt-shop": 5}
    assert not found.instructions


async def test_sections_that_are_only_carried_are_not_validated(bench: Bench) -> None:
    """A footer of rhea has strings as keys; application-properties may be lists."""
    message = {
        "body": "x",
        "footer": {"a": 1},
        "application_properties": {"n": 5, "list": [1, 2]},
        "message_annotations": {"x-opt-a": "b"},
    }
    (sent,) = await bench.rhea("send", node="orders", message=message)
    assert sent["outcome"] == "accepted"
    (item,) = (await bench.items("orders")).values()
    assert item.properties == {"n": 5}
    (found,) = await bench.rhea("receive", node="orders")
    assert (found["body"], found["annotations"]) == ("x", {"x-opt-a": "b"})


# -- filters and copies ----------------------------------------------------


async def colours(bench: Bench) -> None:
    for number, colour in enumerate(("red", "blue", "red")):
        message = {"application_properties": {"colour": colour, "n": number}}
        prefix = f"{colour}-{number}-"
        await bench.rhea("send", node="orders", message=message, prefix=prefix)


async def test_a_filter_of_the_source_selects(bench: Bench) -> None:
    """And the answering attach shows that it is in force (messaging §3.5.8)."""
    await colours(bench)
    found = await bench.rhea(
        "receive", node="orders", count=2, selector="colour = 'red'", tell_open=True
    )
    assert found[0]["filter"] == ["jms-selector"]
    assert [each["id"] for each in found[1:]] == ["red-0-0", "red-2-0"]
    (left,) = (await bench.items("orders")).values()
    assert left.item_id == "string:blue-1-0"


async def test_a_filter_that_is_none_ends_the_link(bench: Bench) -> None:
    for source in ({}, {"distribution_mode": "copy"}):
        (found,) = await bench.rhea(
            "receive", node="orders", selector="colour =", source=source
        )
        assert found["error"]["condition"] == "amqp:invalid-field"


async def test_a_filter_that_is_not_known_is_left_out(bench: Bench) -> None:
    """The peer sees that, and decides itself (messaging §3.5.3)."""
    await bench.publish("orders", "<x/>")
    source = {"address": "orders", "filter": {"mine": "not described"}}
    found = await bench.rhea("receive", receiver={"source": source}, tell_open=True)
    assert found[0]["filter"] == []
    assert found[0]["mode"] == "move"
    assert len(found[0]["outcomes"]) == 4
    assert not found[0]["durable"]


async def test_a_copy_shows_each_item_once_and_takes_none_away(bench: Bench) -> None:
    """Messaging §3.5.2; what comes later is shown, too."""
    await bench.publish("orders", *["<x/>"] * 3)
    copy = {"source": {"address": "orders", "distribution_mode": "copy"}}
    found: list[dict[str, Any]] = []
    watching = asyncio.create_task(
        bench.rhea(
            "receive", receiver=copy, count=4, credit=2, tell_open=True, told=found
        )
    )
    # It is open, and all that is there was shown.
    await until(lambda: len(found) == 4)
    await bench.rhea("send", node="orders", prefix="later")
    await watching
    assert found[0]["mode"] == "copy"
    ids = [each["id"] for each in found[1:]]
    assert ids == ["xmpp-0", "xmpp-1", "xmpp-2", "later0"]
    assert len(await bench.items("orders")) == 4


async def test_a_message_wakes_the_receivers_of_its_topic(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They used to look once a second: half of that for each message, on average."""
    monkeypatch.setattr(browsing, "_LOOK_S", 3600.0)
    await bench.create("prices", node_type="topic")
    came = 0

    def receive(client: BlockingConnection) -> None:
        nonlocal came
        receiver = client.create_receiver("prices", credit=5, options=Copy())
        for _ in range(3):
            receiver.receive(timeout=LIMIT_S)
            came += 1

    def waits() -> bool:
        """The one link has found nothing, and no timer looks again."""
        for connection in bench.gateway._connections:
            for each in connection._links._attached:
                ours = each.ours
                assert isinstance(ours, BrowsingLink)
                idle = not ours._asking and not ours._changed
                return bool(each.link.credit) and idle and ours._timer is None
        return False

    received = asyncio.create_task(bench.proton(receive))
    for number in range(3):
        await until(waits)
        entry = PublishedItem(
            item_id=f"{number}", payload="<x/>", digest=f"{number}", size=4
        )
        await bench.ask(Publish("prices", (entry,)))
        await until(lambda number=number: came > number)
    await received


async def test_a_receiver_of_a_topic_learns_of_its_end(bench: Bench) -> None:
    """It waits for nothing else."""
    await bench.create("prices", node_type="topic")
    attached = threading.Event()

    def receive(client: BlockingConnection) -> None:
        receiver = client.create_receiver("prices", credit=5, options=Copy())
        attached.set()
        receiver.receive(timeout=LIMIT_S)

    received = asyncio.create_task(bench.proton(receive))
    assert await asyncio.to_thread(attached.wait, LIMIT_S)
    await bench.ask(Delete("prices"))
    with pytest.raises(LinkDetached, match="not-found"):
        await received


async def test_a_copy_can_be_drained_filtered_and_presettled(bench: Bench) -> None:
    """As a JMS browser does."""
    await colours(bench)
    found = await bench.rhea(
        "receive", node="orders", selector="n > 0", drain=9, credit=0, count=9,
        source={"distribution_mode": "copy"},
    )  # fmt: skip
    assert [each.get("id") for each in found] == ["blue-1-0", "red-2-0", None]
    assert len(await bench.items("orders")) == 3


async def test_a_drain_waits_until_a_new_filter_has_seen_all_items(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise "nothing there" would be told of a message that is (transport §2.6.7)."""
    monkeypatch.setattr(ready_items, "SLICE", 1)
    await colours(bench)
    await bench.publish("orders", *["<x/>"] * 30)
    found = await bench.rhea(
        "receive", node="orders", selector="colour = 'red'", drain=9, count=9,
        receiver={"credit_window": 0},
    )  # fmt: skip
    assert [each.get("id") for each in found] == ["red-0-0", "red-2-0", None]


async def test_a_filter_that_has_become_too_dear_ends_its_link(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a condition and a sentence: the peer would ask for it again otherwise."""
    # Each evaluation costs an hour more than it takes.
    monkeypatch.setattr(selector_time, "FREE_S", -3600.0)
    await colours(bench)
    (found,) = await bench.rhea("receive", node="orders", selector="n > 5")
    assert found["error"]["condition"] == "amqp:resource-limit-exceeded"
    assert "as much time as is possible" in found["error"]["description"]
    (found,) = await bench.rhea("receive", node="orders", selector="n > 6")
    assert found["error"]["condition"] == "amqp:resource-limit-exceeded"
    copy = {"distribution_mode": "copy"}
    (found,) = await bench.rhea("receive", node="orders", selector="n > 5", source=copy)
    assert found["error"]["condition"] == "amqp:resource-limit-exceeded"
    assert len(await bench.rhea("receive", node="orders", count=3)) == 3


async def test_a_filter_of_a_copy_is_evaluated_in_slices(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An item that a turn has no time for is asked for again."""
    monkeypatch.setattr(selector_time.SelectorTime, "is_over", True)
    await colours(bench)
    found = await bench.rhea(
        "receive", node="orders", selector="n > 0", drain=9, credit=0, count=9,
        source={"distribution_mode": "copy"},
    )  # fmt: skip
    assert [each.get("id") for each in found] == ["blue-1-0", "red-2-0", None]


async def test_a_copy_of_dead_items_is_for_owners(bench: Bench) -> None:
    await bench.rhea("send", node="orders", prefix="m")
    await bench.rhea("receive", node="orders", outcome="reject")
    copy = {"source": {"address": "orders?dead", "distribution_mode": "copy"}}
    (found,) = await bench.rhea("receive", receiver=copy)
    assert found["id"] == "m0"
    bob = f"bob@{DOMAIN}"
    await bench.ask(SetAffiliations("orders", {bob: Affiliation.MEMBER}))
    (found,) = await bench.rhea("receive", receiver=copy, user="bob")
    assert found["error"]["condition"] == "amqp:unauthorized-access"


# -- refusals --------------------------------------------------------------


def refused_sender(client: BlockingConnection, node: str) -> str:
    with pytest.raises(LinkDetached) as refused:
        client.create_sender(node)
    return str(refused.value.condition)


def refused_receiver(client: BlockingConnection, node: str) -> str:
    with pytest.raises(LinkDetached) as refused:
        client.create_receiver(node)
    return str(refused.value.condition)


async def test_a_node_that_is_not_there_looks_like_one_that_is_hidden(
    bench: Bench,
) -> None:
    for node, user in (("other", "alice"), ("orders", "bob")):
        for ask in (refused_sender, refused_receiver):
            found = await bench.proton(partial(ask, node=node), user=user)
            assert found == "amqp:not-found"


async def test_a_member_does_not_publish_and_an_outcast_sees_nothing(
    bench: Bench,
) -> None:
    bob = f"bob@{DOMAIN}"
    await bench.ask(SetAffiliations("orders", {bob: Affiliation.MEMBER}))
    found = await bench.proton(lambda c: refused_sender(c, "orders"), user="bob")
    assert found == "amqp:unauthorized-access"
    await bench.ask(SetAffiliations("orders", {bob: Affiliation.OUTCAST}))
    found = await bench.proton(lambda c: refused_receiver(c, "orders"), user="bob")
    assert found == "amqp:not-found"


async def test_a_full_queue_rejects_and_tells_why(bench: Bench) -> None:
    await bench.create("small", max_items="1")
    found = await bench.rhea("send", node="small", count=2)
    assert found[0] == {"outcome": "accepted"}
    assert found[1]["error"]["condition"] == "amqp:resource-limit-exceeded"
    assert "the limit of 'small' is 1 items" in found[1]["error"]["description"]


async def test_one_id_with_two_contents_is_refused(bench: Bench) -> None:
    def twice(client: BlockingConnection) -> None:
        sender = client.create_sender("orders")
        for body in ("a", "a", "b"):
            sender.send(Message(id="one", body=body))

    with pytest.raises(SendException):
        await bench.proton(twice)
    assert len(await bench.items("orders")) == 1


async def test_an_annotation_that_must_be_understood_ends_the_link(
    bench: Bench,
) -> None:
    found = await bench.rhea(
        "send", node="orders", message={"message_annotations": {"x-must": 1}}
    )
    (error,) = [each["error"] for each in found if each.get("event") == "sender_error"]
    assert error["condition"] == "amqp:not-implemented"
    assert "'x-must'" in error["description"]
    assert not await bench.items("orders")


async def test_a_message_that_is_too_large_ends_the_link(bench: Bench) -> None:
    found = await bench.rhea("send", node="orders", body_bytes=300_000)
    (error,) = [each["error"] for each in found if each.get("event") == "sender_error"]
    assert error["condition"] == "amqp:link:message-size-exceeded"
    assert not await bench.items("orders")


async def test_transactions_are_refused_by_name(bench: Bench) -> None:
    def coordinate() -> str:
        client = RawAmqp(bench.port)
        condition = client.coordinator()
        client.close()
        return condition

    assert await asyncio.to_thread(coordinate) == "amqp:not-implemented"


@pytest.mark.parametrize("direction", ["send", "receive"])
async def test_a_topic_that_is_none_is_refused(bench: Bench, direction: str) -> None:
    """JMS asks for it by a capability; a queue in its place would take items away."""
    await bench.create("prices", node_type="topic")
    end, link = ("target", "sender") if direction == "send" else ("source", "receiver")
    for wanted, named in (
        ({"dynamic": True}, "temporary-topic"),
        ({"dynamic": True}, "topic"),
        ({"address": "orders"}, ["queue", "topic"]),
    ):
        terminus = {**wanted, "capabilities": named}
        (found,) = await bench.rhea(direction, **{link: {end: terminus}})
        assert found["error"]["condition"] == "amqp:not-implemented"
    if direction == "send":
        topic = {"address": "prices", "capabilities": "topic"}
        (sent,) = await bench.rhea("send", sender={"target": topic})
        assert sent["outcome"] == "accepted"


async def test_a_dynamic_node_lives_as_long_as_its_link(bench: Bench) -> None:
    """Messaging §3.5.3: its name shows who has made it; the answer shows what it is."""
    dynamic = {"source": {"dynamic": True}, "name": "replies"}
    found = await bench.rhea(
        "receive", receiver=dynamic, dynamic=True, container="desk"
    )
    made, message = found
    assert made["address"].startswith("desk/replies/")
    assert made["dynamic"]
    assert made["properties"] == ["lifetime-policy", "supported-dist-modes"]
    assert made["lifetime"] == 0x2B
    assert message["body"] == "to myself"
    await until(lambda: bench.engine.rights(made["address"], BOSS) is None)


@pytest.mark.parametrize("code", [0x2C, 0x2D, 0x2E])
async def test_a_dynamic_node_ends_by_the_policy_that_was_asked_for(
    bench: Bench, code: int
) -> None:
    def make() -> str:
        client = RawAmqp(bench.port)
        link = client.dynamic(code)
        address = str(link.remote_target.address)
        client.send(link, b"\x00\x53\x77\x40")
        client.close()
        return address

    node = await asyncio.to_thread(make)
    assert node.startswith("raw-alice/dynamic/")
    if code == 0x2C:
        await until(lambda: bench.engine.rights(node, BOSS) is None)
        return
    # Its message keeps it.
    assert await bench.items(node)
    await bench.rhea("receive", node=node)
    await until(lambda: bench.engine.rights(node, BOSS) is None)


async def test_who_may_not_create_makes_no_dynamic_node(tmp_path: Path) -> None:
    dynamic = {"source": {"dynamic": True}}
    async with gateway(tmp_path) as bench:
        named = {"source": {"dynamic": True, "address": "mine"}}
        (found,) = await bench.rhea("receive", receiver=named)
        assert found["error"]["condition"] == "amqp:invalid-field"
        bench.engine._core.creators = set()  # type: ignore[union-attr]  # nobody
        (found,) = await bench.rhea("receive", receiver=dynamic)
        assert found["error"]["condition"] == "amqp:unauthorized-access"


async def test_annotations_of_a_modified_outcome_stay_with_the_message(
    bench: Bench,
) -> None:
    """Messaging §3.4.5: merged, and the later value wins."""
    await bench.rhea(
        "send", node="orders",
        message={"message_annotations": {"x-opt-shop": 1, "x-opt-tries": 0}},
    )  # fmt: skip
    for tries in (1, 2):
        await bench.rhea(
            "receive",
            node="orders",
            outcome="annotate",
            tries=tries,
            credit=0,
            once=1,
        )
    found = await bench.rhea("receive", node="orders")
    assert found[0]["annotations"] == {"x-opt-shop": 1, "x-opt-tries": 2}
    assert found[0]["count"] == 2


async def test_a_message_names_its_node_where_the_link_does_not(bench: Bench) -> None:
    """The anonymous relay, as JMS uses it."""
    relay: dict[str, object] = {"target": {}}
    (sent,) = await bench.rhea("send", sender=relay, message={"to": "orders"})
    assert sent["outcome"] == "accepted"
    assert len(await bench.items("orders")) == 1
    for to in ("other", None):
        (found,) = await bench.rhea("send", sender=relay, message={"to": to})
        assert found["error"]["condition"] == "amqp:not-found"


# -- ends ------------------------------------------------------------------


async def test_a_consumer_that_goes_in_order_gives_back_what_it_has(
    bench: Bench,
) -> None:
    """It was never done: that is no failure."""
    await bench.publish("orders", "<x/>", "<y/>")
    await bench.rhea("receive", node="orders", count=2, outcome="nothing")
    live = await bench.items("orders")
    assert [(each.state, each.delivery_count) for each in live.values()] == [
        (ItemState.AVAILABLE, 0)
    ] * 2
    assert not bench.gateway.attached()


async def test_a_consumer_that_is_cut_off_has_failed(bench: Bench) -> None:
    """An item that kills its worker must end."""
    await bench.publish("orders", "<x/>")
    (found,) = await bench.rhea(
        "receive", node="orders", count=1, outcome="nothing", die=True
    )
    assert found["count"] == 0
    await bench.until_locked("orders", 0)
    (item,) = (await bench.items("orders")).values()
    assert (item.state, item.delivery_count) == (ItemState.AVAILABLE, 1)


async def test_a_lock_that_times_out_is_told_to_its_consumer(bench: Bench) -> None:
    """Messaging §3.4.5: the source attains modified by a lock time-out."""
    await bench.create("quick", lock_timeout="0.3")
    await bench.rhea("send", node="quick", quiet=True)
    found = await bench.rhea(
        "receive", node="quick", outcome="nothing", credit=1, tell_settled=True
    )
    assert found[1] == {"settled": True, "state": "modified"}


async def test_a_node_that_is_deleted_ends_its_links(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.rhea("receive", node="orders"))
    await until(bench.gateway.attached)
    await bench.ask(Delete("orders"))
    (found,) = await waiting
    assert found["error"]["condition"] == "amqp:resource-deleted"


async def test_who_may_not_subscribe_any_more_is_detached(bench: Bench) -> None:
    bob = f"bob@{DOMAIN}"
    await bench.ask(SetAffiliations("orders", {bob: Affiliation.MEMBER}))
    waiting = asyncio.create_task(bench.rhea("receive", node="orders", user="bob"))
    await until(bench.gateway.attached)
    await bench.ask(SetAffiliations("orders", {bob: Affiliation.OUTCAST}))
    (found,) = await waiting
    assert found["error"]["condition"] == "amqp:unauthorized-access"


async def test_a_purge_settles_what_its_consumers_have(bench: Bench) -> None:
    await bench.publish("orders", "<x/>")
    waiting = asyncio.create_task(
        bench.rhea("receive", node="orders", outcome="nothing", tell_settled=True)
    )
    await bench.until_locked("orders")
    await bench.ask(Purge("orders"))
    assert (await waiting)[1]["settled"]
    assert not await bench.items("orders")


async def test_links_of_a_process_that_was_killed_have_left(tmp_path: Path) -> None:
    """Their locks end at the start of the next one, and nothing has failed."""
    async with gateway(tmp_path) as bench:
        await bench.create("orders")
        jid = f"bob@{DOMAIN}/amqp-1"
        members = SetAffiliations("orders", {f"bob@{DOMAIN}": Affiliation.MEMBER})
        await bench.ask(members)
        # As a gateway would, but it does not live to see the end.
        bench.ports.remove(bench.gateway)
        options = {"pubsub#queue_requests": "5"}
        await bench.ask(Subscribe("orders", jid, options, link=True), jid)
        await bench.publish("orders", "<x/>")
        assert (await bench.items("orders"))["xmpp-0"].holder == jid
    async with gateway(tmp_path) as bench:
        await bench.until_locked("orders", 0)
        item = (await bench.items("orders"))["xmpp-0"]
        assert (item.delivery_count, item.lost) == (1, 1)
        assert not bench.xmpp.probed


async def test_a_gateway_that_stops_tells_so_and_gives_everything_back(
    bench: Bench,
) -> None:
    await bench.publish("orders", "<x/>")
    waiting = asyncio.create_task(
        bench.rhea("receive", node="orders", outcome="nothing", stays=asyncio.Event())
    )
    await bench.until_locked("orders")
    await bench.gateway.aclose()
    found = await waiting
    # How the TCP connection ends after that, rhea may tell as well.
    told = [each for each in found if each.get("event") == "connection_error"]
    assert [each["error"]["condition"] for each in told] == ["amqp:connection:forced"]
    item = (await bench.items("orders"))["xmpp-0"]
    assert (item.state, item.delivery_count) == (ItemState.AVAILABLE, 0)


# -- termini ---------------------------------------------------------------


def keeps(policy: str, timeout: int) -> dict[str, object]:
    """A receiver whose terminus outlives its link; always of the same name."""
    source = {"address": "orders", "expiry_policy": policy, "timeout": timeout}
    return {"receiver": {"source": source, "name": "mine"}, "container": "desk"}


async def test_a_terminus_that_is_kept_goes_on_where_it_was(bench: Bench) -> None:
    """Messaging §3.5.6: its locks are its own over a lost connection, and none fails."""
    await bench.publish("orders", "<x/>", "<y/>")
    held = await bench.rhea(
        "receive", **keeps("connection-close", 30), outcome="nothing", die=True,
        count=2, tell_open=True,
    )  # fmt: skip
    assert held[0]["expiry"] == "connection-close"
    assert held[0]["timeout"] == 30
    await until(lambda: not bench.gateway.attached())
    locked = await bench.items("orders")
    assert all(each.token and not each.delivery_count for each in locked.values())
    # Another link does not get them.
    other = await bench.rhea("receive", node="orders", drain=5, credit=0, count=9)
    assert other == [{"drained": True}]
    again = await bench.rhea("receive", **keeps("connection-close", 30), count=2)
    assert [(each["id"], each["count"]) for each in again] == [
        ("xmpp-0", 0),
        ("xmpp-1", 0),
    ]
    await bench.until_items("orders", 0)
    # And its credit is counted on.
    await bench.rhea("send", node="orders", count=3, quiet=True)
    more = await bench.rhea(
        "receive", **keeps("connection-close", 30), count=3, credit=0, once=3
    )
    assert len(more) == 3


async def test_a_terminus_ends_after_its_timeout(
    timed: Bench, clock: ManualClock
) -> None:
    await timed.publish("orders", "<x/>")
    await timed.rhea(
        "receive", **keeps("connection-close", 1), outcome="nothing", die=True
    )
    await until(lambda: not timed.gateway._connections)
    for seconds in (0.0, 0.9):
        clock.advance(seconds)
        assert (await timed.items("orders"))["xmpp-0"].token
    clock.advance(0.2)
    await timed.until_locked("orders", 0)
    assert (await timed.items("orders"))["xmpp-0"].delivery_count == 1


@pytest.mark.parametrize(
    ("policy", "session_ends", "kept"),
    [
        ("link-detach", False, False),
        ("session-end", False, True),
        ("session-end", True, False),
        ("connection-close", True, True),
        ("never", True, True),
    ],
)
async def test_the_policy_says_what_starts_the_timer(
    timed: Bench, clock: ManualClock, policy: str, session_ends: bool, kept: bool
) -> None:
    """With a timeout of 0 the terminus ends at once."""
    await timed.publish("orders", "<x/>")
    told: list[dict[str, Any]] = []
    stays = asyncio.Event()
    detaching = asyncio.create_task(
        timed.rhea(
            "receive",
            **keeps(policy, 0),
            outcome="nothing",
            detach=True,
            session_ends=session_ends,
            tell_ends=True,
            told=told,
            stays=stays,
        )
    )
    last = "session_close" if session_ends else "receiver_close"
    await until(lambda: {"event": last} in told)
    # A timer that runs has run out by now.
    clock.advance(20.0)
    (item,) = (await timed.items("orders")).values()
    assert bool(item.token) is kept
    stays.set()
    await detaching
    await until(lambda: not timed.gateway._connections)
    clock.advance(20.0)
    (item,) = (await timed.items("orders")).values()
    assert bool(item.token) is (policy == "never")


# -- faults ----------------------------------------------------------------


async def test_an_error_of_ours_ends_one_connection(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Proton's callbacks are in between: no other client may notice."""
    render = item_rendering.render_item

    def fails(item: Item, payload: str, now: float) -> bytes:
        if "poison" in payload:
            raise RuntimeError("a fault of the gateway")
        return render(item, payload, now)

    monkeypatch.setattr(outgoing, "render_item", fails)
    await bench.create("poisoned")
    await bench.publish("poisoned", "<poison/>")
    healthy = asyncio.create_task(bench.rhea("receive", node="orders"))
    await until(bench.gateway.attached)
    found = await bench.rhea("receive", node="poisoned")
    assert not any("id" in each for each in found)
    assert "a fault of the gateway" in caplog.text
    await bench.publish("orders", "<x/>")
    assert [each["id"] for each in await healthy] == ["xmpp-0"]
    # Its item has failed, and is there for others.
    assert (await bench.items("poisoned"))["xmpp-0"].delivery_count == 1


async def test_a_store_that_fails_ends_the_connections(bench: Bench) -> None:
    """Answers given before may be untrue now; clients attach again, and go on."""
    waiting = asyncio.create_task(bench.rhea("receive", node="orders"))
    await until(bench.gateway.attached)
    # Everything before is on disk.
    await bench.items("orders")

    def full(step: str) -> None:
        if step == "commit":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    bench.store.probe = full
    (sent,) = await bench.rhea("send", node="orders")
    assert sent["error"]["condition"] == "amqp:resource-limit-exceeded"
    bench.store.probe = lambda _step: None
    found = await waiting
    assert found[-1]["error"]["condition"] == "amqp:internal-error"
    assert await bench.rhea("send", node="orders") == [{"outcome": "accepted"}]
    assert len(await bench.rhea("receive", node="orders")) == 1


async def test_more_links_than_are_possible_end_the_connection(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LINKS_MAX", 2)

    def attach(client: BlockingConnection) -> str:
        for name in ("one", "two"):
            client.create_sender("orders", name=name)
        with pytest.raises(ConnectionClosed) as closed:
            client.create_sender("orders", name="three")
        return str(closed.value.condition)

    assert await bench.proton(attach) == "amqp:resource-limit-exceeded"
