"""An HTTP gateway as a process of its own, to be killed; see killed_services.py.

It prints a line when it listens. Its queue `orders` is alice's.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import NoReturn

from amqp_bench import BOSS
from rest_bench import rest


async def main(folder: Path, port: int, lock_timeout: str = "2") -> NoReturn:
    """Serve until killed."""
    async with rest(folder) as bench:
        if bench.engine.rights("orders", BOSS) is None:
            await bench.create(
                "orders", lock_timeout=lock_timeout, max_deliveries="1000"
            )
        await bench.rest.listen("127.0.0.1", port)
        sys.stdout.write(f"listens {os.getpid()}\n")
        sys.stdout.flush()
        while True:
            await asyncio.Event().wait()
