"""The attacks on the doors, by name."""

from __future__ import annotations

import asyncio

from doors import amqp_attacks, http_attacks, login_attacks, xmpp_attacks
from doors.hostile import Attack, Counts
from doors.place import Place

__all__ = [
    "ATTACKS",
    "BY_XMPP",
    "EVERYTHING",
    "LOGINS",
    "NOBODY",
    "SERVER_BUSY",
    "prepare",
]

NOBODY, EVERYTHING = "nobody", "all at once"


async def _nobody(_where: Place, _counts: Counts) -> None:
    """Leave the honest clients alone."""
    await asyncio.Event().wait()


async def _all(where: Place, counts: Counts) -> None:
    """Everything at once."""
    others = [each for each in ATTACKS.values() if each not in {_all, _nobody}]
    await asyncio.gather(*(attack(where, counts) for attack in others))


ATTACKS: dict[str, Attack] = {
    NOBODY: _nobody,
    "AMQP transfers to nowhere": amqp_attacks.nowhere,
    "AMQP transfers to one's own": amqp_attacks.own,
    "AMQP credit, and no reader": amqp_attacks.unread,
    "AMQP dear selectors": amqp_attacks.selectors,
    "half-open TLS": login_attacks.half_tls,
    "half-open logins": login_attacks.half_logins,
    "wrong passwords": login_attacks.passwords,
    "HTTP requests": http_attacks.requests,
    "HTTP lengths without bodies": http_attacks.no_bodies,
    "HTTP slow bodies": http_attacks.slow_bodies,
    "HTTP bombs of XML": http_attacks.bombs,
    "HTTP feeds": http_attacks.feeds,
    "XMPP requests": xmpp_attacks.requests,
    "XMPP bombs of XML": xmpp_attacks.bombs,
    EVERYTHING: _all,
}

#: Attacks with connections that are not logged in, at the doors by HTTP and by AMQP.
LOGINS = frozenset({"half-open TLS", "half-open logins", "wrong passwords"})

#: Attacks with bombs of XML by XMPP. Prosody writes a long namespace again for each element,
#: so 58 kB of a stranger become 85 MB that its one thread has to send to the service.
SERVER_BUSY = frozenset({"XMPP bombs of XML", EVERYTHING})

#: Attacks by XMPP. The requests of all its clients come to the service in one stream, in the
#: order in which the server writes them: who asks after a flood waits for it, whatever the
#: service does. Only the limits of the server help, and here it has none.
BY_XMPP = SERVER_BUSY | {"XMPP requests"}


async def prepare(where: Place) -> None:
    """Fill the queues of the hostile account."""
    await amqp_attacks.heap(where)
    await amqp_attacks.dear(where)
