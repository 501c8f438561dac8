"""`xmpp-qos bridge` between the queue service and a real RabbitMQ."""

import asyncio
import random
import shutil
import signal
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from proton import Delivery, Event, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from amqp_bench import gateway
from bridge_bench import Bridges, Rabbit, bridges
from journals import read_journal
from qos.core.queue.requests import Publish, PublishedItem
from qos.ids import new_id
from qos.testing.ports import free_ports
from waiting import limit
from worker_setup import NODE, QUEUE
from xep_0254 import NewItem

pytestmark = [pytest.mark.xdist_group("rabbitmq"), pytest.mark.timeout(300)]

FROM, TO = "--from-broker", "--to-broker"
#: Of a bridge that is started in place of one that was killed; see docs/amqp.md.
SAME = ("--jid", "owner@localhost/bridge")
MESSAGES = 1200
KILLS = 5

WRONG, SECRET = "wrong", "secret"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rabbit(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rabbit]:
    """For all tests: it takes seconds to start."""
    rabbit = Rabbit(tmp_path_factory.mktemp("rabbitmq"))
    try:
        await rabbit.start()
        yield rabbit
    finally:
        await rabbit.stop()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bridges]:
    async with bridges(tmp_path) as running:
        yield running


@pytest.fixture
def address() -> str:
    """A queue of the broker that no other test uses."""
    return f"q-{new_id()}"


def numbered(count: int) -> list[Message]:
    return [Message(id=f"m{n}", body=f"text {n}", durable=True) for n in range(count)]


def body_of(message: Message) -> bytes:
    """The content of one data section."""
    return bytes(memoryview(message.body))  # type: ignore[arg-type]  # it is one


async def test_messages_become_items_in_their_order(
    rabbit: Rabbit, bench: Bridges, address: str
) -> None:
    messages = numbered(MESSAGES)
    xml = b"<order xmlns='shop'>1</order>"
    messages[0] = Message(id=7, body=xml, priority=8, inferred=True)
    await rabbit.publish(address, messages)
    bridge = await bench.carry(FROM, rabbit.url(address), available=MESSAGES)
    assert f"carried {MESSAGES}, refused 0" in bridge.said
    items = [each async for each in bench.queue.owner.browse(QUEUE, NODE)]
    names = [f"string:m{n}" for n in range(1, MESSAGES)]
    assert [each.item_id for each in items] == ["ulong:7", *names]
    assert items[0].priority == 8
    assert "<order xmlns='shop'>1</order>" in items[0].payload.replace('"', "'")
    assert "<body>text 1</body>" in items[1].payload
    assert await rabbit.take(address) == []


async def test_a_bridge_that_has_drained_ends(
    rabbit: Rabbit, bench: Bridges, address: str
) -> None:
    """If nothing has come for so long; if more comes later, it is there for another one."""
    url, drain = rabbit.url(address), ("--drain", "0.5")
    await rabbit.publish(address, numbered(3))
    while len(await bench.ids()) < 3:
        await bench.run(FROM, url, *drain)
    while (await bench.queue.stats())["accepted"] != 3:
        await bench.run(TO, url, *drain)
    ended = [await bench.run(each, rabbit.url("empty"), *drain) for each in (FROM, TO)]
    assert not any("carried" in each.said for each in ended)
    assert len(await rabbit.take(address)) == 3


async def test_what_was_published_twice_is_one_item(
    rabbit: Rabbit, bench: Bridges, address: str
) -> None:
    """The id is taken from the message; another message may not have it."""
    twice = [Message(id="m", body="same"), Message(id="m", body="same")]
    await rabbit.publish(address, [*twice, Message(id="m", body="other")])
    await rabbit.publish(address, [Message(body="a"), Message(body="a")])
    refused = "a message is rejected: amqp:precondition-failed"
    bridge = await bench.carry(FROM, rabbit.url(address), notes=[refused], available=3)
    assert "carried 4, refused 1" in bridge.said
    assert bridge.said.count("without a message-id") == 1
    ids = await bench.ids()
    assert ids.count("string:m") == 1
    assert len(set(ids)) == 3


async def test_a_message_is_as_large_as_an_item_can_be(
    rabbit: Rabbit, bench: Bridges, address: str
) -> None:
    """It comes in several frames; a larger one is rejected, and the next one is taken."""
    sizes = {"large": 140_000, "too": 400_000, "above": 153_000, "small": 10}
    messages = [Message(id=each, body="x" * size) for each, size in sizes.items()]
    await rabbit.publish(address, messages)
    too_large = "amqp:link:message-size-exceeded"
    bridge = await bench.carry(
        FROM, rabbit.url(address), notes=[too_large, too_large], available=2
    )
    assert "carried 2, refused 2" in bridge.said
    assert bridge.said.count(too_large) == 2
    assert await bench.ids() == ["string:large", "string:small"]
    await bench.carry(TO, rabbit.url(f"{address}-back"), accepted=2)
    found = {each.id: each.body for each in await rabbit.take(f"{address}-back")}
    assert found == {"large": "x" * 140_000, "small": "x" * 10}


async def test_a_bridge_to_a_broker_keeps_the_journal_of_a_worker(
    rabbit: Rabbit, bench: Bridges, address: str, tmp_path: Path
) -> None:
    """So an audit joins it with that of the queue service, item by item."""
    await bench.queue.publish("a", "b")
    folder = tmp_path / "journal"
    url = rabbit.url(address)
    await bench.carry(TO, url, "--journal", folder, accepted=2)
    once = Counter({"a": 1, "b": 1})
    assert jobs(folder) == {"started": once, "accepted": once}
    other = await bench.run(FROM, url, "--journal", folder, status=2)
    assert "--journal is for --to-broker" in other.said


def jobs(folder: Path) -> dict[str, Counter[str]]:
    """How often each event of a worker is in a journal, by item."""
    found: dict[str, Counter[str]] = {}
    for line in read_journal(folder, hidden=True):
        assert line["role"] == "worker"
        found.setdefault(line["event"], Counter())[line["item"]] += 1
    return found


async def test_items_become_durable_messages(
    rabbit: Rabbit, bench: Bridges, address: str
) -> None:
    """Of XMPP, and what has come by AMQP as it was."""
    there, back = f"{address}-there", f"{address}-back"
    original = Message(id="m", body={"n": 1}, subject="s", properties={"k": "v"})
    await rabbit.publish(there, [original])
    await bench.carry(FROM, rabbit.url(there), available=1)
    (item,) = [each async for each in bench.queue.owner.browse(QUEUE, NODE)]
    assert item.properties == {"k": "v", "JMSType": "s"}
    new = NewItem(
        "<order xmlns='shop'>7</order>", "i", priority=9, ttl=600, properties={"n": 1}
    )
    await bench.queue.owner.publish(QUEUE, NODE, [new])
    bridge = await bench.carry(TO, rabbit.url(back), accepted=2)
    assert "carried 2, refused 0" in bridge.said
    await bench.queue.until(available=0, acquired=0, dead=0)
    found = {each.id: each for each in await rabbit.take(back)}
    assert found.keys() == {"m", "i"}
    assert all(each.durable for each in found.values())
    assert (found["m"].body, found["m"].subject) == ({"n": 1}, "s")
    assert found["m"].properties == {"k": "v"}
    xml = found["i"]
    assert body_of(xml) == b"<order xmlns='shop'>7</order>"
    assert (xml.priority, xml.content_type) == (9, "application/xml")
    assert xml.properties == {"n": 1}
    assert 0 < xml.ttl <= 600


async def kill_on_the_way(
    bench: Bridges, direction: str, url: str, counted: str, *words: str
) -> None:
    """Start bridges, and kill each soon after it has carried something.

    The queue is served by this process: if it is stopped, no bridge carries anything.
    """
    rng = random.Random(11)
    kills = before = 0

    async def count() -> int:
        return int((await bench.queue.owner.stats(QUEUE, NODE))[counted] or 0)

    for _ in range(KILLS):
        bridge = await bench.start(direction, url, *words)
        async with limit():
            while await count() == before < MESSAGES:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.005)
        await asyncio.sleep(rng.uniform(0.0, 0.05))
        await bridge.kill()
        before = await count()
        kills += before < MESSAGES
    assert kills, "no kill came while messages were carried"


@pytest.mark.long
@pytest.mark.crash
async def test_killed_bridges_put_each_message_into_the_queue_once(
    rabbit: Rabbit, bench: Bridges, address: str
) -> None:
    await rabbit.publish(address, numbered(MESSAGES))
    await kill_on_the_way(bench, FROM, rabbit.url(address), "available")
    await bench.carry(FROM, rabbit.url(address), available=MESSAGES)
    assert sorted(await bench.ids()) == sorted(f"string:m{n}" for n in range(MESSAGES))
    assert await rabbit.take(address) == []


@pytest.mark.long
@pytest.mark.crash
async def test_killed_bridges_lose_no_item_and_repeat_its_message_id(
    rabbit: Rabbit, bench: Bridges, address: str
) -> None:
    """A repeated message has the same id, so a consumer that has seen it can drop it.

    The next bridge has the same resource: nobody waits for the locks of the dead one.
    """
    names = [f"i{n}" for n in range(MESSAGES)]
    for start in range(0, MESSAGES, 100):
        await bench.queue.publish(*names[start : start + 100])
    await kill_on_the_way(bench, TO, rabbit.url(address), "accepted", *SAME)
    await bench.carry(TO, rabbit.url(address), *SAME, accepted=MESSAGES)
    await bench.queue.until(available=0, acquired=0, delayed=0, dead=0)
    found = Counter((each.id, body_of(each)) for each in await rabbit.take(address))
    # The body belongs to the id.
    assert sorted(str(name) for name, _ in found) == sorted(names)


@pytest.mark.long
async def test_a_lost_broker_is_found_again(
    bench: Bridges, address: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Durable messages are there after its crash, and items wait meanwhile."""
    rabbit = Rabbit(tmp_path_factory.mktemp("mortal"))
    try:
        await rabbit.start()
        await lose_and_find(rabbit, bench, address)
    finally:
        await rabbit.stop()


async def lose_and_find(rabbit: Rabbit, bench: Bridges, address: str) -> None:
    bridge = await bench.start(TO, rabbit.url(address))
    await bridge.note("ready")
    await bench.queue.publish("before")
    await bench.queue.until(available=0, acquired=0)
    await rabbit.stop()
    await bridge.note("again in")
    await bench.queue.publish("meanwhile")
    await rabbit.start()
    await bridge.note("attached again")
    await bench.queue.until(available=0, acquired=0)
    bridge.process.send_signal(signal.SIGTERM)
    assert await bridge.end() == 0
    assert "carried 2, refused 0" in bridge.said
    assert {each.id for each in await rabbit.take(address)} == {"before", "meanwhile"}


async def test_a_lost_queue_service_is_found_again(
    rabbit: Rabbit, bench: Bridges, address: str
) -> None:
    bridge = await bench.start(FROM, rabbit.url(address))
    await bridge.note("ready")
    await bench.queue.stop()
    await rabbit.publish(address, numbered(3))
    await bridge.note("not published")
    await bench.queue.start()
    await bench.queue.until(available=3)
    bridge.process.send_signal(signal.SIGTERM)
    assert await bridge.end() == 0
    assert await rabbit.take(address) == []


@pytest.mark.crash
async def test_what_is_not_in_the_queue_stays_at_the_broker(
    rabbit: Rabbit, bench: Bridges, address: str
) -> None:
    """Killed while the service is away: nothing was accepted too early."""
    bridge = await bench.start(FROM, rabbit.url(address))
    await bridge.note("ready")
    await bench.queue.stop()
    await rabbit.publish(address, numbered(300))
    await bridge.note("not published")
    await bridge.kill()
    await bench.queue.start()
    await bench.carry(FROM, rabbit.url(address), available=300)
    assert sorted(await bench.ids()) == sorted(f"string:m{n}" for n in range(300))


# -- other brokers ---------------------------------------------------------


class Moody(MessagingHandler):
    """A broker that takes a message at the third time; for one connection.

    Attributes:
        seen: each delivery: the id, and its delivery-count.
    """

    def __init__(self, port: int) -> None:
        super().__init__(auto_accept=False)
        self.seen: list[tuple[object, int]] = []
        self._port = port

    def on_start(self, event: Event) -> None:
        self._acceptor = event.container.listen(f"127.0.0.1:{self._port}")

    def on_connection_opening(self, event: Event) -> None:
        self._acceptor.close()

    def on_message(self, event: Event) -> None:
        assert event.delivery is not None
        self.seen.append((event.message.id, event.message.delivery_count))
        if len(self.seen) == 1:
            self.release(event.delivery, delivered=False)
        elif len(self.seen) == 2:
            event.delivery.local.failed = True
            event.delivery.update(Delivery.MODIFIED)
            event.delivery.settle()
        else:
            self.accept(event.delivery)


async def test_released_and_modified_are_passed_on(bench: Bridges) -> None:
    """The item comes again, and fails once."""
    (port,) = free_ports(1)
    broker = Moody(port)
    serving = asyncio.create_task(asyncio.to_thread(Container(broker).run))
    await bench.queue.publish("i")
    bridge = await bench.carry(TO, f"amqp://127.0.0.1:{port}/orders", accepted=1)
    await serving
    assert "carried 1, refused 0" in bridge.said
    assert broker.seen == [("i", 0)] * 3
    await bench.queue.until(available=0, acquired=0, dead=0, accepted=1)


@pytest.mark.long
async def test_a_ring_of_bridges_has_an_end(
    rabbit: Rabbit, bench: Bridges, address: str
) -> None:
    """Each round is counted, and after so many the item is dead with the reason."""
    url = rabbit.url(address)
    await bench.queue.publish("i")
    await bench.carry(TO, url, accepted=1)
    await bench.carry(FROM, url, available=1)
    (item,) = [each async for each in bench.queue.owner.browse(QUEUE, NODE)]
    assert (item.item_id, item.properties) == ("string:i", {"qos_hops": 1})
    await bench.carry(TO, url, accepted=2)
    (message,) = await rabbit.take(address)
    assert message.annotations is not None
    assert message.annotations["x-opt-qos-hops"] == 2
    last = NewItem("<a xmlns='b'/>", item_id="last", properties={"qos_hops": 16})
    await bench.queue.owner.publish(QUEUE, NODE, [last])
    bridge = await bench.carry(TO, url, dead=1)
    assert "carried 0, refused 1" in bridge.said
    (reason,) = await bench.queue.reasons()
    assert "forwarded 16 times" in reason
    assert await rabbit.take(address) == []


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Of 127.0.0.1, signed by itself, and its key."""
    openssl = shutil.which("openssl")
    assert openssl is not None
    paths = tmp_path / "cert.pem", tmp_path / "key.pem"
    new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost")
    words = ("-addext", "subjectAltName=IP:127.0.0.1", "-out", paths[0])
    command = (openssl, *new, *words, "-keyout", paths[1])
    subprocess.run(command, check=True, capture_output=True)
    return paths


@pytest.mark.long
async def test_what_the_broker_rejects_is_dead_with_its_reason(
    bench: Bridges, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    """Through TLS, with our own gateway as the broker."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    (tmp_path / "other").mkdir()
    async with gateway(tmp_path / "other", tls=context) as other:
        await other.create("orders")
        url = f"amqps://alice@127.0.0.1:{other.port}/orders"
        words = ("--broker-ca-file", certificate[0])
        await bench.queue.publish("i")
        await bench.carry(TO, url, *words, password=SECRET, accepted=1)
        assert list(await other.items("orders")) == ["string:i"]
        # This id belongs to another message there.
        taken = PublishedItem(item_id="string:k", payload="<x/>", digest="", size=4)
        await other.ask(Publish("orders", (taken,)))
        await bench.queue.publish("k")
        bridge = await bench.carry(TO, url, *words, password=SECRET, dead=1)
        assert "carried 0, refused 1" in bridge.said
        (reason,) = await bench.queue.reasons()
        assert "amqp:precondition-failed" in reason
        # Without the authority.
        bridge = await bench.run(TO, url, status=4, password=SECRET)
        assert "certificate" in bridge.said
        assert "Traceback" not in bridge.said
        missing = ("--broker-ca-file", tmp_path / "none")
        bridge = await bench.run(TO, url, *missing, status=2)
        assert f"--broker-ca-file {tmp_path / 'none'}: " in bridge.said


# -- what goes wrong at the start ------------------------------------------


async def test_a_wrong_url_is_named(bench: Bridges) -> None:
    for url, says in (
        ("http://127.0.0.1/orders", "is not amqp://USER@HOST:PORT/ADDRESS"),
        ("amqp://127.0.0.1:70000/orders", "Port out of range"),
        ("amqp://127.0.0.1", "it names no address"),
        ("amqp://127.0.0.1/a?b", "write ? as %3F"),
        ("amqp://broker.example.org/orders", "use amqps://"),
        ("amqp://guest@127.0.0.1/orders", "XMPP_QOS_BROKER_PASSWORD is not set"),
    ):
        bridge = await bench.run(FROM, url, status=2, password=None)
        assert says in bridge.said, url
        assert "Traceback" not in bridge.said, url


@pytest.mark.long
@pytest.mark.parametrize("direction", [FROM, TO])
async def test_a_refusing_broker_ends_the_bridge(
    rabbit: Rabbit, bench: Bridges, direction: str
) -> None:
    wrong = await bench.run(direction, rabbit.url("o"), status=4, password=WRONG)
    assert "amqp:unauthorized-access" in wrong.said
    address = rabbit.url("/exchange/none/key")
    none = await bench.run(direction, address, status=4)
    assert "no exchange 'none'" in none.said
    (port,) = free_ports(1)
    away = f"amqp://guest@127.0.0.1:{port}/o"
    timeout = ("--connect-timeout", "1")
    nobody = await bench.run(direction, away, *timeout, status=4)
    assert "Connection refused" in nobody.said
    for each in (wrong, none, nobody):
        assert "Traceback" not in each.said


@pytest.mark.parametrize("direction", [FROM, TO])
async def test_a_missing_queue_ends_the_bridge(
    rabbit: Rabbit, bench: Bridges, direction: str
) -> None:
    bridge = await bench.run(direction, rabbit.url("o"), node="none", status=1)
    assert "item-not-found" in bridge.said


async def test_a_missing_extra_is_named(bench: Bridges) -> None:
    """As if proton were not installed."""
    hide = "import sys; sys.modules['proton'] = None; from qos.cli import main; "
    program = (sys.executable, "-P", "-c", f"{hide}sys.exit(main())")
    url = "amqp://guest@127.0.0.1/o"
    bridge = await bench.run(FROM, url, status=2, program=program)
    assert "pip install '.[amqp]'" in bridge.said


async def test_a_password_in_the_url_works_but_is_reported(
    rabbit: Rabbit, bench: Bridges, address: str, tmp_path: Path
) -> None:
    url = rabbit.url(address, user="guest:guest")
    bridge = await bench.run(FROM, url, "--drain", "0.5", password=None)
    assert "can be seen by every user" in bridge.said
    file = tmp_path / "password"
    file.write_text("guest\n")
    words = ("--broker-password-file", file, "--drain", "0.5")
    bridge = await bench.run(FROM, rabbit.url(address), *words, password=WRONG)
    assert "can be seen" not in bridge.said
