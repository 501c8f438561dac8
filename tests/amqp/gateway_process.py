"""A gateway as a process of its own, to be killed: FOLDER PORT [NODE…].

It prints a line when it listens. Its nodes are alice's, and end in `letters`.
"""

import asyncio
import sys
from pathlib import Path

from amqp_bench import BOSS, gateway


async def main(folder: Path, port: int, nodes: list[str]) -> None:
    """Serve until killed."""
    async with gateway(folder) as bench:
        if nodes and bench.engine.rights("letters", BOSS) is None:
            await bench.create("letters")
            for node in nodes:
                await bench.create(
                    node, dead_letter_node="letters", max_deliveries="1000"
                )
        await bench.gateway.listen("127.0.0.1", port)
        sys.stdout.write("listens\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
