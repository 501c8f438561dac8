"""The ended messages that are still remembered."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from qos.core.message.model import Incoming, IncomingState, Level
from qos.core.message.tombstones import Tombstones
from qos.core.strings import bare


def ended(key: str, changed_at: float = 0.0, source: str = "door@x/a") -> Incoming:
    """The tombstone of a message that has ended."""
    return Incoming(
        key=key,
        msg_id=key,
        source=source,
        to="lamp@x/1",
        level=Level.ASSURED,
        payload="",
        size=1,
        received_at=0.0,
        changed_at=changed_at,
        state=IncomingState.DONE,
        mark="store-1",
        hold="h1",
    )


SOURCES = st.sampled_from(("a@x/1", "a@x/2", "b@x/1", "c@x/1"))


@given(st.integers(0, 6), st.lists(st.tuples(st.integers(0, 9), SOURCES), max_size=30))
def test_the_memory_is_bounded_and_says_what_falls_out_of_it(
    count_max: int, adds: list[tuple[int, str]]
) -> None:
    """An evicted tombstone must be removed from the disk as well."""
    tombstones = Tombstones(count_max=count_max, ttl_s=10)
    remembered: dict[str, Incoming] = {}
    for now, (number, source) in enumerate(adds):
        record = ended(f"{bare(source)}-{number}", float(now), source)
        if record.key in remembered:  # held anew: no tombstone any more
            tombstones.discard(remembered.pop(record.key))
        remembered[record.key] = record
        for evicted in tombstones.add(record):
            assert remembered.pop(evicted.key) == evicted
        assert len(tombstones) == len(remembered) <= count_max
        share = Counter(bare(one.source) for one in remembered.values())
        assert all(count <= max(1, count_max // 2) for count in share.values())
        oldest = min((one.changed_at for one in remembered.values()), default=None)
        assert tombstones.next_at() == (None if oldest is None else oldest + 10)


def test_an_account_that_sends_a_lot_evicts_its_own_memories_first() -> None:
    """Otherwise one account could make us forget the messages of others."""
    tombstones = Tombstones(count_max=4, ttl_s=10)
    assert tombstones.add(ended("quiet", source="quiet@x/1")) == []
    evicted = [
        old.key
        for number in range(4)
        for old in tombstones.add(ended(f"loud-{number}", source=f"loud@x/{number}"))
    ]
    assert evicted == ["loud-0", "loud-1"]


def test_when_the_whole_is_full_the_oldest_goes() -> None:
    """Whoever sent it."""
    tombstones = Tombstones(count_max=2, ttl_s=10)
    for source in ("a@x/1", "b@x/1"):
        assert tombstones.add(ended(source, source=source)) == []
    assert [old.key for old in tombstones.add(ended("c", source="c@x/1"))] == ["a@x/1"]


def test_what_has_had_its_time_is_forgotten_to_the_second() -> None:
    """A tombstone that is kept for ever fills a disk."""
    tombstones = Tombstones(count_max=10, ttl_s=10)
    one, two = ended("m1", 0.0), ended("m2", 5.0)
    tombstones.add(one)
    tombstones.add(two)
    assert tombstones.outlived(9.9) == []
    assert tombstones.next_at() == 10.0
    assert tombstones.outlived(10.0) == [one]
    assert tombstones.outlived(99.0) == [two]
    assert tombstones.next_at() is None
    assert len(tombstones) == 0


def test_discarding_what_is_not_remembered_does_nothing() -> None:
    """It may have been evicted just before."""
    tombstones = Tombstones(count_max=10, ttl_s=10)
    tombstones.discard(ended("m1"))
    assert len(tombstones) == 0


def test_an_account_keeps_its_share_under_every_resource() -> None:
    """A resource costs its owner nothing, so the share belongs to the account."""
    tombstones = Tombstones(count_max=2, ttl_s=10)
    first = ended("m1", source="a@x/1")
    tombstones.add(first)
    assert tombstones.add(ended("m2", source="a@x/2")) == [first]


def test_a_memory_is_found_under_its_key() -> None:
    """And only while it is remembered."""
    memories = Tombstones(count_max=4, ttl_s=10.0)
    record = ended("m1")
    memories.add(record)
    assert memories.get(record.key) is record
    memories.discard(record)
    assert memories.get(record.key) is None
