"""An HTTP gateway as a process of its own, to be killed: FOLDER PORT [LOCK_TIMEOUT].

It prints a line when it listens. Its queue `orders` is alice's.
"""

import asyncio
import sys
from pathlib import Path

from amqp_bench import BOSS
from rest_bench import rest


async def main(folder: Path, port: int, lock_timeout: str = "2") -> None:
    """Serve until killed."""
    async with rest(folder) as bench:
        if bench.engine.rights("orders", BOSS) is None:
            await bench.create(
                "orders", lock_timeout=lock_timeout, max_deliveries="1000"
            )
        await bench.rest.listen("127.0.0.1", port)
        sys.stdout.write("listens\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
