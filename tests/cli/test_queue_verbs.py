"""Each verb of `queue`, against the service that `queue serve` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Commands


async def test_a_queue_is_filled_looked_at_and_emptied(queues: Commands) -> None:
    """From end to end, as its owner sees it."""
    published = await queues.queue("publish", "--lines", input_=b"one\ntwo\n")
    assert published.status == 0, published.err
    assert [line["line"] for line in published.out] == [1, 2]
    assert "2 of 2 lines are published" in published.err
    browsed = await queues.queue("browse")
    assert browsed.status == 0, browsed.err
    assert [item["id"] for item in browsed.out] == [item["id"] for item in published.out]
    print(browsed.out)
    stats = await queues.queue("stats")
    assert stats.status == 0, stats.err
    print(stats.out)
    for verb in ("configure", "affiliate", "dead list", "dead requeue", "purge", "delete"):
        ended = await queues.queue(verb)
        print(verb, ended)
        assert ended.status == 0, ended.err
