"""Programs around listings that are only a part of one, at the server example.org.

    guide_programs.py forms|own-client|gateway|queue-worker|selective-worker

Each runs the code of the guide as it stands, and prints what came of it.
"""

import asyncio
import os
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from slixmpp import ClientXMPP, ComponentXMPP

import qos
from xep_0254 import XEP_0254

ROOT = Path(__file__).parents[2]
CODE = ROOT / "docs" / "code"

#: Of all accounts, and of the components.
PASSWORD = "…"  # noqa: S105 - of the examples


def names_in(file: str) -> dict[str, Any]:
    """The names that a file of the guide defines."""
    names: dict[str, Any] = {"__name__": file}
    exec((CODE / file).read_text(), names)  # noqa: S102 - our own guide
    return names


async def run_block(page: str, **names: Any) -> dict[str, Any]:
    """Run the blocks of Python that a page has, as a part of a coroutine.

    Returns:
        The names that it leaves.
    """
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )
    block = "".join(blocks).replace("lamp@localhost", "lamp@example.org")
    body = textwrap.indent(f"{block}return locals()\n", "    ")
    exec(f"async def block():\n{body}", names)  # noqa: S102 - our own guide
    return dict(await names["block"]())


async def forms() -> None:
    """Send a message in each form."""
    async with qos.connect(
        "controller@example.org/2", PASSWORD, store="sqlite:forms.db", receives=False
    ) as controller:
        await run_block("docs/messages.md", controller=controller)
    print("all of them are delivered", flush=True)


async def own_client() -> None:
    """Keep up a client of our own."""
    client = ClientXMPP("lamp@example.org/3", PASSWORD)
    client.ca_certs = Path(os.environ["SSL_CERT_FILE"])
    names_in("own_client.py")["set_up"](client)
    client.connect()
    await client.wait_until("session_start", timeout=60)
    client.send_presence()
    print("ready", flush=True)
    await client.disconnected


async def gateway() -> None:
    """Be the gateway, and report each lamp that is switched."""
    names = names_in("gateway.py")
    reports: set[asyncio.Task[None]] = set()

    async def report(lamp: str) -> None:
        await names["report"](gate, lamp, "controller@example.org/9", 7.0)
        print("the report has arrived", flush=True)

    async def switch(lamp: str, value: str) -> None:
        print(lamp, value, flush=True)
        reports.add(asyncio.create_task(report(lamp)))

    made = await run_block(
        "docs/components.md",
        ComponentXMPP=ComponentXMPP,
        set_up=names["set_up"],
        secret=PASSWORD,
        switch=switch,
    )
    gate = made["gate"]
    await gate.wait_until("session_start", timeout=60)
    print("ready", flush=True)
    await gate.disconnected


async def queue_worker() -> None:
    """Work on what is there."""
    names = names_in("queue_worker.py")
    packed: list[object] = []
    done = asyncio.Event()

    async def pack(order: object) -> None:
        packed.append(order)
        if len(packed) == 3:
            done.set()

    names["pack"] = pack
    async with qos.connect("bee@example.org/1", PASSWORD, store="memory:") as bee:
        working = asyncio.create_task(names["work"](bee.client))
        await done.wait()
        os.kill(os.getpid(), 15)  # its handler of SIGTERM ends it in order
        await working
    print("packed", len(packed), flush=True)


async def selective_worker() -> None:
    """Publish an order, and work until it is done."""
    names = names_in("selective_worker.py")
    handle, done = names["handle"], asyncio.Event()

    async def handle_one(job: Any) -> None:
        await handle(job)
        done.set()

    names["handle"] = handle_one
    async with qos.connect("bee@example.org/2", PASSWORD, store="memory:") as bee:
        working = asyncio.create_task(names["work"](bee.client))
        await names["publish"](bee.client)
        await done.wait()
        queues = XEP_0254.of(bee.client)
        for _ in range(100):
            if not (await queues.stats("queue.example.org", "orders"))["acquired"]:
                break
            await asyncio.sleep(0.1)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


PROGRAMS = {
    "forms": forms,
    "own-client": own_client,
    "gateway": gateway,
    "queue-worker": queue_worker,
    "selective-worker": selective_worker,
}

if __name__ == "__main__":
    asyncio.run(PROGRAMS[sys.argv[1]]())
