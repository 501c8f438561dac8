"""The second part of `xmpp-qos demo`: a queue with three worker-bees."""

from __future__ import annotations

import tempfile
from pathlib import Path

from qos.cli.demo_output import ProgressLine, is_bold, show
from qos.cli.output import print_json, say
from qos.demo.process import SpareProcess
from qos.demo.queue_run import MAX_DELIVERIES, QueueProgress, run_queue
from qos.demo.queue_table import render, verdict
from qos.demo.text import number

__all__ = ["show_queue"]

_STORY = """\
{first}A queue of orders (XEP-0254), and three worker-bees that pack them.

A shop publishes {items} orders to a queue service. Each bee, a process of its own, holds
some items at a time. An item is locked until its bee accepts it or is known to have failed;
then it goes to the next bee.
  - ben fails at every fifth order that he is the first to get;
  - carl is killed (SIGKILL) with items locked, and started again;
  - one more order is for "many" pieces. Every bee fails at it, and after {deliveries} failures
    it is moved to the queue of dead letters.

Each bee has a database of its own for the orders that it has packed. It writes an order
there only when the service has accepted the item, by the prepared effects of qos.worker,
so that neither a kill nor a failure packs an order twice. With --seed {seed}:
"""


async def show_queue(
    seed: int, items: int, *, json: bool, first: bool, journal: Path | None = None
) -> bool:
    """Let the bees pack this many orders; returns whether the result is exact.

    Args:
        seed: see qos.demo.queue_run.
        items: how many good orders.
        json: print the rows on stdout, and the table on stderr.
        first: this is the first part of the output.
        journal: the folder of all journals; None: there is none.

    Raises:
        CommandError: stdout cannot be written.
        ProcessDied, TimeoutError, OSError, RequestFailed: the scenario cannot be run.
    """
    story = _STORY.format(
        first="" if first else "\n", items=items, deliveries=MAX_DELIVERIES, seed=seed
    )
    say(story)
    progress = ProgressLine()
    with tempfile.TemporaryDirectory(prefix="xmpp-qos-demo-") as name:
        folder = Path(name)
        try:
            async with SpareProcess(folder, "qos.demo.bee") as spare:
                rows, result = await run_queue(
                    seed,
                    items,
                    folder,
                    spare,
                    lambda now: progress.tell(_in_flight(now)),
                    journal,
                )
        finally:
            progress.close()
    say(f"  done in {result.seconds:.1f} s")
    if json:
        for record in (*(row.as_dict() for row in rows), result.as_dict()):
            await print_json({"seed": seed} | record)
    await show(render(rows, bold=is_bold(json=json)), verdict(result), json=json)
    return result.exact


def _in_flight(now: QueueProgress) -> str:
    return (
        f"{now.published}/{now.orders} published, {now.accepted} accepted; "
        f"{number(now.kills, 'kill')}"
    )
