r"""Publishes a text, its standard input, to a queue, and prints the item's id.

    echo 7 | XMPP_QOS_PASSWORD=secret python publisher.py \
        boss@localhost 5222 queue.localhost orders

The server is on this machine; for another server leave out host, port and tls.
"""

import asyncio
import os
import sys

import qos
from qos.worker import Queue


async def main(password: str, jid: str, port: str, service: str, node: str) -> None:
    async with qos.connect(  # in memory: the queue keeps the items
        jid, password, store="memory:", host="127.0.0.1", port=int(port), tls="off"
    ) as boss:
        print(*await Queue(boss, service, node).publish(text=sys.stdin.read()))


asyncio.run(main(os.environ["XMPP_QOS_PASSWORD"], *sys.argv[1:]))
