"""Keeps readings in the file of its store, each once."""

import asyncio
import os
import sys

from slixmpp.stanza import Message

import qos


async def keep(message: Message, handover: qos.Handover) -> None:
    await handover.execute("CREATE TABLE IF NOT EXISTS reading (device, value)")
    values = (str(message["from"].bare), message["body"])
    await handover.execute("INSERT INTO reading VALUES (?, ?)", values)


def register(device: qos.Device) -> None:
    device.qos.consumer(max_handovers=5)(keep)


async def main(jid: str, port: str) -> None:
    async with qos.connect(
        jid,
        os.environ["XMPP_QOS_PASSWORD"],
        store="sqlite:readings.db",
        setup=register,
        host="127.0.0.1",  # for a server elsewhere leave out host, port and tls
        port=int(port),
        tls="off",
    ) as device:
        print("ready", flush=True)
        await device.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
