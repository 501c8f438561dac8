"""Hostile accounts: one takes all room, one takes others' names, one is a crowd."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from slixmpp import ClientXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.core.queue.item import Affiliation
from qos.errors import RequestFailed
from qos.worker import Job, Worker
from role import Role, Say, ended_by_signal, open_log
from xep_0254.queueing import XEP_0254, NewItem

__all__ = ["ASKED", "CROWDED", "Crowd", "Greedy", "Squatter"]

_ACCOUNTS = 12
_BURST, _BURST_EVERY_S = 25, 0.1

#: This many of the greedy member's stanzas are requests to create a node.
_CREATES_EVERY = 10

_STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"

#: The first words of the lines in the log of the crowd.
CROWDED, ASKED = "crowded", "asked"

#: Seconds after which the owner of the prey is again made an owner of the trap.
_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy(Role):
    """A foreign domain with many accounts: each has messages held, and creates nodes.

    The messages are assured ones whose `deliver` never comes.

    Attributes:
        to: the receivers, in turn; the first is a queue service.
        log: the file that gets a line when something is refused for lack of room, once
            in each life.
    """

    to: Sequence[str]
    log: str

    async def live(self, say: Say) -> None:
        """See Role."""
        session = self.connect.as_component()
        self._watch_for_refusals(session.xmpp)
        async with session:
            session.start()
            await session.work(self._take(session.xmpp, session.online, say))

    def _watch_for_refusals(self, xmpp: object) -> None:
        log = open_log(self.log)
        refused = False

        def look(stanza: StanzaBase) -> StanzaBase:
            nonlocal refused
            path = f"./*/{{{_STANZAS}}}resource-constraint"
            if not refused and stanza.xml.find(path) is not None:
                refused = True
                os.write(log, b"refused\n")
            return stanza

        xmpp.add_filter("in", look)  # type: ignore[attr-defined]

    async def _take(self, xmpp: object, online: asyncio.Event, say: Say) -> None:
        ends = ended_by_signal()
        life = os.getpid()
        for number in itertools.count():
            await online.wait()
            if number == 0:
                say("ready")
            if ends.is_set():
                return
            for place in range(_BURST):
                name = f"{life}-{number}-{place}"
                xmpp.send_raw(self._stanza(name, number + place))  # type: ignore[attr-defined]
            await asyncio.sleep(_BURST_EVERY_S)

    def _stanza(self, name: str, number: int) -> str:
        sender = f"a{number % _ACCOUNTS}@{self.connect.jid}/x"
        to, content = self.to[number % len(self.to)], _held(name)
        if number % _CREATES_EVERY == 0:
            to, content = self.to[0], _created(name)
        head = f"id={quoteattr(name)} from={quoteattr(sender)} to={quoteattr(to)}"
        return f"<iq type='set' {head}>{content}</iq>"


def _held(name: str) -> str:
    return (
        f"<assured xmlns='urn:xmpp:qos' msgId={quoteattr(name)}>"
        "<message xmlns='jabber:client'><body>greedy</body></message></assured>"
    )


def _created(name: str) -> str:
    return (
        "<pubsub xmlns='http://jabber.org/protocol/pubsub'>"
        f"<create node={quoteattr(f'greedy {name}')}/></pubsub>"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Squatter(Role):
    """An account that names a queue of somebody else as its dead-letter node.

    It does so before that queue exists, and makes the queue's later owner an owner of
    its own queue. Then it publishes there, and rejects the items that it gets.

    Attributes:
        service: the JID of the service.
        trap: the name of its own queue.
        prey: the name of the foreign queue.
        owner: the bare JID of the owner of the prey.
    """

    service: str
    trap: str
    prey: str
    owner: str

    async def live(self, say: Say) -> None:
        """See Role."""
        async with self.connect.as_account() as session:
            session.client.register_plugin("xep_0254", {"timeout_s": 2.0})
            session.start()
            await session.work(self._squat(session.client, session.online, say))

    async def _squat(self, client: ClientXMPP, online: asyncio.Event, say: Say) -> None:
        await online.wait()
        plugin = XEP_0254.of(client)
        await self._set_trap(plugin)
        say("ready")
        worker = Worker(client, self.service, self.trap, parallel=4, resubscribe_s=5.0)
        worker.install_signal_handlers()
        baiting = asyncio.create_task(self._bait(plugin))
        try:
            async with worker:
                await worker.run(_reject)
        finally:
            baiting.cancel()
            await asyncio.wait((baiting,))

    async def _set_trap(self, plugin: XEP_0254) -> None:
        options = {"queue#dead_letter_node": self.prey}
        with contextlib.suppress(RequestFailed):
            await plugin.create(self.service, self.trap, options)
        # If that name is refused, it needs a queue all the same.
        with contextlib.suppress(RequestFailed):
            await plugin.create(self.service, self.trap)
        owners = {self.owner: Affiliation.OWNER}
        with contextlib.suppress(RequestFailed):
            await plugin.set_affiliations(self.service, self.trap, owners)
        with contextlib.suppress(RequestFailed):
            await plugin.configure(self.service, self.trap, options)

    async def _bait(self, plugin: XEP_0254) -> None:
        while True:
            await plugin.session()
            await self._set_trap(plugin)
            with contextlib.suppress(RequestFailed):
                item = NewItem("<squatter xmlns='urn:x'/>")
                await plugin.publish(self.service, self.trap, [item], attempts=1)
            await asyncio.sleep(_AGAIN_S)


async def _reject(job: Job) -> None:
    await job.reject("for somebody else")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd(Role):
    """A foreign domain whose accounts send presence, each with other capabilities.

    They have nobody in their rosters, and send nothing else: so nobody has a question to
    them.

    Attributes:
        to: the receivers, in turn: full JIDs, and components.
        log: the file that gets a line in each life when presence was sent, and one with
            the name of a receiver whenever that asks something.
    """

    to: Sequence[str]
    log: str

    async def live(self, say: Say) -> None:
        """See Role."""
        session = self.connect.as_component()
        log = open_log(self.log)
        self._watch_for_questions(session.xmpp, log)
        async with session:
            session.start()
            await session.work(self._come(session.xmpp, session.online, log, say))

    def _watch_for_questions(self, xmpp: object, log: int) -> None:
        def look(stanza: StanzaBase) -> StanzaBase:
            source, kind = stanza.xml.get("from", ""), stanza.xml.get("type")
            # Servers ask in the names of their users, under the bare JID.
            if source in self.to and kind not in {"error", "unavailable", "result"}:
                os.write(log, f"{ASKED} by {source}\n".encode())
            return stanza

        xmpp.add_filter("in", look)  # type: ignore[attr-defined]

    async def _come(
        self, xmpp: object, online: asyncio.Event, log: int, say: Say
    ) -> None:
        ends = ended_by_signal()
        life = os.getpid()
        for number in itertools.count():
            await online.wait()
            if ends.is_set():
                return
            for place in range(_BURST):
                name = f"{life}-{number}-{place}"
                xmpp.send_raw(self._presence(name, number + place))  # type: ignore[attr-defined]
            if number == 0:
                os.write(log, f"{CROWDED}\n".encode())
                say("ready")
            await asyncio.sleep(_BURST_EVERY_S)

    def _presence(self, name: str, number: int) -> str:
        # Some of it comes from further resources of a few accounts, and some goes again.
        user, resource = (f"p{number % 5}", name) if number % 3 else (f"p{name}", "x")
        sender, to = (
            f"{user}@{self.connect.jid}/{resource}",
            self.to[number % len(self.to)],
        )
        kind = " type='unavailable'" if number % 4 == 3 else ""
        return (
            f"<presence from={quoteattr(sender)} to={quoteattr(to)}{kind}>"
            "<c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node='urn:crowd' "
            f"ver={quoteattr(name)}/></presence>"
        )
