"""The sinks as a task of Spark uses them, without a JVM: on the embedded server.

With Spark and Prosody: see tests/live/test_spark_queue.py.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    DateType,
    StructField,
    StructType,
)
from slixmpp import Message

from qos.errors import RequestRefused
from qos.spark.formats import QueueFormat, XmppFormat
from qos.spark.identity import Identity
from qos.spark.message_sink import XmppStreamWriter
from qos.spark.options import BadOption
from qos.spark.queue_sink import QueueStreamWriter
from qos.spark.rows import BadColumn, RowFailed, RowIds, new_run
from qos.testing import friends, logged_in
from sink_tasks import (
    NODE,
    SERVICE,
    WHOLE,
    in_task,
    login,
    no_task,
    queue,
    schema,
    shop,
    write,
)
from waiting import until
from xep_0254 import XEP_0254
from xep_qos import XEP_QOS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(60)]


task = pytest.fixture(autouse=True)(no_task)


# -- ids -------------------------------------------------------------------


def ids(contents: Iterable[str], run: str = "r", **task: Any) -> list[str]:
    """Of rows without an identity."""
    in_task(**task)
    made = RowIds(Identity(("body",), True, None, repeats=True), run)
    return [made.of(Row(body=content)) for content in contents]


def test_the_repeat_of_a_task_has_the_same_ids_in_any_order() -> None:
    """A shuffle does not keep an order; equal rows count as often as they occur."""
    rows = ["a", "b", "a", "c", "a"]
    first = ids(rows, query="q", batch=7)
    assert len(set(first)) == 5
    for order in itertools.permutations(rows):
        assert sorted(ids(order, query="q", batch=7, run="other")) == sorted(first)


def test_what_is_not_the_repeat_of_a_task_has_other_ids() -> None:
    """Another batch, query or partition; and another batch write."""
    given: list[dict[str, Any]] = [
        {"query": "q", "batch": 1},
        {"query": "q", "batch": 2},
        {"query": "p", "batch": 1},
        {"query": "q", "batch": 1, "partition": 1},
        {"run": "a"},
        {"run": "b"},
    ]
    found = [ids("abc", **each) for each in given]
    assert len({each for made in found for each in made}) == 3 * len(given)
    assert ids("abc", run="a") == ids("abc", run="a")


@pytest.mark.parametrize("batch", [1, 2])
def test_rows_with_an_identity_have_it_everywhere(batch: int) -> None:
    """In any partition, batch and query: Spark keeps none of their numbers."""
    row = Row(order=7, body="x")
    made = set()
    for partition, query in itertools.product(range(3), ("", "p", "q")):
        in_task(partition, query=query, batch=batch)
        named = RowIds(Identity(("order",), False, None, repeats=False), new_run(None))
        made.add(named.of(row))
        assert named.of(row) == named.of(Row(order=7, body="y"))
    assert len(made) == 1
    other = RowIds(Identity(("order",), False, "2026-11-21", repeats=False), "")
    assert other.of(row) not in made


# -- the queue -------------------------------------------------------------


async def test_a_task_that_is_done_again_publishes_nothing_twice() -> None:
    """After all of its rows, or after some."""
    async with shop() as (server, owner):
        names = ("payload", "priority", "ttl", "delay")
        rows = [
            Row(
                payload=f"<x xmlns='u' n='{n % 300}'/>",
                priority=n % 10,
                ttl=None,
                delay=None,
            )
            for n in range(700)
        ]
        options = queue(server, repeats="allowed")
        writer = QueueStreamWriter(options, schema(*names))
        assert await write(writer, rows[:450]) == 450
        for _ in range(2):
            assert await write(writer, reversed(rows)) == 700
        found = [item async for item in owner.browse(SERVICE, NODE)]
        assert Counter((item.payload, item.priority) for item in found) == Counter(
            (f"<x xmlns='u' n='{n % 300}'/>", n % 10) for n in range(700)
        )
        assert await write(writer, []) == 0


async def test_a_row_names_its_item_if_it_wants_to() -> None:
    """Then the item is published once under this name."""
    async with shop() as (server, owner):
        rows = [Row(payload="<x/>", item_id=name) for name in ("a", "b", "a")]
        writer = QueueStreamWriter(queue(server), schema("payload", "item_id"))
        for batch in (1, 2):
            await write(writer, rows, batch=batch)
        found = [item.item_id async for item in owner.browse(SERVICE, NODE)]
        assert sorted(found) == ["a", "b"]
        unnamed = [*rows, Row(payload="<y/>", item_id=None)]
        with pytest.raises(RowFailed, match=r"row 4 .*: it has no id of its own, and"):
            await write(writer, unnamed)
        writer = QueueStreamWriter(queue(server) | WHOLE, schema("payload", "item_id"))
        for batch in (1, 2):
            await write(writer, unnamed, batch=batch)
        found = [item.item_id async for item in owner.browse(SERVICE, NODE)]
        assert len(found) == 3


#: What is wrong with a row, and what is said of it.
BAD: list[tuple[dict[str, Any], str]] = [
    ({"payload": "<x"}, "must be one XML element"),
    ({"payload": None}, "its payload is null"),
    ({"payload": "<x/>", "priority": 11}, "priority must be a whole number"),
    ({"payload": "<x/>", "priority": 3.7}, "priority must be a whole number"),
    ({"payload": "<x/>", "priority": float("nan")}, "priority must be a whole number"),
    ({"payload": f"<x>{'y' * 300_000}</x>"}, "bytes"),
    ({"payload": "<other/>", "item_id": "taken"}, "conflict"),
]


async def test_a_row_that_is_refused_is_named() -> None:
    """One among many: its number, the partition, and the error of the service."""
    async with shop() as (server, _owner):
        names = ("payload", "item_id", "priority")
        writer = QueueStreamWriter(queue(server) | WHOLE, schema(*names))

        def row(**values: Any) -> Row:
            return Row(**{name: values.get(name) for name in names})

        await write(writer, [row(payload="<x/>", item_id="taken")], batch=0)
        rows = [row(payload=f"<x xmlns='u' n='{n}'/>") for n in range(150)]
        for batch, (bad, said) in enumerate(BAD, 1):
            rows[136] = row(**bad)
            match = f"row 137 of partition 3: .*{said}"
            with pytest.raises(RowFailed, match=match) as seen:
                await write(writer, rows, partition=3, batch=batch)
            assert "\n" not in str(seen.value), said


async def test_a_queue_that_is_full_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until `deadline`: then the task fails, and says so."""
    publish, refused = XEP_0254.publish, 0

    async def counted(*args: Any, **options: Any) -> Any:
        nonlocal refused
        try:
            return await publish(*args, **options)
        except RequestRefused:
            refused += 1
            raise

    monkeypatch.setattr(XEP_0254, "publish", counted)
    async with shop(max_items="3") as (server, owner):
        rows = [Row(payload=f"<x xmlns='u' n='{n}'/>") for n in range(5)]
        hasty = QueueStreamWriter(
            queue(server, deadline="0.2") | WHOLE, schema("payload")
        )
        with pytest.raises(RowFailed, match=r"row \d+ of partition 0.*constraint"):
            await write(hasty, rows)
        patient = QueueStreamWriter(
            queue(server, deadline="3600", run="2") | WHOLE, schema("payload")
        )
        before = refused
        writing = asyncio.create_task(write(patient, rows[:3], batch=2))
        # It is told that there is no room, and asks again.
        await until(lambda: refused > before + 1)
        assert not writing.done()
        await owner.purge(SERVICE, NODE)
        assert await writing == 3


# -- messages --------------------------------------------------------------


async def test_a_row_that_is_sent_again_is_handed_over_once(tmp_path: Path) -> None:
    """From the same store, under the same id."""
    async with (
        friends("boss", "bee") as server,
        logged_in(server, "bee/1") as bee,
    ):
        got: list[str] = []

        def note(message: Message) -> None:
            assert XEP_QOS.of(bee).incoming(message) is not None
            got.append(message["body"])

        bee.add_event_handler("message", note)
        options = login(server) | {"store": str(tmp_path / "store")}
        options["repeats"] = "allowed"
        writer = XmppStreamWriter(options, schema("to", "body"))
        rows = [Row(to="bee@localhost/1", body=f"{n % 40}") for n in range(60)]
        assert await write(writer, rows[:30]) == 30
        assert await write(writer, rows) == 60
        assert await write(writer, reversed(rows)) == 60
        assert Counter(got) == Counter(f"{n % 40}" for n in range(60))
        # Another batch is another message. slixmpp tells of those with a body.
        message = (
            "<message xmlns='jabber:client'><body>b</body><x xmlns='u'/></message>"
        )
        xml = XmppStreamWriter(options, schema("to", "payload"))
        assert await write(xml, [Row(to="bee@localhost", payload=message)]) == 1
        assert await write(writer, rows[:1], batch=2) == 1
        assert len(got) == 62


async def test_a_row_that_is_not_delivered_is_named(tmp_path: Path) -> None:
    """With the outcome: not delivered is certain, in doubt is not."""
    async with friends("boss", "bee") as server:
        options = login(server) | WHOLE | {"store": str(tmp_path), "deadline": "0.5"}
        writer = XmppStreamWriter(options, schema("to", "body"))
        with pytest.raises(RowFailed, match=r"row 1 of partition 2: .*not delivered"):
            await write(writer, [Row(to="bee@localhost/1", body="x")], partition=2)
        for row, said in (
            (Row(to=None, body="x"), "row 1 of partition 0: its to is null"),
            (Row(to="bee@localhost/1", body=None), "its body is null"),
            (Row(to="@", body="x"), "cannot be sent to @"),
        ):
            with pytest.raises(RowFailed, match=said):
                await write(writer, [row])


# -- what is refused before --------------------------------------------------

GOOD = {"jid": "a@localhost", "password": "secret"}
QUEUE = {**GOOD, "service": SERVICE, "node": NODE}


def test_columns_that_cannot_be_written_are_named() -> None:
    """Before any row is written: a silently missing column would not be noticed."""
    sink = QueueFormat(QUEUE | WHOLE)
    for given, said in (
        (schema("item_id"), "there is no column 'payload'"),
        (schema("payload", "payload"), "there are two columns 'payload'"),
        (schema("payload", "publisher"), "column 'publisher' is none of payload,"),
        (
            StructType([StructField("payload", DateType())]),
            "column 'payload' cannot be a date",
        ),
    ):
        for make in (sink.writer, sink.streamWriter):
            with pytest.raises(BadColumn, match=said):
                make(given, False)
    messages = XmppFormat({**GOOD, **WHOLE, "store": "/store"})
    with pytest.raises(BadColumn, match="xmpp: there is no column 'to'"):
        messages.writer(schema("body"), False)
    for names in (("to",), ("to", "payload", "body")):
        with pytest.raises(BadColumn, match="a column 'payload' or a column 'body'"):
            messages.streamWriter(schema(*names), False)


@pytest.mark.parametrize(
    ("form", "options", "said"),
    [
        (QueueFormat, {**QUEUE, "landing": "/x"}, "there is no option 'landing'"),
        (QueueFormat, {**QUEUE, "deadline": "no"}, "option deadline: 'no'"),
        (QueueFormat, GOOD, "option service, node: it is missing"),
        (XmppFormat, GOOD, "option store: it is missing"),
        (XmppFormat, {**GOOD, "store": "/x", "ordered": "1"}, "option ordered"),
        (QueueFormat, QUEUE, "xmpp-queue: option id: it is missing"),
        (XmppFormat, {**GOOD, "store": "/x"}, "xmpp: option id: it is missing"),
        (
            QueueFormat,
            {**QUEUE, "repeats": "no"},
            "option repeats: invalid choice: 'no'",
        ),
        (
            QueueFormat,
            {**QUEUE, "id": "*", "repeats": "allowed"},
            "option repeats: rows with an id are not repeated",
        ),
        (QueueFormat, {**QUEUE, "id": ""}, "option id: '' has an empty name"),
        (QueueFormat, {**QUEUE, "id": "payload,"}, "'payload,' has an empty name"),
        (QueueFormat, {**QUEUE, "id": "*,payload"}, r"has '\*', which is all columns"),
        (QueueFormat, {**QUEUE, "id": "`payload"}, "a backquote is in the wrong place"),
        (QueueFormat, {**QUEUE, "id": "order"}, "no column 'order' among payload"),
        (
            QueueFormat,
            {**QUEUE, "id": "payload,payload"},
            "names column 'payload' twice",
        ),
    ],
)
def test_a_bad_option_of_a_sink_is_one_line(
    form: type[QueueFormat | XmppFormat], options: dict[str, str], said: str
) -> None:
    """As of the source. Spark's own options are none of ours."""
    given = {**options, "checkpointlocation": "/checkpoint"}
    with pytest.raises(BadOption, match=said) as caught:
        form(given).streamWriter(schema("payload"), False)
    assert "secret" not in str(caught.value)
