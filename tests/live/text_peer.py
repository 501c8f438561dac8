"""Peers that are not ours: they follow the proto-XEP, and nothing else.

They count iq ids and msgIds from 1 after each start, as a small device would, and know
nothing of our marks.
"""

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Self
from xml.etree import ElementTree as ET

from devices import child
from qos.testing.prosody import Prosody
from raw_client import RawClient, local, stanza
from waiting import limit

QOS = "urn:xmpp:qos"
DISCO = "http://jabber.org/protocol/disco#info"


def raw_client(server: Prosody, name: str) -> RawClient:
    """A raw client: `user/resource` of this server."""
    user, _, resource = name.partition("/")
    jid = f"{user}@{server.domain}/{resource}"
    return RawClient(jid, server.accounts[user], port=server.c2s_port)


class TextReceiver:
    """Holds messages, and takes each when it is released.

    Attributes:
        plain: how many plain messages it saw.
        taken: the bodies it acted on, in order.
        held: the bodies it holds, by (sender's full JID, msgId).
        asked: every request it saw, as (kind, msgId, body).
        silent: the kinds of request that it does not answer, but keeps in `unanswered`.
        refusing: how many requests it will refuse for lack of room.
    """

    def __init__(self, server: Prosody, name: str) -> None:
        self.raw = raw_client(server, name)
        self.taken: list[str] = []
        self.held: dict[tuple[str, str], str] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.unanswered: list[ET.Element] = []
        self.silent: set[str] = set()
        self.refusing = 0
        self.plain = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.raw.__aenter__()
        await self.raw.send_presence()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await self._task
        await self.raw.__aexit__(exc_type, exc, traceback)

    def count(self, kind: str) -> int:
        """How many requests of a kind it saw."""
        return sum(asked[0] == kind for asked in self.asked)

    async def wait_asked(self, kind: str, count: int = 1) -> None:
        """Wait for this many requests of a kind, since the beginning."""
        await self._wait(lambda: self.count(kind) >= count)

    async def wait_offered(self, count: int) -> None:
        """Wait until it was offered this many messages; repeats do not count."""
        await self._wait(
            lambda: (
                len({asked for asked in self.asked if asked[0] == "assured"}) >= count
            )
        )

    async def wait_plain(self, count: int) -> None:
        """Wait for this many plain messages, since the beginning."""
        await self._wait(lambda: self.plain >= count)

    async def answer(self, count: int | None = None) -> None:
        """Answer the unanswered requests, or the first few of them."""
        if count is None:
            count = len(self.unanswered)
        now, self.unanswered = self.unanswered[:count], self.unanswered[count:]
        for iq in now:
            await self._answer(iq)

    async def _wait(self, condition: Callable[[], bool]) -> None:
        async with limit():
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def _run(self) -> None:
        while True:
            iq = await self.raw.expect(lambda _: True, timeout_s=None)
            if local(iq) == "message":
                self.plain += 1
                self._changed.set()
            elif iq.get("type") == "get":
                found = f"<query xmlns='{DISCO}'><feature var='{QOS}'/></query>"
                await self._result(iq, found)
            elif iq.get("type") == "set" and len(iq):
                self._note(iq)
                if child(iq) in self.silent:
                    self.unanswered.append(iq)
                else:
                    await self._answer(iq)
                self._changed.set()

    def _note(self, iq: ET.Element) -> None:
        element = iq[0]
        body = element.findtext(".//{jabber:client}body") or ""
        self.asked.append((child(iq), element.get("msgId", ""), body))

    async def _answer(self, iq: ET.Element) -> None:
        kind, element, source = child(iq), iq[0], iq.get("from", "")
        msg_id = element.get("msgId", "")
        body = element.findtext(".//{jabber:client}body") or ""
        if self.refusing and kind != "deliver":
            self.refusing -= 1
            await self.raw.send(
                f"<iq type='error' id='{iq.get('id')}' to='{source}'>"
                "<error type='wait'><resource-constraint"
                " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
            )
        elif kind == "assured":
            self.held.setdefault((source, msg_id), body)
            await self._result(iq, f"<received msgId='{msg_id}'/>")
        elif kind == "deliver":
            # The proto-XEP: an unknown one is acknowledged all the same.
            if (source, msg_id) in self.held:
                self.taken.append(self.held.pop((source, msg_id)))
            await self._result(iq, "")
        else:
            assert kind == "acknowledged"
            await self._result(iq, "")
            self.taken.append(body)

    async def _result(self, iq: ET.Element, content: str) -> None:
        await self.raw.send(
            f"<iq type='result' id='{iq.get('id')}' to='{iq.get('from')}'>"
            f"{content}</iq>"
        )


class TextSender:
    """Sends as the proto-XEP says, one step at a time."""

    def __init__(self, server: Prosody, name: str) -> None:
        self.raw = raw_client(server, name)
        self._iqs = 0
        self._messages = 0

    async def __aenter__(self) -> Self:
        await self.raw.__aenter__()
        await self.raw.send_presence()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.raw.__aexit__(exc_type, exc, traceback)

    async def acknowledged(self, to: str, body: str) -> None:
        """Send at level acknowledged."""
        content = f"<acknowledged xmlns='{QOS}'>{_message(body)}</acknowledged>"
        assert len(await self.ask(to, content)) == 0

    async def assured(self, to: str, body: str) -> None:
        """Send at level assured: both steps."""
        await self.deliver(to, await self.offer(to, body))

    async def offer(self, to: str, body: str) -> str:
        """The first step; returns the msgId."""
        self._messages += 1
        msg_id = str(self._messages)
        answer = await self.ask(
            to,
            f"<assured xmlns='{QOS}' msgId='{msg_id}'>{_message(body)}</assured>",
        )
        (received,) = answer
        assert local(received) == "received"
        assert received.get("msgId") == msg_id
        return msg_id

    async def deliver(self, to: str, msg_id: str) -> None:
        """The second step."""
        content = f"<deliver xmlns='{QOS}' msgId='{msg_id}'/>"
        assert len(await self.ask(to, content)) == 0

    async def ask(self, to: str, content: str) -> ET.Element:
        """Send an iq of type set, and return its result."""
        self._iqs += 1
        iq_id = str(self._iqs)
        await self.raw.send(f"<iq type='set' id='{iq_id}' to='{to}'>{content}</iq>")
        answer = await self.raw.expect(stanza("iq", id=iq_id, from_=to))
        assert answer.get("type") == "result", ET.tostring(answer)
        return answer


def _message(body: str) -> str:
    return f"<message xmlns='jabber:client'><body>{body}</body></message>"
