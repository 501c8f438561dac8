from pathlib import Path
from prosody import Prosody
from queue_service import served, peers, EAGER, item, retract
import pytest

@pytest.mark.parametrize("n", range(6))
async def test_a(prosody: Prosody, tmp_path: Path, n) -> None:
    async with served(prosody, tmp_path) as queues, peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create("orders", EAGER)
        await bob.subscribe("orders")
        print(await alice.publish("orders", item("1")))
        one = await bob.item()
        print(one)
        await bob.done(retract("orders", one.named))
        await bob.told("retract", "1")
        await bob.nothing()
        print(await alice.stats("orders"))
