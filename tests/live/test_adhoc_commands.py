"""Commands on a real Prosody, by a stock client: slixmpp's plugins of XEP-0050 and XEP-0004."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adhoc_client import Operator
from clients import connected_client
from qos.testing.prosody import Prosody
from queue_service import EAGER, Served, item, peers, served, unlock

NODE = "orders"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def operator(queues: Served, user: str = "alice") -> AsyncIterator[Operator]:
    async with connected_client(queues.server, f"{user}/desk") as client:
        yield Operator(client, queues.jid)


async def works(alice: Operator, queues: Served) -> None:
    """All that an operator needs, without a program of ours on his side."""
    await alice.execute("create")
    await alice.go_on(node=NODE, **EAGER)
    assert (alice.status, alice.note) == ("completed", "Created 'orders'.")
    assert {"queues", "dead", "purge"} <= set(await alice.listed())
    async with peers(queues, "alice/raw") as (raw,):
        await raw.publish(NODE, *(item(f"i{number}") for number in range(3)))
        await raw.subscribe(NODE, 1)
        dead = await raw.item()
        await raw.done(unlock(NODE, dead.named, content="<q:rejected/>"))
        await raw.until_stats(NODE, dead="1")
    await alice.execute("queues")
    (row,) = alice.rows
    assert (row["node"], row["dead"]) == (NODE, "1")
    await alice.execute("queue")
    await alice.go_on(node=NODE)
    assert (alice.values["dead"], alice.values["accepted"]) == ("1", "0")
    await alice.execute("browse")
    await alice.go_on("next", node=NODE)
    assert {row["id"] for row in alice.rows} == {"i0", "i1", "i2"} - {dead.id}
    await alice.execute("dead")
    await alice.go_on("next", node=NODE)
    assert alice.options("items") == [dead.id]
    await alice.go_on("complete", items=[dead.id])
    assert alice.note == "Requeued in 'orders': 1."
    await alice.execute("purge")
    await alice.go_on("next", node=NODE)
    why = await alice.refusal("complete")
    assert why == "nothing was done: check the box, or cancel"
    await alice.go_on("complete", confirm=True)
    assert alice.note == "Removed all items of 'orders'."
    await alice.execute("queue")
    await alice.go_on(node=NODE)
    assert (alice.values["available"], alice.values["dead"]) == ("0", "0")


async def test_an_operator_works_with_a_component(queues: Served) -> None:
    async with operator(queues) as alice:
        await works(alice, queues)


async def test_an_operator_works_with_the_service_of_an_account(
    server: Prosody, tmp_path: Path
) -> None:
    """Its items and features are those of a full JID."""
    async with (
        served(server, tmp_path, jid="carol@localhost/queue") as queues,
        operator(queues) as alice,
    ):
        await works(alice, queues)


async def test_the_largest_pages_fit_into_a_stanza(queues: Served) -> None:
    """Prosody would end the stream of the service at more than 256 KiB."""
    names = [f"{number:02}{'&' * 900}" for number in range(25)]
    async with peers(queues, "alice/raw") as (raw,):
        for name in names:
            await raw.create(name)
        ids = [f"{number:03}{'<' * 1000}" for number in range(40)]
        for item_id in ids:
            await raw.publish(names[0], item(item_id, "<" * 9000))
        async with operator(queues) as alice:
            await alice.execute("queues")
            shown = alice.names
            while alice.status == "executing":
                await alice.go_on("next")
                shown += alice.names
            assert shown == names
            form = await alice.execute("browse")
            assert form["instructions"].startswith("There are 25 queues")
            await alice.go_on("next", node=names[0])
            cells = alice.names
            while alice.status == "executing":
                await alice.go_on("next")
                cells += alice.names
            assert [cell[:3] for cell in cells] == [item_id[:3] for item_id in ids]
