"""A lamp that obeys commands, also after a lost connection or a restart.

    XMPP_QOS_PASSWORD=secret python device.py lamp@localhost/1 5222

The server is on this machine; for another server leave out host, port and tls.
"""

import asyncio
import os
import sys

import qos


async def main(jid: str, port: str) -> None:
    async with qos.connect(
        jid,
        os.environ["XMPP_QOS_PASSWORD"],
        store="sqlite:lamp.db",
        host="127.0.0.1",
        port=int(port),
        tls="off",
    ) as lamp:
        async for message in lamp.messages():
            print("the lamp is", message["body"], flush=True)


asyncio.run(main(*sys.argv[1:]))
