"""XEP_0254 as a client: the requests that it sends, and how it reads the answers.

Against a scripted component, which answers as no service of ours would, and against the
real service.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP, ComponentXMPP, Message

from qos.core.queue.item import Affiliation, ItemOutcome
from qos.errors import (
    InvalidArgument,
    LocalProtocolError,
    MessageTooLarge,
    NoAnswer,
    RequestFailed,
    RequestRefused,
    StoreInUse,
)
from qos.stores import store_from_url
from qos.testing import LoopbackServer, friends, logged_in
from qos.testing.clients import close
from raw_client import RawComponent, stanza
from waiting import LIMIT_S, limit, until
from xep_0254 import (
    XEP_0254,
    BrowsedItem,
    DeliveredItem,
    Event,
    NewItem,
    Published,
    QueueService,
)
from xep_0254.disco import render_items
from xep_qos import XEP_QOS

QUEUE = "queue.localhost"
OTHER = "other.localhost"
EXTENSIONS = "{xmpp-qos:queue:0}"
PUBSUB = "{http://jabber.org/protocol/pubsub}"
EVENTS = "http://jabber.org/protocol/pubsub#event"
STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"
NEVER_S = 60.0

# The clock of a test goes on from where its fixtures have left it: these have clients.
pytestmark = pytest.mark.looptime(start=time.monotonic)

AskedOf = tuple[XEP_0254, RawComponent]


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    components = {QUEUE: "hush", OTHER: "hush"}
    async with friends("bob", "bee", components=components) as server:
        yield server


@pytest.fixture
async def stack() -> AsyncIterator[contextlib.AsyncExitStack]:
    async with contextlib.AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def bob(server: LoopbackServer, stack: contextlib.AsyncExitStack) -> ClientXMPP:
    return await stack.enter_async_context(
        logged_in(server, "bob/1", {"xep_0254": {"retry_s": 0.01}})
    )


@pytest.fixture
async def scripted(
    server: LoopbackServer, stack: contextlib.AsyncExitStack
) -> RawComponent:
    """The queue service, scripted by a test."""
    component = RawComponent(QUEUE, "hush", port=server.component_port)
    return await stack.enter_async_context(component)


@pytest.fixture
async def service(
    server: LoopbackServer, tmp_path: Path
) -> AsyncIterator[QueueService]:
    """Our real queue service."""
    component = component_of(server, QUEUE)
    service = QueueService(component, f"sqlite:{tmp_path}/queues.db", creators="anyone")
    try:
        component.connect()
        await component.wait_until("session_start", timeout=LIMIT_S)
        # A write that a fixture has begun would not hold the clock of the test, which
        # would run to the end of all patience.
        written = asyncio.Event()
        service.engine.save((), lambda *_: written.set())
        await written.wait()
        await XEP_QOS.of(component).flush()
        yield service
    finally:
        await service.aclose()
        await close(component)


def component_of(server: LoopbackServer, jid: str) -> ComponentXMPP:
    return ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp's lack
        jid, "hush", server.host, server.component_port
    )


def answer(request: ET.Element, content: str = "", **changes: str) -> str:
    """An iq of type result for a request, with changes."""
    attributes = {
        "type": "result",
        "id": request.attrib["id"],
        "from": request.attrib["to"],
        "to": request.attrib["from"],
        **{name.rstrip("_"): value for name, value in changes.items()},
    }
    head = " ".join(f"{name}='{value}'" for name, value in attributes.items())
    return f"<iq {head}>{content}</iq>"


def refusal(request: ET.Element, condition: str, type_: str = "cancel") -> str:
    """A refusal from the service itself."""
    content = (
        f"<error type='{type_}' by='{request.attrib['to']}'>"
        f"<{condition} xmlns='{STANZAS}'/></error>"
    )
    return answer(request, content, type="error")


def event(content: str, *, to: str = "bob@localhost/1", sender: str = QUEUE) -> str:
    return (
        f"<message from='{sender}' to='{to}'><event xmlns='{EVENTS}'>"
        f"<items node='n' xmlns:q='xmpp-qos:queue:0'>{content}</items></event></message>"
    )


async def in_step(bob: ClientXMPP, component: RawComponent) -> None:
    """Return when everything that the component has sent is handled."""
    ping = "<ping xmlns='urn:xmpp:ping'/>"
    await component.send(
        f"<iq type='get' id='step' from='{QUEUE}' to='{bob.boundjid}'>{ping}</iq>"
    )
    await component.expect(stanza("iq", id="step"))


# -- answers ---------------------------------------------------------------


async def test_nothing_is_remembered_of_a_request_that_has_ended(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """However it ended: a worker that runs for years sends billions of requests."""
    queues = XEP_0254.of(bob)
    pending = queues._channel._pending

    async def asked() -> tuple[asyncio.Task[None], ET.Element]:
        asking = asyncio.create_task(queues.retract(QUEUE, "n", "i", timeout_s=NEVER_S))
        request = await scripted.expect(stanza("iq", type="set"))
        assert list(pending) == [request.attrib["id"]]
        return asking, request

    asking, request = await asked()
    await scripted.send(answer(request))
    await asking
    assert not pending
    asking, request = await asked()
    await scripted.send(refusal(request, "conflict"))
    with pytest.raises(RequestRefused):
        await asking
    assert not pending
    asking, request = await asked()
    asking.cancel()
    await asyncio.wait((asking,))
    assert not pending
    with pytest.raises(NoAnswer, match="nothing came"):
        await queues.retract(QUEUE, "n", "i", timeout_s=0.01)
    assert not pending
    # A late answer has no request any more, and does no harm.
    late = await scripted.expect(stanza("iq", type="set"))
    await scripted.send(answer(late))
    await in_step(bob, scripted)
    assert not pending


async def test_an_answer_counts_only_from_whom_was_asked(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """Somebody who guesses an id must not be able to settle an item for a worker."""
    retracting = asyncio.create_task(XEP_0254.of(bob).retract(QUEUE, "n", "i", "t"))
    request = await scripted.expect(stanza("iq", type="set"))
    await scripted.send(answer(request, from_=f"mallory@{QUEUE}"))
    await in_step(bob, scripted)
    assert not retracting.done()
    await scripted.send(refusal(request, "conflict"))
    with pytest.raises(RequestRefused, match="conflict"):
        await retracting


async def test_a_refusal_says_all_that_the_error_says(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """The next step of the caller depends on the condition, its type and its sender."""
    creating = asyncio.create_task(XEP_0254.of(bob).create(QUEUE, "n"))
    request = await scripted.expect(stanza("iq", type="set"))
    content = (
        f"<error type='modify' by='{OTHER}'><bad-request xmlns='{STANZAS}'/>"
        f"<text xmlns='{STANZAS}'>no such option</text>"
        "<invalid-options xmlns='http://jabber.org/protocol/pubsub#errors'/></error>"
    )
    await scripted.send(answer(request, content, type="error"))
    with pytest.raises(RequestRefused) as caught:
        await creating
    error = caught.value
    assert (error.condition, error.type) == ("bad-request", "modify")
    assert (error.pubsub, error.text) == ("invalid-options", "no such option")
    assert (error.by, error.to) == (OTHER, QUEUE)


async def test_an_error_without_a_condition_is_a_refusal_too(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """As in listing 9 of other services: the caller hears of any error."""
    purging = asyncio.create_task(XEP_0254.of(bob).purge(QUEUE, "n"))
    request = await scripted.expect(stanza("iq", type="set"))
    await scripted.send(answer(request, type="error"))
    with pytest.raises(RequestRefused, match="undefined-condition"):
        await purging


async def test_silence_is_no_answer_after_the_time_out(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """A caller that waits for ever cannot repeat the request."""
    with pytest.raises(NoAnswer, match=r"nothing came in 0\.05 s"):
        await XEP_0254.of(bob).retract(QUEUE, "n", "i", "t", timeout_s=0.05)
    request = await scripted.expect(stanza("iq", type="set"))
    await scripted.send(answer(request))
    await in_step(bob, scripted)


async def test_what_waits_when_the_session_is_lost_hears_of_it(
    bob: ClientXMPP, scripted: RawComponent, server: LoopbackServer
) -> None:
    """slixmpp leaves such requests waiting, and a worker could not repeat them."""
    plugin = XEP_0254.of(bob)
    waiting = asyncio.create_task(plugin.retract(QUEUE, "n", "i", timeout_s=NEVER_S))
    await scripted.expect(stanza("iq", type="set"))
    server.disconnect("bob@localhost/1")
    with pytest.raises(NoAnswer, match="the session was lost"):
        await waiting


async def test_a_program_needs_not_register_the_plugin_before_it_publishes(
    server: LoopbackServer, scripted: RawComponent
) -> None:
    """Nothing else of a queue needs it: a program found that out by a traceback."""
    async with logged_in(server, "bob/2") as client:
        publishing = asyncio.create_task(XEP_0254.of(client).stats(QUEUE, "n"))
        await scripted.expect(stanza("iq", type="get"))
        publishing.cancel()
        assert XEP_0254.of(client) is XEP_0254.of(client)


async def test_without_a_session_nothing_is_asked(server: LoopbackServer) -> None:
    """A request queued by slixmpp could be sent long after the caller gave up."""
    client = ClientXMPP("bob@localhost/1", "secret")
    client.register_plugin("xep_0254")
    try:
        with pytest.raises(NoAnswer, match="there is no session"):
            await XEP_0254.of(client).delete(QUEUE, "n")
    finally:
        await close(client)


# -- publishing ------------------------------------------------------------


async def test_a_publish_without_an_answer_is_repeated_with_the_same_ids(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """The service recognizes a repeat by the id; otherwise there would be two items."""
    plugin = XEP_0254.of(bob)
    plugin.timeout_s = 0.2
    item = NewItem("<a xmlns='u:a'/>", priority=9, ttl=1.5, delay=0.25)
    publishing = asyncio.create_task(plugin.publish(QUEUE, "n", [item]))
    requests = [await scripted.expect(stanza("iq", type="set")) for _ in range(2)]
    await scripted.send(answer(requests[1]))
    assert await publishing == [Published(item.item_id)]
    first, second = (each.find(f".//{PUBSUB}item") for each in requests)
    assert first is not None
    assert second is not None
    assert ET.tostring(first) == ET.tostring(second)
    assert first.attrib == {
        "id": item.item_id,
        f"{EXTENSIONS}priority": "9",
        f"{EXTENSIONS}ttl": "1.5",
        f"{EXTENSIONS}delay": "0.25",
    }
    assert len(item.item_id) >= 32  # 128 random bits


async def test_a_publish_that_is_never_answered_is_in_doubt(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """An error that the service is absent now says nothing about the first attempt."""
    plugin = XEP_0254.of(bob)
    plugin.timeout_s = 0.2
    publishing = asyncio.create_task(
        plugin.publish(QUEUE, "n", [NewItem()], attempts=2)
    )
    await scripted.expect(stanza("iq", type="set"))
    second = await scripted.expect(stanza("iq", type="set"))
    await scripted.send(refusal(second, "service-unavailable"))
    with pytest.raises(NoAnswer):
        await publishing


async def test_a_publish_that_is_refused_is_not_repeated(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """The service would decide the same again."""
    publishing = asyncio.create_task(XEP_0254.of(bob).publish(QUEUE, "n", [NewItem()]))
    request = await scripted.expect(stanza("iq", type="set"))
    await scripted.send(refusal(request, "forbidden", "auth"))
    with pytest.raises(RequestRefused, match="forbidden"):
        await publishing
    await in_step(bob, scripted)
    assert not scripted.received(stanza("iq", type="set"))


@pytest.mark.parametrize(
    ("condition", "by", "is_its_word"),
    [
        ("forbidden", QUEUE, True),
        ("forbidden", "", False),
        ("forbidden", OTHER, False),
        ("item-not-found", QUEUE, True),
        ("item-not-found", "", True),
        ("item-not-found", OTHER, False),
        ("service-unavailable", "", False),
    ],
)
def test_what_another_says_is_not_the_services_word(
    condition: str, by: str, is_its_word: bool
) -> None:
    """A server may answer for an absent service, but does not know what that has done."""
    error = RequestRefused(condition, to=QUEUE, what="publish", type="cancel", by=by)
    assert error.unreachable is not is_its_word


async def test_a_publish_waits_for_the_session_to_come_back(
    bob: ClientXMPP, service: QueueService, server: LoopbackServer
) -> None:
    """A publisher may lose its connection at any time, but not its items."""
    plugin = XEP_0254.of(bob)
    plugin.retry_s = NEVER_S
    await plugin.create(QUEUE, "n")
    server.disconnect("bob@localhost/1")
    await bob.wait_until("disconnected", timeout=LIMIT_S)
    assert await plugin.publish(QUEUE, "n", [NewItem(item_id="i")]) == [Published("i")]


@pytest.mark.parametrize(
    "item",
    [NewItem("<a>"), NewItem("text"), NewItem("<a/><b/>"), NewItem(item_id="\x00")],
    ids=["open", "text", "two", "id"],
)
async def test_what_cannot_be_an_item_is_not_sent(
    bob: ClientXMPP, scripted: RawComponent, item: NewItem
) -> None:
    """Broken XML would end the stream, and with it everything else."""
    with pytest.raises(LocalProtocolError):
        await XEP_0254.of(bob).publish(QUEUE, "n", [item])
    await in_step(bob, scripted)
    assert not scripted.received(stanza("iq", type="set"))


async def test_a_stanza_over_the_servers_limit_is_not_sent(bob: ClientXMPP) -> None:
    """The server would close the stream, at each attempt anew."""
    item = NewItem(f"<a>{'x' * 300_000}</a>")
    with pytest.raises(MessageTooLarge):
        await XEP_0254.of(bob).publish(QUEUE, "n", [item])


async def test_an_element_that_is_published_stays_as_it_was(
    bob: ClientXMPP, service: QueueService
) -> None:
    """It belongs to the application.

    What arrives is the same, even without a namespace.
    """
    plugin = XEP_0254.of(bob)
    await plugin.create(QUEUE, "n")
    payload = ET.Element("a", {"z": "1", "b": "2"})
    ET.SubElement(payload, "{u:c}c").tail = "text"
    before = ET.tostring(payload)
    await plugin.publish(QUEUE, "n", [NewItem(payload)])
    assert ET.tostring(payload) == before
    (item,) = (await plugin.items(QUEUE, "n")).items
    assert canonical(item.payload) == canonical(before.decode())


def canonical(xml: str) -> str:
    return ET.canonicalize(xml, rewrite_prefixes=True)


# -- events ----------------------------------------------------------------


def events_of(client: ClientXMPP) -> tuple[list[Event], list[Message]]:
    """The events that a listener to the node gets, and those that handlers get."""
    listened: list[Event] = []
    handled: list[Message] = []
    XEP_0254.of(client).add_listener(QUEUE, "n", listened.append)
    client.add_event_handler("pubsub_publish", handled.append)
    client.register_plugin("xep_0060")
    return listened, handled


async def test_an_event_of_the_service_goes_to_the_listener_and_nowhere_else(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """Two parts of an application must not both work on one item."""
    listened, handled = events_of(bob)
    await scripted.send(event("<item id='i' q:token='t'><a xmlns='u:a'/></item>"))
    await in_step(bob, scripted)
    (got,) = listened
    assert (got.node, got.items[0].item_id, got.items[0].token) == ("n", "i", "t")
    assert not handled


@pytest.mark.parametrize(
    ("to", "sender"),
    [
        ("bob@localhost", QUEUE),
        ("bob@localhost/1", f"mallory@{QUEUE}"),
        ("bob@localhost/1", f"{QUEUE}/1"),
    ],
    ids=["bare", "account", "resource"],
)
async def test_an_event_that_is_not_the_services_to_us_is_left_alone(
    bob: ClientXMPP, scripted: RawComponent, to: str, sender: str
) -> None:
    """docs/design/queue.md §1.6: anybody can send one, and servers re-route."""
    listened, handled = events_of(bob)
    await scripted.send(event("<item id='i'/>", to=to, sender=sender))
    await in_step(bob, scripted)
    assert not listened
    assert len(handled) == 1


async def test_who_does_not_listen_any_more_is_not_called(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """A worker that has ended must not get items."""
    listened, handled = events_of(bob)
    XEP_0254.of(bob).remove_listener(QUEUE, "n", listened.append)
    XEP_0254.of(bob).remove_listener(QUEUE, "n", listened.append)
    await scripted.send(event("<item id='i'/>"))
    await in_step(bob, scripted)
    assert not listened
    assert len(handled) == 1


async def test_a_listener_that_fails_harms_no_other(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """Otherwise an exception in a filter would end the connection."""

    def fail(_event: Event) -> None:
        raise RuntimeError("a bug of the application")

    XEP_0254.of(bob).add_listener(QUEUE, "n", fail)
    listened, _ = events_of(bob)
    await scripted.send(event("<item id='i'/>"))
    await in_step(bob, scripted)
    assert len(listened) == 1


async def test_an_acknowledged_event_reaches_the_listener(
    server: LoopbackServer, service: QueueService
) -> None:
    """It comes through xep_qos, which passes it to the same filters."""
    plugins = {"xep_qos": {"accepts": "anyone"}, "xep_0254": {}}
    async with logged_in(server, "bee/1", plugins) as bee:
        plugin = XEP_0254.of(bee)
        await plugin.create(QUEUE, "n")
        came: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        plugin.add_listener(QUEUE, "n", came.set_result)
        await plugin.subscribe(QUEUE, "n", queue_requests=1, events="acknowledged")
        await plugin.publish(QUEUE, "n", [NewItem(item_id="i")])
        async with limit():
            assert (await came).items[0].item_id == "i"


# -- all of it, with the service -------------------------------------------


async def test_a_service_of_ours_says_that_a_refusal_is_its_own(
    bob: ClientXMPP, service: QueueService
) -> None:
    """So a caller can tell it from the answer of a server in between."""
    with pytest.raises(RequestRefused, match="item-not-found") as caught:
        await XEP_0254.of(bob).retract(QUEUE, "nowhere", "i", "t")
    assert caught.value.by == caught.value.to == QUEUE


async def test_an_owner_sets_a_queue_up_and_takes_it_down(
    bob: ClientXMPP, service: QueueService
) -> None:
    """The requests and their answers fit together, over the whole life of a node."""
    plugin = XEP_0254.of(bob)
    assert await plugin.supports_queueing(QUEUE)
    assert await plugin.create(QUEUE, "n", {"queue#lock_timeout": "7"}) == "n"
    await plugin.configure(QUEUE, "n", {"queue#max_deliveries": "2"})
    config = await plugin.configuration(QUEUE, "n")
    assert config["queue#lock_timeout"] == "7"
    assert config["queue#max_deliveries"] == "2"
    members = ("bee@localhost", "@example.net")
    changes = dict.fromkeys(members, Affiliation.MEMBER)
    await plugin.set_affiliations(QUEUE, "n", changes)
    assert await plugin.affiliations(QUEUE, "n") == {
        "bob@localhost": Affiliation.OWNER,
        "bee@localhost": Affiliation.MEMBER,
        "example.net": Affiliation.MEMBER,
    }
    await plugin.publish(QUEUE, "n", [NewItem()])
    await plugin.purge(QUEUE, "n")
    assert (await plugin.items(QUEUE, "n")).items == []
    await plugin.delete(QUEUE, "n")
    with pytest.raises(RequestRefused, match="item-not-found"):
        await plugin.items(QUEUE, "n")
    assert await plugin.create(QUEUE)


async def test_a_queue_is_browsed_page_by_page_each_item_once(
    bob: ClientXMPP, service: QueueService
) -> None:
    """A queue can be longer than a stanza."""
    plugin = XEP_0254.of(bob)
    await plugin.create(QUEUE, "n")
    payload = f"<a xmlns='u:a'>{'x' * 50_000}</a>"
    ids = [f"i{number}" for number in range(9)]
    for item_id in ids:
        await plugin.publish(QUEUE, "n", [NewItem(payload, item_id)])
    first = await plugin.items(QUEUE, "n", max_items=2)
    assert [each.item_id for each in first.items] == ids[:2]
    assert first.count == 9
    second = await plugin.items(QUEUE, "n", max_items=1, after=first.last)
    assert [each.item_id for each in second.items] == ["i2"]
    assert [each.item_id async for each in plugin.browse(QUEUE, "n")] == ids


async def test_the_names_of_queues_come_page_by_page_each_once(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """There can be more queues than fit into a stanza (XEP-0059)."""
    names = [f"queue-{number:02}" for number in range(25)]
    asking = asyncio.create_task(XEP_0254.of(bob).nodes(QUEUE))
    pages = 0
    while not asking.done():
        request = await scripted.expect(stanza("iq"))
        page = render_items(request, names, service=QUEUE, answer_bytes_max=500)
        await scripted.send(page)
        pages += 1
        await in_step(bob, scripted)
    assert await asking == names
    assert pages > 3


async def test_a_worker_gets_items_settles_them_and_reads_the_numbers(
    bob: ClientXMPP, service: QueueService
) -> None:
    """The life of an item as its worker sees it: extended, failed, dead, requeued."""
    plugin = XEP_0254.of(bob)
    await plugin.create(
        QUEUE, "n", {"queue#max_deliveries": "1", "queue#keep_accepted": "60"}
    )
    events: asyncio.Queue[Event] = asyncio.Queue()
    plugin.add_listener(QUEUE, "n", events.put_nowait)
    assert await plugin.subscribe(QUEUE, "n", queue_requests=1)
    await plugin.publish(QUEUE, "n", [NewItem("<a xmlns='u:a'/>", "i", priority=7)])
    token = (await delivered(events)).token
    assert await plugin.extend(QUEUE, "n", "i", token, 90.0) == 90.0
    await plugin.unlock(
        QUEUE, "n", "i", token, outcome=ItemOutcome.REJECTED, reason="no\x00good"
    )
    (dead,) = (await plugin.items(QUEUE, "n", state="dead")).items
    assert_dead(dead)
    stats = await plugin.stats(QUEUE, "n")
    assert (stats["dead"], stats["available"], stats["subscribers"]) == (1, 0, 1)
    assert stats["oldest_seconds"] is None
    assert await plugin.requeue(QUEUE, "n") == ["i"]
    await plugin.retract(QUEUE, "n", "i", (await delivered(events)).token)
    (kept,) = (await plugin.items(QUEUE, "n", state="accepted")).items
    assert (kept.item_id, kept.state) == ("i", "accepted")
    await plugin.unsubscribe(QUEUE, "n")
    assert (await plugin.stats(QUEUE, "n"))["subscribers"] == 0


async def test_all_dead_items_are_requeued_over_several_requests(
    bob: ClientXMPP, service: QueueService
) -> None:
    """Whoever stops in the middle goes on later."""
    plugin = XEP_0254.of(bob)
    await plugin.create(QUEUE, "n", {"queue#ttl": "1"})
    names = [f"i{number}" for number in range(120)]
    await plugin.publish(QUEUE, "n", [NewItem("<a xmlns='u:a'/>", n) for n in names])

    async def all_dead() -> bool:
        return (await plugin.stats(QUEUE, "n"))["dead"] == len(names)

    await until(all_dead)
    await plugin.configure(QUEUE, "n", {"queue#ttl": ""})
    requeued = plugin.requeue_all(QUEUE, "n")
    found = [await anext(requeued) for _ in range(60)]
    assert (await plugin.stats(QUEUE, "n"))["dead"] == 20
    found += await plugin.requeue(QUEUE, "n")
    assert found == [*names[:60], *names[100:]]
    assert await plugin.requeue(QUEUE, "n") == []


async def test_a_worker_gets_only_the_items_that_its_selector_wants(
    bob: ClientXMPP, service: QueueService
) -> None:
    """With their properties; and a bad selector does not get as far as the service."""
    plugin = XEP_0254.of(bob)
    await plugin.create(QUEUE, "n", {})
    events: asyncio.Queue[Event] = asyncio.Queue()
    plugin.add_listener(QUEUE, "n", events.put_nowait)
    with pytest.raises(InvalidArgument, match=r"selector must be .* character 15"):
        await plugin.subscribe(QUEUE, "n", queue_requests=5, selector="color = 'red' &")
    await plugin.subscribe(
        QUEUE, "n", queue_requests=5, selector="color = 'red' AND n > 5"
    )
    red: dict[str, str | int] = {"color": "red", "n": 7}
    await plugin.publish(
        QUEUE,
        "n",
        [
            NewItem("<a xmlns='u:a'/>", "small", properties={"color": "red", "n": 5}),
            NewItem("<a xmlns='u:a'/>", "none"),
            NewItem("<a xmlns='u:a'/>", "this", properties=red),
        ],
    )
    item = await delivered(events)
    assert (item.item_id, item.properties) == ("this", red)
    assert (await plugin.stats(QUEUE, "n"))["unmatched"] == 2
    browsed = (await plugin.items(QUEUE, "n")).items
    assert {each.item_id: each.properties for each in browsed}["this"] == red
    await plugin.subscribe(QUEUE, "n", queue_requests=5)
    # The one that it holds is sent again.
    given = {(await delivered(events)).item_id for _ in range(3)}
    assert given == {"this", "small", "none"}


async def test_a_service_without_selectors_is_noticed(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """It leaves out the option, and would send everything."""
    plugin = XEP_0254.of(bob)
    asking = asyncio.create_task(
        plugin.subscribe(QUEUE, "n", queue_requests=5, selector="n > 5")
    )
    subscribe = await scripted.expect(stanza("iq"))
    assert "queue#selector" in ET.tostring(subscribe, encoding="unicode")
    subscription = (
        "<pubsub xmlns='http://jabber.org/protocol/pubsub'><subscription node='n'"
        " jid='bob@localhost/1' subscription='subscribed'/></pubsub>"
    )
    await scripted.send(answer(subscribe, subscription))
    unsubscribe = await scripted.expect(stanza("iq"))
    assert "unsubscribe" in ET.tostring(unsubscribe, encoding="unicode")
    await scripted.send(answer(unsubscribe))
    with pytest.raises(RequestRefused, match="the service has no selectors") as caught:
        await asking
    assert (caught.value.condition, caught.value.type) == (
        "feature-not-implemented",
        "cancel",
    )


async def delivered(events: asyncio.Queue[Event]) -> DeliveredItem:
    async with limit():
        while True:
            got = await events.get()
            if got.items:
                return got.items[0]


def assert_dead(item: BrowsedItem) -> None:
    assert (item.item_id, item.state, item.priority) == ("i", "dead", 7)
    assert item.payload == "<a xmlns='u:a'/>"
    assert item.publisher == "bob@localhost"
    assert item.delivery_count == 1
    assert item.published_at is not None
    assert item.reason.startswith("rejected")
    assert "good" in item.reason
    (failure,) = item.history
    assert failure.by == "bob@localhost/1"
    assert failure.at >= item.published_at


@pytest.mark.parametrize(
    "outcome", [ItemOutcome.RELEASED, ItemOutcome.MODIFIED], ids=lambda each: each.value
)
async def test_an_unlocked_item_is_available_again_and_counts_if_it_failed(
    bob: ClientXMPP, service: QueueService, outcome: ItemOutcome
) -> None:
    """The two ways to give an item back differ only in the count."""
    plugin = XEP_0254.of(bob)
    await plugin.create(QUEUE, "n", {"queue#backoff": "0"})
    events: asyncio.Queue[Event] = asyncio.Queue()
    plugin.add_listener(QUEUE, "n", events.put_nowait)
    await plugin.subscribe(QUEUE, "n", queue_requests=1)
    await plugin.publish(QUEUE, "n", [NewItem(item_id="i")])
    first = await delivered(events)
    await plugin.unlock(
        QUEUE, "n", "i", first.token, outcome=outcome, delivery_failed=True
    )
    second = await delivered(events)
    assert second.token != first.token
    assert second.delivery_count == (outcome is ItemOutcome.MODIFIED)
    assert (first.first_acquirer, second.first_acquirer) == (True, False)


async def test_accepting_is_no_unlock(bob: ClientXMPP) -> None:
    """An unlock would release the item, and it would come again."""
    with pytest.raises(LocalProtocolError, match="accepted"):
        await XEP_0254.of(bob).unlock(QUEUE, "n", "i", outcome=ItemOutcome.ACCEPTED)


async def test_a_component_can_ask_and_listen_too(
    server: LoopbackServer, service: QueueService
) -> None:
    """Publishers and workers at the side of a server are components."""
    component = component_of(server, OTHER)
    component.register_plugin("xep_0254")
    try:
        component.connect()
        await component.wait_until("session_start", timeout=LIMIT_S)
        plugin = XEP_0254.of(component)
        await plugin.create(QUEUE, "n")
        events: asyncio.Queue[Event] = asyncio.Queue()
        plugin.add_listener(QUEUE, "n", events.put_nowait)
        await plugin.subscribe(QUEUE, "n", queue_requests=1)
        await plugin.publish(QUEUE, "n", [NewItem("<a/>", "i")])
        item = await delivered(events)
        assert item.payload == "<a xmlns=''/>"
        await plugin.retract(QUEUE, "n", "i", item.token)
    finally:
        await close(component)


# -- the plugin ------------------------------------------------------------


@pytest.mark.parametrize("option", ["timeout_s", "retry_s", "stanza_bytes_max"])
async def test_a_bad_option_is_refused(option: str) -> None:
    """Otherwise each request would fail for an unknown reason."""
    client = ClientXMPP("bob@localhost/1", "secret")
    try:
        with pytest.raises(ValueError, match=option):
            client.register_plugin("xep_0254", {option: 0})
        assert "xep_0254" not in client.plugin
    finally:
        await close(client)


async def test_a_service_that_is_no_jid_is_the_callers_mistake(
    bob: ClientXMPP,
) -> None:
    """It could never answer."""
    for wrong in ("", "@", "a@b@c/"):
        with pytest.raises(LocalProtocolError):
            await XEP_0254.of(bob).delete(wrong, "n")


async def test_when_the_plugin_is_disabled_who_waits_hears_of_it(
    bob: ClientXMPP, scripted: RawComponent
) -> None:
    """Nothing may stay on the stream, which belongs to the application."""
    plugin = XEP_0254.of(bob)
    waiting = asyncio.create_task(plugin.delete(QUEUE, "n"))
    await scripted.expect(stanza("iq", type="set"))
    bob.plugin.disable("xep_0254")  # type: ignore[attr-defined]  # slixmpp's lack
    with pytest.raises(RequestFailed):
        await waiting
    await in_step(bob, scripted)


async def test_a_worker_that_has_answered_a_ping_leaves_nothing_in_memory(
    service: QueueService, bob: ClientXMPP
) -> None:
    """A session may last for months, and workers are pinged after each restart."""
    service._events.probe(bob.boundjid.full)
    assert service._events._probes
    await until(lambda: not service._events._probes)


async def test_a_service_that_cannot_have_its_messages_leaves_its_queues_closed(
    server: LoopbackServer, tmp_path: Path
) -> None:
    """Another attempt in the same process succeeds when the cause is gone."""
    url = f"sqlite:{tmp_path}/queues.db"
    holder = store_from_url(f"{url}-messages")
    holder.open()
    component = component_of(server, QUEUE)
    tasks = asyncio.all_tasks()
    with pytest.raises(StoreInUse, match="-messages"):
        QueueService(component, url)
    await asyncio.gather(*(asyncio.all_tasks() - tasks))
    await holder.close()
    service = QueueService(component, url)
    await service.aclose()
    await close(component)
