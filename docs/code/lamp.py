"""A lamp that takes orders, as a service: see lamp.service."""

import asyncio
import os
from pathlib import Path

import qos

PASSWORD = Path(os.environ["CREDENTIALS_DIRECTORY"], "password").read_text().strip()


async def main() -> None:
    async with qos.connect(
        "lamp@home.arpa/1",
        PASSWORD,
        ca_file="/etc/xmpp-qos/ca.pem",
        store=f"sqlite:{os.environ['STATE_DIRECTORY']}/lamp.db",
    ) as lamp:
        async for message in lamp.messages():
            print("the lamp is", message["body"], flush=True)


asyncio.run(main())
