"""A service that pushes, as a process of its own, to be killed; see killed_services.py.

It prints a line when it listens. Its queues `in` and `out` are alice's.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import NoReturn

from rest_bench import rest


async def main(folder: Path, port: int) -> NoReturn:
    """Serve until killed."""
    async with rest(folder, push=["127.0.0.1"]) as bench:
        await bench.rest.listen("127.0.0.1", port)
        sys.stdout.write(f"listens {os.getpid()}\n")
        sys.stdout.flush()
        while True:
            await asyncio.Event().wait()
