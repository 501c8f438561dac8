"""Makes two accounts contacts of each other.

python contacts.py lamp@example.org lamp.password me@example.org me.password
"""

import asyncio
import sys
from pathlib import Path

from slixmpp import ClientXMPP

import qos

MINE, MINE_FILE, THEIRS, THEIRS_FILE = sys.argv[1:]
PASSWORDS = {
    MINE: Path(MINE_FILE).read_text().strip(),
    THEIRS: Path(THEIRS_FILE).read_text().strip(),
}


async def subscribe(asks: ClientXMPP, answers: ClientXMPP) -> None:
    """Let the one see the presence of the other (RFC 6121, section 3.1)."""
    one, other = asks.boundjid.bare, answers.boundjid.bare
    asked, told = asyncio.Event(), asyncio.Event()
    answers.add_event_handler("presence_subscribe", lambda _: asked.set())
    asks.add_event_handler("presence_subscribed", lambda _: told.set())
    async with asyncio.timeout(30):
        await asks.get_roster()
        if not asks.client_roster[other]["to"]:
            asks.send_presence(pto=other, ptype="subscribe")
            await asked.wait()
            answers.send_presence(pto=one, ptype="subscribed")
            await told.wait()
    print(one, "sees the presence of", other)


async def main() -> None:
    async with (
        qos.connect(MINE, PASSWORDS[MINE], store="memory:", receives=False) as mine,
        qos.connect(
            THEIRS, PASSWORDS[THEIRS], store="memory:", receives=False
        ) as theirs,
    ):
        for asks, answers in ((mine, theirs), (theirs, mine)):
            await subscribe(asks.client, answers.client)


asyncio.run(main())
