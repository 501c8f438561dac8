"""Names and ids as segments of a URL."""

import pytest

from qos.core.queue import owner_requests
from qos.core.queue.requests import Create, Delete, Publish
from qos.core.url_segments import SEGMENT_BYTES_MAX, segment_size, why_no_segment
from queue_world import NODE, OWNER, PLAIN, PUBLISHER, World, entry

BAD_REQUEST = ("bad-request", "modify", "")
LONG = "ü" * (SEGMENT_BYTES_MAX // 6)


@pytest.mark.parametrize("text", [".", "..", f"{LONG}u", "😀" * 1024])
def test_what_no_url_can_reach_is_no_name_and_no_id(text: str) -> None:
    """Clients take dots out of a path, quoted or not, and read lines of 8 KiB."""
    assert why_no_segment(text)
    it = World(PLAIN)
    assert it.refused(Create(text), OWNER) == BAD_REQUEST
    assert it.refused(Publish(NODE, (entry(text),)), PUBLISHER) == BAD_REQUEST
    assert not it.live()


@pytest.mark.parametrize("text", ["...", "a.", "/", "%2e", ":" * 1024, LONG])
def test_all_other_names_and_ids_are_possible(text: str) -> None:
    assert not why_no_segment(text)
    assert segment_size(text) <= SEGMENT_BYTES_MAX
    it = World(PLAIN)
    it.create(text, PLAIN)
    it.publish(text)
    assert text in it.live()


def test_a_store_that_has_such_a_name_opens_and_the_queue_can_be_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Earlier versions took it."""
    it = World(PLAIN)
    monkeypatch.setattr(owner_requests, "why_no_segment", lambda _: "")
    it.create("..", PLAIN)
    monkeypatch.undo()
    it.boot()
    it.publish(entry("a"), by=OWNER, node="..")
    assert "a" in it.live("..")
    it.ask(Delete(".."), OWNER)
    assert set(it.disk.nodes) == {NODE}
