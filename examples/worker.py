"""Works on the items of a queue, eight at a time, until Ctrl-C or SIGTERM.

    XMPP_QOS_PASSWORD=secret python worker.py bee@localhost/1 5222 queue.localhost orders

Give each worker a resource of its own, such as /1: if it is killed, its items come again
when it is back, and not only when their locks end.

The server is on this machine; for another server leave out host, port and tls.
"""

import asyncio
import os
import sys

import qos
from qos.worker import Job, Worker


async def pack(job: Job) -> None:
    print("packed", job.payload_text, flush=True)


async def main(jid: str, port: str, service: str, node: str) -> None:
    async with (
        qos.connect(
            jid,
            os.environ["XMPP_QOS_PASSWORD"],
            store="memory:",  # the queue keeps the items
            host="127.0.0.1",
            port=int(port),
            tls="off",
        ) as bee,
        Worker(bee.client, service, node, parallel=8) as worker,
    ):
        worker.install_signal_handlers()
        await bee.run(worker.run(pack))


asyncio.run(main(*sys.argv[1:]))
