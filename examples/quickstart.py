import asyncio

from qos.testing import friends, logged_in
from xep_qos import XEP_QOS


async def main() -> None:
    async with (
        friends("controller", "lamp") as server,
        logged_in(server, "lamp/1") as lamp,
    ):
        lamp.add_event_handler(
            "message", lambda message: print("lamp:", message["body"])
        )
        async with logged_in(server, "controller/1") as controller:
            receipt = await XEP_QOS.of(controller).send("lamp@localhost/1", body="on")
            print("controller:", receipt.status.value)


asyncio.run(main())
