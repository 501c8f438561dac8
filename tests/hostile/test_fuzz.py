"""Whatever bytes a peer writes: no traceback, one answer to each iq, no growth.

`make fuzz EXAMPLES=n` tries any number of lists; here are a few. A list of stanzas that
has failed once stays as an example.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grammar import CONTENTS, QUEUE_REQUESTS, REQUESTS, Asked, Grammar, Written
from qos.core.queue.bounds import QueueBounds
from qos.errors import QosError
from siege import QUEUES, Siege, besieged_device, besieged_service, size_of
from xep_0254 import XEP_0254, NewItem
from xep_qos import XEP_QOS

#: Lists of stanzas, each for an endpoint that has just started.
EXAMPLES = int(os.environ.get("EXAMPLES", "15"))

#: Each number is a stanza, so that hypothesis can leave out harmless ones.
SEEDS = st.lists(st.integers(0, 2**32), min_size=1, max_size=60)

#: The places where the bytes are divided between two reads.
CUTS = st.lists(st.integers(0, 2**16), max_size=8)

FUZZ = settings(
    max_examples=EXAMPLES,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


def check(siege: Siege, stanzas: list[Written]) -> None:
    """Check everything that must hold after any stanzas."""
    assert not siege.errors
    assert siege.is_up
    asked = [each.asked for each in stanzas if each.asked]
    answers = siege.answers()
    for each in asked:
        assert answers.count(each) == asked.count(each), each
    assert all(count == 1 for count in siege.reported.values()), siege.reported


@FUZZ
@given(seeds=SEEDS, cuts=CUTS)
async def test_no_stanza_of_a_peer_harms_a_device(
    seeds: list[int], cuts: list[int]
) -> None:
    """Requests, batches, answers, events of queues and of logs, presence."""
    options = {"trust": "anyone", "quota_messages": 5, "event_interval_s": 3600.0}
    async with besieged_device(**options) as siege:
        qos = XEP_QOS.of(siege.xmpp)
        for number in range(2):
            message = siege.xmpp.make_message("alice@localhost/a", str(number))
            await qos.submit(message)
        await siege.settle()
        pending = [xml.get("id", "") for xml in siege.written]
        grammar = Grammar(siege.jid, pending=pending)
        stanzas = [grammar.stanza(seed) for seed in seeds]
        await siege.endure(stanzas, cuts)
        check(siege, stanzas)


@FUZZ
@given(seeds=SEEDS, cuts=CUTS)
async def test_no_stanza_of_a_peer_harms_a_queue_service(
    tmp_path_factory: pytest.TempPathFactory, seeds: list[int], cuts: list[int]
) -> None:
    """Each request of XEP-0254, in an iq and in a message."""
    folder = tmp_path_factory.mktemp("queues")
    async with besieged_service(folder) as siege:
        grammar = Grammar(
            QUEUES,
            namespace="jabber:component:accept",
            requests=(*QUEUE_REQUESTS, "assured", "acknowledged", "deliver", "batch"),
            answers_all=True,
        )
        stanzas = [_create(), *[grammar.stanza(seed) for seed in seeds]]
        await siege.endure(stanzas, cuts)
        check(siege, stanzas)


SERVICE = "alice@localhost/a"


@FUZZ
@given(seeds=SEEDS, cuts=CUTS)
async def test_no_answer_of_a_service_harms_who_asks_it(
    seeds: list[int], cuts: list[int]
) -> None:
    """Its answers about queues, and its events.

    The caller gets a result, or a QosError.
    """
    async with besieged_device() as siege:
        queues = XEP_0254.of(siege.xmpp)
        queues.add_listener(SERVICE, "jobs", lambda _event: None)
        asking = [asyncio.ensure_future(each) for each in questions(queues)]
        await asyncio.sleep(0)
        await siege.settle()
        pending = [
            xml.get("id", "")
            for xml in siege.written
            if xml.get("type") in {"get", "set"}
        ]
        assert len(pending) == len(asking)
        grammar = Grammar(siege.jid, sources=[SERVICE], pending=pending)
        stanzas = [
            grammar.stanza(seed, "message", "event")
            if seed % 3 == 0
            else grammar.stanza(seed, "answer", ("pubsub", "query", "error")[seed % 3])
            for seed in seeds
        ]
        await siege.endure(stanzas, cuts)
        check(siege, stanzas)
        for each in asking:
            each.cancel()
        for result in await asyncio.gather(*asking, return_exceptions=True):
            if isinstance(result, Exception):
                assert isinstance(result, QosError), repr(result)


def questions(queues: XEP_0254) -> list[Coroutine[Any, Any, object]]:
    """One of each kind whose answer is read in its own way."""
    here = (SERVICE, "jobs")
    return [
        queues.create(SERVICE),
        queues.configuration(*here),
        queues.affiliations(*here),
        queues.supports_queueing(SERVICE),
        queues.stats(*here),
        queues.publish(*here, [NewItem("<x/>")], attempts=1),
        queues.items(*here),
        queues.subscribe(*here, queue_requests=3),
        queues.requeue(*here),
    ]


def _create() -> Written:
    """Create a node that is open to everybody."""
    asked = Asked("alice@localhost/a", "create")
    text = (
        f"<iq type='set' id='{asked.iq_id}' from='{asked.source}' to='{QUEUES}'>"
        "<pubsub xmlns='http://jabber.org/protocol/pubsub'><create node='jobs'/>"
        "<configure><x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>"
        "<value>http://jabber.org/protocol/pubsub#node_config</value></field>"
        "<field var='pubsub#access_model'><value>open</value></field>"
        "<field var='pubsub#publish_model'><value>open</value></field>"
        "</x></configure></pubsub></iq>"
    )
    return Written(text.encode(), asked)


# -- floods -----------------------------------------------------------------


@pytest.mark.parametrize("ids", ["one id", "ids of their own"])
async def test_each_of_a_thousand_requests_at_once_is_answered_once(
    tmp_path: Path, ids: str
) -> None:
    """RFC 6120 §8.2.3; even those that wait for one write, or for one hand-over."""
    options = {"trust": "anyone", "quota_messages": 5_000}
    async with besieged_device(store=f"sqlite:{tmp_path}/bob.db", **options) as siege:
        message = "<message xmlns='jabber:client'><body>x</body></message>"
        for kind in ("assured", "deliver", "acknowledged"):
            content = "" if kind == "deliver" else message
            stanzas = []
            for number in range(1_000):
                iq_id = kind if ids == "one id" else f"{kind}{number}"
                asked = Asked("alice@localhost/a", iq_id)
                text = (
                    f"<iq type='set' id='{iq_id}' from='{asked.source}' "
                    f"to='{siege.jid}'>"
                    f"<{kind} xmlns='urn:xmpp:qos' msgId='1'>{content}</{kind}></iq>"
                )
                stanzas.append(Written(text.encode(), asked))
            await siege.endure(stanzas)
            check(siege, stanzas)


# -- growth -----------------------------------------------------------------

#: In these tests every table with a numeric limit has room for this many entries.
ROOM = 20

#: Constants of the code that are such limits; options are set below.
BOUNDS = (
    *("qos.core.rate.SOURCES_MAX", "xep_qos.guard._ROOMS_MAX"),
    *("xep_qos.discovery._PRESENT_MAX", "qos.engine.queue_outputs._SENT_MAX"),
    *("xep_qos.discovery._STRANGERS_MAX", "xep_qos.features._PEERS_MAX"),
    *("xep_qos.features._QUESTIONS_MAX", "xep_qos.endpoint._ANSWERS_MAX"),
    *("xep_qos.roster._ODD_MAX", "xep_qos.discovery._RESOURCES_MAX"),
    *("qos.stream.presences._ENTRIES_MAX", "qos.stream.caps._ADDRESSED_MAX"),
    *("xep_qos.feed._SAID_MAX", "xep_qos.feed._CHARS_MAX"),
    *("qos.engine.clock._OUTDATED_MAX", "qos.core.queue.presence._RESOURCES_MAX"),
    "qos.core.connection_shares._REMEMBERED_MAX",
    *("qos.core.payers._REMEMBERED_MAX", "qos.stream.refusals._READABLE_MAX"),
    "qos.core.stanza_sizes._ON_WAY_MAX",
)

#: For each kind: first this many, to fill limited tables; then the others, after which
#: all tables together have at most a few entries more.
FILL, STANZAS = 80, 150
GROWTH_MAX = ROOM + 10


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits, so that tables reach them soon."""
    for name in BOUNDS:
        monkeypatch.setattr(name, ROOM)
    bounds: dict[str, Any]
    bounds = dict.fromkeys(inspect.signature(QueueBounds).parameters, ROOM)
    del bounds["own_domains"]
    monkeypatch.setattr("xep_0254.service.QueueBounds", partial(QueueBounds, **bounds))


async def check_growth(
    siege: Siege, write: Callable[[int], Iterable[bytes]], what: object
) -> None:
    """Check that memory does not grow, whatever is written for these numbers."""
    sizes = []
    for numbers in (range(FILL), range(FILL, FILL + STANZAS)):
        for number in numbers:
            for data in write(number):
                siege.send(data)
        await siege.settle()
        siege.written.clear()
        sizes.append(size_of(siege.roots))
    assert sizes[1] - sizes[0] < GROWTH_MAX, what


async def check_growth_of_each(
    siege: Siege, requests: Sequence[str], namespace: str
) -> None:
    """For each kind of stanza, with a new sender and new names each time."""
    contents = {"iq": requests, **CONTENTS}
    kinds = {(kind, about) for kind, some in contents.items() for about in some}

    def stanza(kind: str, about: str, number: int) -> Iterable[bytes]:
        name = f"{kind}-{about}-{number}"
        source = f"{name}@localhost/{name}"
        grammar = Grammar(siege.jid, namespace=namespace, sources=[source], names=name)
        yield grammar.stanza(number, kind, about).data

    for each in sorted(kinds):
        await check_growth(siege, partial(stanza, *each), each)
    assert not siege.errors


async def test_no_table_of_a_device_grows_with_what_strangers_send(
    narrow: None,
) -> None:
    """Names cost an attacker nothing: each table has a limit, and reaches it."""
    options = {
        "trust": "anyone",
        "quota_messages": 3,
        "quota_total_messages": ROOM,
        "tombstones_max": ROOM,
    }
    async with besieged_device(**options) as siege:
        await check_growth(siege, lambda number: exchange(siege, number), "exchange")
        await check_growth_of_each(siege, REQUESTS, "jabber:client")


async def test_no_table_of_a_queue_service_grows_with_what_strangers_send(
    narrow: None, tmp_path: Path
) -> None:
    """Nor with nodes, items and subscriptions, which have limits of their own."""
    async with besieged_service(tmp_path) as siege:
        await check_growth_of_each(siege, QUEUE_REQUESTS, "jabber:component:accept")


def exchange(siege: Siege, number: int) -> Iterable[bytes]:
    """A correct message, from its offer to its release."""
    message = "<message xmlns='jabber:client'><body>x</body></message>"
    for kind, content in (("assured", message), ("deliver", "")):
        yield (
            f"<iq type='set' id='{kind}{number}' from='e{number}@x/1' to='{siege.jid}'>"
            f"<{kind} xmlns='urn:xmpp:qos' msgId='{number}'>{content}</{kind}></iq>"
        ).encode()


# -- what is no XML ---------------------------------------------------------

BROKEN = (
    b"\xff\xfe",
    b"<iq",
    b"<iq></message>",
    b"<iq a='1' a='2'/>",
    b"<p:iq/>",
    b"<iq>&nbsp;</iq>",
    b"<!DOCTYPE x [<!ENTITY a 'a'>]>",
    b"]]></stream:stream></stream:stream>",
    b"<iq id='\x00'/>",
    b"<stream:error><nonsense/></stream:error>",
)


async def test_bytes_that_are_no_stanza_end_the_stream_and_nothing_else() -> None:
    """The endpoint returns, with the messages that it holds, and answers as before."""
    async with besieged_device(trust="anyone") as siege:
        for number, data in enumerate(BROKEN):
            first, last = exchange(siege, number)
            siege.send(first)
            await siege.settle()
            siege.send(data + b"<iq/>" * 100)
            await siege.come_back()
            siege.written.clear()
            siege.send(last)
            await siege.settle()
            assert siege.answers()
        # By slixmpp, in one line.
        said = {problem.msg for problem in siege.errors}
        assert said <= {"Parse error: %r"}
