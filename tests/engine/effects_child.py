"""A process that works on one item with effects, and kills itself at a given step.

For `Forked`: Forked.start(effects_child.live, port, path, step).
"""

import asyncio
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

from slixmpp import JID, ClientXMPP

from qos.worker import Worker
from xep_0254 import XEP_0254

QUEUE, NODE = "queue.localhost", "orders"

_counting = False
_left = -1


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Connection(sqlite3.Connection):
    """Counts the statements, and kills the process at the chosen one."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        global _left
        if _counting:
            if _left == 0:
                die()
            _left -= 1
        return super().execute(sql, *parameters)


class Dying(XEP_0254):
    """Kills the process before the retract, or when it has been answered."""

    step = ""

    async def retract(self, service: str | JID, *args: Any, **options: Any) -> None:
        if _counting and self.step == "before":
            die()
        await super().retract(service, *args, **options)
        if _counting and self.step == "after":
            die()


async def _run(port: int, path: Path, step: str) -> None:
    global _counting, _left
    if step.startswith("sql:"):
        _left = int(step.removeprefix("sql:"))
    db = sqlite3.connect(path, factory=Connection)
    client = ClientXMPP(
        # A new worker of this full JID ends what the killed one had.
        "bee@localhost/child",
        "secret",
        plugin_config={"feature_mechanisms": {"unencrypted_scram": True}},
    )
    client.enable_plaintext = True
    client.enable_starttls = client.enable_direct_tls = False
    client.register_plugin("xep_0254")
    plugin = XEP_0254.of(client)
    plugin.__class__ = Dying
    Dying.step = step
    client.connect("127.0.0.1", port)
    async with Worker(client, QUEUE, NODE, effects_db=db) as worker:
        if step == "recover":
            await worker.subscribed()
            worker.stop()
            print("done", flush=True)
        async for job in worker:
            _counting = True
            async with job, job.effects(db) as effects:
                effects.execute("INSERT INTO effects VALUES (?)", (job.id,))
            _counting = False
            print("done" if job.outcome else "lost", flush=True)
            break
    await client.disconnect()


def live(port: int, path: Path, step: str) -> int:
    """Work on one item, and print `done` at the end.

    Args:
        port: of the server.
        path: of the database.
        step: the number of a statement of ours in the database (`sql:N`, 0 for the
            first), `before` or `after` the answer to the retract, or `never`; `recover`:
            finish what is prepared, and take no item.
    """
    asyncio.run(_run(port, path, step))
    return 0
