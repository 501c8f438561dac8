"""A gateway as a process of its own, to be killed; see killed_services.py.

It prints a line when it listens. Its nodes are alice's, and end in `letters`.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import NoReturn

from amqp_bench import BOSS, gateway


async def main(folder: Path, port: int, *nodes: str) -> NoReturn:
    """Serve until killed."""
    async with gateway(folder) as bench:
        if nodes and bench.engine.rights("letters", BOSS) is None:
            await bench.create("letters")
            for node in nodes:
                await bench.create(
                    node, dead_letter_node="letters", max_deliveries="1000"
                )
        await bench.gateway.listen("127.0.0.1", port)
        sys.stdout.write(f"listens {os.getpid()}\n")
        sys.stdout.flush()
        while True:
            await asyncio.Event().wait()
