"""Peers without our code and without slixmpp, for tests of the bytes on the wire.

Helpers first, then the tests of these helpers. A raw peer writes the stanzas of the
proto-XEP by hand; nothing here uses our own code to read or write them.
"""

import asyncio
import contextlib
import copy
import itertools
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

from devices import Device, device
from qos.testing.prosody import MakeProsody, Prosody
from raw_client import RawClient, RawComponent, local, stanza

QOS: Final = "urn:xmpp:qos"
IEEE: Final = "urn:ieee:iot:qos:1.0"
NEURON: Final = "urn:nf:iot:qos:1.0"
ALL_QOS: Final = (QOS, IEEE, NEURON)
MARKS: Final = "xmpp-qos:store:0"
CLIENT: Final = "jabber:client"
STANZAS: Final = "urn:ietf:params:xml:ns:xmpp-stanzas"
EVENT_LOG: Final = "urn:xmpp:eventlog"
DISCO: Final = "http://jabber.org/protocol/disco#info"

HOLD: Final = f"{{{MARKS}}}hold"
SENDER: Final = f"{{{MARKS}}}sender"

#: Texts that no answer and no event may contain.
PRIVATE: Final = "the-private-payload"

RawPeer = RawClient | RawComponent

_ids = itertools.count(1)


# -- what a raw peer sends -------------------------------------------------


def raw(server: Prosody, name: str) -> RawClient:
    """A raw client of `user/resource`; `async with` logs it in."""
    user, _, resource = name.partition("/")
    return RawClient(
        f"{user}@{server.domain}/{resource}",
        server.accounts[user],
        port=server.c2s_port,
    )


def message(body: str, attributes: str = "") -> str:
    """A message to be embedded, with this body."""
    return (
        f"<message xmlns='{CLIENT}' {attributes}><body>{escape(body)}</body></message>"
    )


def assured(
    msg_id: str, body: str = PRIVATE, *, xmlns: str = QOS, mark: str = ""
) -> str:
    """`assured`, with the prefix of the proto-XEP's examples."""
    return (
        f"<qos:assured xmlns:qos='{xmlns}' msgId={quoteattr(msg_id)}{_mark(mark)}>"
        f"{message(body)}</qos:assured>"
    )


def deliver(msg_id: str, *, xmlns: str = QOS, mark: str = "", hold: str = "") -> str:
    """`deliver`, likewise."""
    return (
        f"<qos:deliver xmlns:qos='{xmlns}' msgId={quoteattr(msg_id)}"
        f"{_mark(mark, hold)}/>"
    )


def acknowledged(body: str = PRIVATE, *, xmlns: str = QOS) -> str:
    """`acknowledged`, likewise."""
    return f"<qos:acknowledged xmlns:qos='{xmlns}'>{message(body)}</qos:acknowledged>"


def _mark(sender: str, hold: str = "") -> str:
    marks = {"sender": sender, "hold": hold}
    given = "".join(f" m:{k}={quoteattr(v)}" for k, v in marks.items() if v)
    return f" xmlns:m='{MARKS}'{given}" if given else ""


def request_text(
    to: str, content: str, *, iq_id: str = "", from_: str = ""
) -> tuple[str, str]:
    """An iq of type set as text, and its id."""
    iq_id = iq_id or f"raw-{next(_ids)}"
    source = f" from={quoteattr(from_)}" if from_ else ""
    return (
        f"<iq type='set' id={quoteattr(iq_id)} to={quoteattr(to)}{source}>"
        f"{content}</iq>",
        iq_id,
    )


async def ask(
    peer: RawPeer, to: str, content: str, *, iq_id: str = "", from_: str = ""
) -> ET.Element:
    """Send a request, and return its answer of either type."""
    text, iq_id = request_text(to, content, iq_id=iq_id, from_=from_)
    await peer.send(text)
    return await answer_to(peer, iq_id)


async def answer_to(peer: RawPeer, iq_id: str) -> ET.Element:
    """The result or error with this id."""
    return await peer.expect(
        lambda xml: (
            local(xml) == "iq"
            and xml.get("id") == iq_id
            and xml.get("type") in {"result", "error"}
        )
    )


# -- what a raw peer reads -------------------------------------------------


def received(answer: ET.Element) -> tuple[str, str]:
    """The msgId and the hold of an answer that must be `received`."""
    assert answer.get("type") == "result", ET.tostring(answer)
    assert [local(child) for child in answer] == ["received"]
    return answer[0].get("msgId", ""), answer[0].get(HOLD, "")


def is_empty(answer: ET.Element) -> bool:
    """Whether it is the empty result of the proto-XEP."""
    return answer.get("type") == "result" and not len(answer) and not answer.text


def confirms(answer: ET.Element, hold: str) -> bool:
    """Whether it is the result with this hold and nothing else."""
    return answer.get("type") == "result" and [
        (child.tag, child.text) for child in answer
    ] == [(f"{{{MARKS}}}hold", hold)]


def error_of(answer: ET.Element) -> tuple[str, str, str]:
    """Condition, type and hold ('' without one) of an answer that must be an error."""
    assert answer.get("type") == "error", ET.tostring(answer)
    (error,) = (child for child in answer if local(child) == "error")
    hold = error.findtext(f"{{{MARKS}}}hold", "")
    assert answer.find(f"{{{MARKS}}}hold") is None, "RFC 6120 §8.3.4: inside the error"
    condition = error[0]
    assert condition.tag.startswith(f"{{{STANZAS}}}")
    return local(condition), error.get("type", ""), hold


def shows(element: ET.Element, text: str = PRIVATE) -> bool:
    """Whether the text is anywhere in it."""
    return text in ET.tostring(element, encoding="unicode")


# -- a raw peer that gets requests -----------------------------------------


def request_in(xml: ET.Element) -> str:
    """The kind of request in an iq, or ''."""
    if local(xml) != "iq" or xml.get("type") != "set" or not len(xml):
        return ""
    namespace, _, kind = xml[0].tag[1:].partition("}")
    return kind if namespace in ALL_QOS else ""


def asks(kind: str = "", msg_id: str = "") -> Callable[[ET.Element], bool]:
    """Match an iq by the kind of its request, and by msgId."""

    def matches(xml: ET.Element) -> bool:
        found = request_in(xml)
        if not found or (kind and found != kind):
            return False
        return not msg_id or xml[0].get("msgId") == msg_id

    return matches


async def answer(iq: ET.Element, peer: RawPeer, content: str = "", **more: str) -> None:
    """Answer with a result (or `type="error"`), from the addressed JID."""
    wanted = {
        "type": "result",
        "id": iq.get("id", ""),
        "to": iq.get("from", ""),
        "from": iq.get("to", ""),
    } | {name.rstrip("_"): value for name, value in more.items()}
    attributes = " ".join(f"{k}={quoteattr(v)}" for k, v in wanted.items() if v)
    await peer.send(f"<iq {attributes}>{content}</iq>")


async def say_received(
    iq: ET.Element, peer: RawPeer, *, hold: str = "", msg_id: str | None = None
) -> None:
    """Answer `received`, as in the proto-XEP; with a hold as our receivers do."""
    value = iq[0].get("msgId", "") if msg_id is None else msg_id
    await answer(iq, peer, f"<received msgId={quoteattr(value)}{_mark('', hold)}/>")


async def say_done(iq: ET.Element, peer: RawPeer, *, hold: str = "") -> None:
    """Answer `deliver`: empty as in the proto-XEP; with a hold as our receivers do."""
    await answer(iq, peer, f"<hold xmlns='{MARKS}'>{hold}</hold>" if hold else "")


async def say_error(
    iq: ET.Element, peer: RawPeer, condition: str, kind: str, *, hold: str = ""
) -> None:
    """Answer with this error."""
    mark = f"<hold xmlns='{MARKS}'>{hold}</hold>" if hold else ""
    error = f"<error type='{kind}'><{condition} xmlns='{STANZAS}'/>{mark}</error>"
    await answer(iq, peer, error, type="error")


def asks_features(xml: ET.Element) -> bool:
    """Match a question for disco#info."""
    return xml.get("type") == "get" and xml.find(f"{{{DISCO}}}query") is not None


@contextlib.asynccontextmanager
async def discoverable(
    peer: RawPeer, features: Collection[str] = (QOS,)
) -> AsyncIterator[None]:
    """Answer each disco#info with these features for as long as the block runs."""

    async def serve() -> None:
        lines = "".join(f"<feature var={quoteattr(name)}/>" for name in features)
        while True:
            iq = await peer.expect(asks_features, timeout_s=None)
            query = iq.find(f"{{{DISCO}}}query")
            assert query is not None
            node = query.get("node")
            about = f" node={quoteattr(node)}" if node else ""
            await answer(
                iq,
                peer,
                f"<query xmlns='{DISCO}'{about}><identity category='client' "
                f"type='pc'/>{lines}</query>",
            )

    task = asyncio.create_task(serve())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await task


# -- that all has been seen ------------------------------------------------


async def synced(peer: RawClient, to: str, *others: RawClient) -> None:
    """Return when everything that `to` sent before has arrived at these raw clients.

    Its answer also proves that its stream is up.
    """
    iq_id = f"sync-{next(_ids)}"
    await peer.send(
        f"<iq type='get' id='{iq_id}' to={quoteattr(to)}><query xmlns='{DISCO}'/></iq>"
    )
    result = await answer_to(peer, iq_id)
    assert result.get("type") == "result"
    for other in others:
        await other.ping()


def events(log: RawClient) -> list[ET.Element]:
    """The events by XEP-0337 that came to this raw client."""
    return [
        found
        for xml in log.received(stanza("message"))
        for found in xml.findall(f"{{{EVENT_LOG}}}log")
    ]


@contextlib.asynccontextmanager
async def one_event(
    end: Device, peer: RawClient, log: RawClient, *, source: str = ""
) -> AsyncIterator[None]:
    """The code in the block is an abuse: check what must hold after each one.

    The stream is the same as before and up. There is exactly one event by XEP-0337
    about the source, and neither peer nor log has received the payload.
    """
    sessions, before = end.sessions, len(events(log))
    yield
    await synced(peer, end.jid, log)
    assert end.sessions == sessions
    (event,) = events(log)[before:]
    assert event.get("subject") == (source or peer.jid)
    assert event.get("type") == "Warning"
    assert event.findtext(f"{{{EVENT_LOG}}}message")
    for xml in (*peer.received(), *log.received()):
        assert not shows(xml)


# -- the bytes between a client and the server -----------------------------


class Wiretap:
    """The bytes that one client wrote."""

    def __init__(self) -> None:
        self._sent = bytearray()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def text(self) -> str:
        """All bytes, of all its connections."""
        return self._sent.decode(errors="replace")

    def requests(self, kind: str = "") -> list[str]:
        """The iqs with a request of this kind, in order, repeats included."""
        found = re.findall(r"<iq type='set'.*?</iq>", self.text, re.DOTALL)
        return [text for text in found if re.search(rf"^<iq[^>]*><{kind}", text)]

    async def carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        """Be the connection between a client and the server."""
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        writers = {writer, server_writer}
        self._writers |= writers
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, server_writer, self._sent))
                group.create_task(self._copy(server_reader, writer, None))
        finally:
            for each in writers:
                each.transport.abort()
            self._writers -= writers

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        record: bytearray | None,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if record is not None:
                    record += data
                writer.write(data)
                await writer.drain()
        # The end of either side is the end of both, as without the wiretap.
        writer.transport.abort()


@contextlib.asynccontextmanager
async def wiretap(server: Prosody) -> AsyncIterator[tuple[Prosody, Wiretap]]:
    """A server whose clients' bytes are recorded; otherwise it is the given one."""
    tap = Wiretap()
    tasks: set[asyncio.Task[None]] = set()

    async def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await tap.carry(reader, writer, server.c2s_port)
        finally:
            tasks.discard(task)

    listener = await asyncio.start_server(connected, server.address, 0)
    tapped = copy.copy(server)
    tapped.c2s_port = listener.sockets[0].getsockname()[1]
    try:
        yield tapped, tap
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await listener.wait_closed()


def parsed(text: str) -> ET.Element:
    """A stanza of a wiretap, as a peer's parser sees it."""
    stream = f"<stream xmlns='{CLIENT}'>{text}</stream>"
    return ET.fromstring(stream)[0]  # noqa: S314


def bodies(requests: list[ET.Element]) -> Iterator[str]:
    """The bodies of the messages embedded in these iqs."""
    for iq in requests:
        yield iq.findtext(f".//{{{CLIENT}}}body", "")


# -- the helpers themselves ------------------------------------------------


async def test_two_raw_peers_go_through_the_text_by_hand(prosody: Prosody) -> None:
    """The helpers must agree with each other before they test our code."""
    async with raw(prosody, "alice/a") as alice, raw(prosody, "bob/b") as bob:
        text, iq_id = request_text(bob.jid, assured("7", "<&>"))
        await alice.send(text)
        iq = await bob.expect(asks("assured", "7"))
        assert list(bodies([iq])) == ["<&>"]
        await say_received(iq, bob, hold="h")
        assert received(await answer_to(alice, iq_id)) == ("7", "h")
        text, iq_id = request_text(bob.jid, deliver("7", mark="s", hold="h"))
        await alice.send(text)
        iq = await bob.expect(asks("deliver"))
        assert (iq[0].get(SENDER), iq[0].get(HOLD)) == ("s", "h")
        await say_error(iq, bob, "item-not-found", "cancel", hold="h")
        assert error_of(await answer_to(alice, iq_id)) == (
            "item-not-found",
            "cancel",
            "h",
        )
        await say_done(iq, bob, hold="h")
        assert confirms(await answer_to(alice, iq_id), "h")
        await say_done(iq, bob)
        assert is_empty(await answer_to(alice, iq_id))


async def test_a_wiretap_shows_what_a_client_wrote_and_changes_nothing(
    prosody: Prosody,
) -> None:
    """A server writes stanzas anew.

    Only before it are the bytes those of the client.
    """
    async with wiretap(prosody) as (tapped, tap), raw(tapped, "alice/a") as alice:
        text, iq_id = request_text(alice.jid, assured("7", "ä'\""))
        await alice.send(text)
        await say_done(await alice.expect(asks()), alice)
        assert is_empty(await answer_to(alice, iq_id))
        assert text in tap.text
        assert [parsed(each).get("id") for each in tap.requests("qos:")] == [iq_id]
    assert not asyncio.all_tasks() - {asyncio.current_task()}


async def test_features_are_answered_for_as_long_as_the_block_runs(
    prosody: Prosody,
) -> None:
    async with raw(prosody, "alice/a") as alice, raw(prosody, "bob/b") as bob:
        async with discoverable(bob, [NEURON, MARKS]):
            await synced(alice, bob.jid, bob)
        await alice.send(
            f"<iq type='get' id='later' to='{bob.jid}'><query xmlns='{DISCO}'/></iq>"
        )
        # Nobody has taken the question, so nobody answers it.
        await bob.expect(asks_features)
        await bob.ping()
        await alice.ping()
        assert not alice.received(stanza("iq", id="later"))


async def test_the_plugin_answers_a_raw_peer_at_all(make_prosody: MakeProsody) -> None:
    """The events of its guard reach a raw log too."""
    server = await make_prosody()
    async with (
        raw(server, "carol/log") as log,
        raw(server, "mallory/m") as mallory,
        device(server, "bob/b", event_log_to=log.jid, accepts="anyone") as bob,
    ):
        async with one_event(bob, mallory, log):
            refusal = await ask(mallory, bob.jid, assured("7"))
            assert error_of(refusal) == ("not-allowed", "cancel", "")
        assert is_empty(await ask(mallory, bob.jid, acknowledged("hello")))
        (arrival,) = await bob.arrivals.take(1)
        assert arrival.body == "hello"
