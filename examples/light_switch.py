"""Sets a light to a level by acknowledged messages: setting it twice changes nothing.

The link loses every fifth stanza; a message without an answer is repeated.
"""

import asyncio

from slixmpp.xmlstream import StanzaBase
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

from qos import Level
from qos.testing import Link, friends, logged_in
from xep_qos import XEP_QOS

CONTROL = "urn:xmpp:iot:control"
OPTIONS = {"xep_qos": {"retry_first_s": 0.2}}


def set_light(level: int) -> str:
    return f"<set xmlns='{CONTROL}'><int name='Light' value='{level}'/></set>"


def on_set(message: StanzaBase) -> None:
    parameter = message.xml.find(f"{{{CONTROL}}}set/{{{CONTROL}}}int")
    if parameter is not None:
        print("light switch:", parameter.get("name"), "is", parameter.get("value"))


async def main() -> None:
    async with (
        friends("controller", "lightswitch") as server,
        logged_in(server, "lightswitch/1", OPTIONS) as switch,
        logged_in(server, "controller/1", OPTIONS) as controller,
    ):
        # The event "message" is for messages with a body; this message has none.
        path = MatchXPath(f"{{jabber:client}}message/{{{CONTROL}}}set")
        switch.register_handler(Callback("set light", path, on_set))
        server.link = Link(seed=4, loss=0.2)
        qos = XEP_QOS.of(controller)
        for level in (0, 20, 40, 60, 80):
            receipt = await qos.send(
                "lightswitch@localhost/1",
                payload=set_light(level),
                level=Level.ACKNOWLEDGED,
            )
            print("controller:", receipt.status.value, "attempts:", receipt.attempts)


if __name__ == "__main__":
    asyncio.run(main())
