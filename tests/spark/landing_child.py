"""Uses a landing, and dies in the middle of it.

Not a test: `test_landing.py` runs it as a program; see `killed_runs`. A run, `FOLDER
NUMBER`, is killed at step NUMBER on the disk; -1: it is not killed. Everything that is
certain is noted as a line in `FOLDER/acks`.
"""

import os
from pathlib import Path

from killed_runs import kills_at, main
from qos.spark.queue_landing import Landing
from xep_0254.events import DeliveredItem

OWNER = {"service": "queue.localhost", "node": "orders"}
FENCE = "t"


def item(name: str) -> DeliveredItem:
    return DeliveredItem(
        item_id=name, payload=f"<x xmlns='urn:x'>{name}</x>", token=FENCE
    )


def live(folder: Path, number: int) -> None:
    """Land, compact, claim and settle; each with names of its own."""
    acks = os.open(folder / "acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def ack(*words: object) -> None:
        os.write(acks, " ".join(map(str, words)).encode() + b"\n")

    landing = Landing(folder / "landing", OWNER, probe=kills_at(number), lock_s_max=0)
    ack("id", landing.id)
    for name, claimed in landing.claims().items():
        landing.settle(name, claimed)
        ack("landed", *(each.item_id for each in claimed))
    for _ in range(2):
        names = [f"{landing.next}-{part}" for part in "ab"]
        landing.land([item(name) for name in names])
        ack("landed", *names)
    below = landing.next - 1
    for item_id, _token in landing.unended(below):
        landing.ended(item_id)
    landing.compact(below)
    ack("removed", below)
    won, lost = f"{landing.next}-won", f"{landing.next}-lost"
    name = landing.claim([item(won), item(lost)])
    ack("claimed", won)
    landing.settle(name, [item(won)])
    ack("landed", won)
    landing.close()


if __name__ == "__main__":
    main(lambda folder, number: live(Path(folder), int(number)))
