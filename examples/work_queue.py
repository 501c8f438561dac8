"""A queue with a publisher and three worker-bees: each item is done once.

Ben fails at times; then the item goes to another bee. Order 13 cannot be done by any
bee: it ends among the dead letters.
"""

import asyncio
import logging
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial

from qos.testing import friends, logged_in, queue_service
from qos.worker import Job, NewItem, Queue
from xep_0254 import XEP_0254, Affiliation

SERVICE, NODE, DEAD_LETTERS = "queue.localhost", "orders", "dead-letters"
BEES = ("anna", "ben", "carl")
OPTIONS = {
    "max_deliveries": "4",
    "dead_letter_node": DEAD_LETTERS,
    "backoff": "0.1",
}

done: dict[str, list[int]] = {name: [] for name in BEES}
failed: Counter[str] = Counter()


def order(number: int) -> NewItem:
    return NewItem(f"<order xmlns='urn:example:shop' number='{number}'/>")


async def pack(bee: str, job: Job) -> None:
    """Pack an order.

    The job is accepted on return; an exception is a failed delivery.
    """
    assert job.payload is not None
    number = int(job.payload.get("number", ""))
    await asyncio.sleep(0.02)
    if number == 13 or (bee == "ben" and number % 5 == 0 and not job.delivery_count):
        failed[bee] += 1
        raise RuntimeError(f"{bee} has dropped order {number}")
    done[bee].append(number)


async def all_ended(queues: XEP_0254) -> None:
    """Wait until the queue is empty. There is no event for that: ask for its stats."""
    left: float = 1
    while left:
        await asyncio.sleep(0.1)
        stats = await queues.stats(SERVICE, NODE)
        left = sum(stats[name] or 0 for name in ("available", "acquired", "delayed"))


async def main() -> None:
    async with (
        friends("shop", *BEES, components={SERVICE: "secret"}) as server,
        queue_service(server, SERVICE),
        logged_in(server, "shop", {"xep_0254": {}}) as shop,
        AsyncExitStack() as stack,
    ):
        queues = XEP_0254.of(shop)
        await queues.create(SERVICE, DEAD_LETTERS)
        orders = Queue(shop, SERVICE, NODE, create=OPTIONS)
        await orders.publish([order(number) for number in range(60)])
        members = {f"{bee}@localhost": Affiliation.MEMBER for bee in BEES}
        await queues.set_affiliations(SERVICE, NODE, members)
        shared = []
        async with asyncio.TaskGroup() as group:
            for bee in BEES:
                client = await stack.enter_async_context(logged_in(server, bee))
                shared.append(Queue(client, SERVICE, NODE))
                group.create_task(shared[-1].run(partial(pack, bee), parallel=2))
            await all_ended(queues)
            for queue in shared:
                queue.stop()
        for bee in BEES:
            print(f"{bee}: {len(done[bee])} done, {failed[bee]} failed")
        numbers = sorted(number for bee in BEES for number in done[bee])
        assert numbers == [number for number in range(60) if number != 13]
        print(f"together: {len(numbers)} done, each once")
        async for letter in queues.browse(SERVICE, DEAD_LETTERS):
            print(f"dead after {len(letter.history)} deliveries: {letter.payload}")


if __name__ == "__main__":
    # Each failure is logged with its traceback; here the failures are intended.
    logging.getLogger("qos.worker").setLevel(logging.CRITICAL)
    asyncio.run(main())
