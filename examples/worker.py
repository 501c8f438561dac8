"""Works on the items of a queue, eight at a time, until Ctrl-C or SIGTERM.

    XMPP_QOS_PASSWORD=secret python worker.py bee@localhost/1 5222 queue.localhost orders

Give each worker a resource of its own, such as /1: if it is killed, its items come again
when it is back, and not only when their locks end.

The server is on this machine; for another server leave out host, port and tls.
"""

import asyncio
import os
import sys

import qos.worker


async def pack(job: qos.worker.Job) -> None:
    print("packed", job.payload_text, flush=True)


async def main(password: str, jid: str, port: str, service: str, node: str) -> None:
    async with qos.connect(  # in memory: the queue keeps the items
        jid, password, store="memory:", host="127.0.0.1", port=int(port), tls="off"
    ) as bee:
        await qos.worker.Queue(bee, service, node).run(pack, parallel=8)


asyncio.run(main(os.environ["XMPP_QOS_PASSWORD"], *sys.argv[1:]))
