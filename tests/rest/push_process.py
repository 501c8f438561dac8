"""A service that pushes, as a process of its own, to be killed: FOLDER PORT.

It prints a line when it listens. Its queues `in` and `out` are alice's.
"""

import asyncio
import sys
from pathlib import Path

from rest_bench import rest


async def main(folder: Path, port: int) -> None:
    """Serve until killed."""
    async with rest(folder, push=["127.0.0.1"]) as bench:
        await bench.rest.listen("127.0.0.1", port)
        sys.stdout.write("listens\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
