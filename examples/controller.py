"""Sends a command to a device, and prints how it has ended.

    XMPP_QOS_PASSWORD=secret python controller.py me@localhost/1 5222 lamp@localhost on

The server is on this machine; for another server leave out host, port and tls.
"""

import asyncio
import os
import sys

import qos


async def main(jid: str, port: str, to: str, command: str) -> None:
    async with qos.connect(
        jid,
        os.environ["XMPP_QOS_PASSWORD"],
        store="sqlite:controller.db",
        receives=False,
        host="127.0.0.1",
        port=int(port),
        tls="off",
    ) as controller:
        outcome = await controller.send(to, command, deadline_s=30)
        print(command, outcome.status.value)


asyncio.run(main(*sys.argv[1:]))
