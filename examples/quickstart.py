import asyncio
from functools import partial

import qos
from qos.testing import friends


async def switch(lamp: qos.Device) -> None:
    async for message in lamp.messages():
        print("lamp:", message["body"])


async def main() -> None:
    async with friends("controller", "lamp") as server:
        connect = partial(qos.connect, host=server.host, port=server.port, tls="off")
        async with (
            connect("lamp@localhost/1", "secret", store="sqlite:lamp.db") as lamp,
            connect(
                "controller@localhost/1", "secret", store="sqlite:controller.db"
            ) as controller,
        ):
            switching = asyncio.create_task(switch(lamp))
            outcome = await controller.send("lamp@localhost", "on")
            print("controller:", outcome.status.value)
        await switching


asyncio.run(main())
