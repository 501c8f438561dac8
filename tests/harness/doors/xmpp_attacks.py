"""Attacks of an account and of a foreign domain by XMPP."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator

from slixmpp import BaseXMPP, ComponentXMPP

from doors.hostile import Counts
from doors.http_attacks import bomb
from doors.place import HONEST_QUEUES, HOSTILE, LAIR, Place
from qos.stream.closing import close
from qos.testing.ports import ADDRESS

__all__ = ["bombs", "requests"]

_BOMB_BYTES = 58_000

#: Accounts of the foreign domain.
_ACCOUNTS = 20

#: Seconds between two writes; and the requests of one, which are more than the service
#: can answer.
_BOMB_EVERY_S, _FLOOD_EVERY_S, _FLOOD_BATCH = 0.02, 0.01, 30

_LOGIN_S_MAX = 20.0

_PUBSUB = "http://jabber.org/protocol/pubsub"
_DISCO = "http://jabber.org/protocol/disco"


def _publish(node: str, payload: str) -> str:
    items = f"<publish node='{node}'><item>{payload}</item></publish>"
    return f"<pubsub xmlns='{_PUBSUB}'>{items}</pubsub>"


async def bombs(where: Place, counts: Counts) -> None:
    """XML that would become large, in requests of a foreign domain."""
    xmpp = ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp's lack
        where.foreign, where.secrets[where.foreign]
    )
    xmpp.enable_direct_tls = False
    xmpp.connect(ADDRESS, where.components)
    await xmpp.wait_until("session_start", timeout=_LOGIN_S_MAX)
    try:
        await _send(xmpp, _bombs(where), counts, every_s=_BOMB_EVERY_S, batch=1)
    finally:
        await close(xmpp)


def _bombs(where: Place) -> Iterator[str]:
    payload = bomb(_BOMB_BYTES)
    for number in itertools.count():
        node = (LAIR, HONEST_QUEUES["xmpp"])[number % 2]
        source = f"a{number % _ACCOUNTS}@{where.foreign}/x"
        yield (
            f"<iq type='set' id='b{number}' to='{where.service}' from='{source}'>"
            f"{_publish(node, payload)}</iq>"
        )


async def requests(where: Place, counts: Counts) -> None:
    """Requests of one account, as fast as its server takes them."""
    async with where.connect(f"{HOSTILE[0]}/flood").as_account() as session:
        session.start()
        await session.online.wait()
        await _send(
            *(session.client, _requests(where), counts),
            every_s=_FLOOD_EVERY_S,
            batch=_FLOOD_BATCH,
        )


def _requests(where: Place) -> Iterator[str]:
    contents = (
        ("get", f"<query xmlns='{_DISCO}#info' node='{LAIR}'/>"),
        ("set", _publish(LAIR, "<x xmlns='urn:x'/>")),
        ("get", f"<query xmlns='{_DISCO}#items'/>"),
    )
    for number, (kind, content) in enumerate(itertools.cycle(contents)):
        yield f"<iq type='{kind}' id='f{number}' to='{where.service}'>{content}</iq>"


async def _send(
    xmpp: BaseXMPP,
    requests: Iterator[str],
    counts: Counts,
    *,
    every_s: float,
    batch: int,
) -> None:
    """Send at this rate; what is answered is only counted."""

    def count(xml: object) -> None:
        counts["answers"] += 1

    xmpp._spawn_event = count  # type: ignore[method-assign]  # it counts
    with contextlib.suppress(ConnectionError):
        while True:
            xmpp.send_raw("".join(itertools.islice(requests, batch)))
            counts["requests"] += batch
            await asyncio.sleep(every_s)
