"""The part of the contract of a store that is about clocks that were set."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from qos.core.message.effects import End, Save
from qos.core.message.model import IncomingState, OutgoingState
from qos.core.wall_clock import ClockHistory, shift
from qos.errors import StoreError
from qos.stores.base import Change, Contents, Remember, Store
from qos.stores.times import moved
from qos.testing.store_faults import Copies, Fault, FaultContract, at_each_step, run
from qos.testing.store_records import (
    ended,
    everything,
    incoming,
    opened,
    outgoing,
    write,
)

__all__ = ["ClockContract"]

#: The newest time in the store.
_NEWEST = 1_800_000_000.5
_OUTGOING = (
    outgoing(1, expires_at=_NEWEST + 60.0),
    outgoing(2, state=OutgoingState.OFFERED),
    outgoing(3),
)
_ENDED = ended(0, ended_at=_NEWEST)
_INCOMING = (
    incoming("old", state=IncomingState.DONE, payload=""),
    incoming("new", changed_at=_NEWEST - 1.0),
)
_RECORDS: tuple[Change, ...] = (
    *map(Save, _OUTGOING),
    *map(Save, _INCOMING),
    End(_ENDED),
    Remember("resource", "1"),
)


class ClockContract(FaultContract):
    """The tests of a store that is opened at a time that does not fit to its times."""

    @pytest.mark.parametrize("later_s", [0.0, 60.0, 360 * 86_400.0])
    def test_the_times_stay_while_the_clock_fits(
        self, tmp_path: Path, later_s: float
    ) -> None:
        """The time between two processes counts: what is old is forgotten."""

        async def scenario() -> None:
            await self._fill(tmp_path)
            async with opened(self.new_store(tmp_path)) as expected:
                pass
            store = self.new_store(tmp_path)
            async with opened(store, _NEWEST + later_s) as contents:
                assert contents == expected
                assert everything(store) == _moved(0.0)

        if self.new_store(tmp_path).durable:
            run(scenario())

    @pytest.mark.parametrize("now", [12.0, _NEWEST - 0.25, _NEWEST - 5e4, 4e9])
    def test_all_times_move_with_a_clock_that_was_set(
        self, tmp_path: Path, now: float
    ) -> None:
        """Nobody knows how long it took, and nothing is forgotten for it."""
        by_s = now - _NEWEST

        async def scenario() -> None:
            await self._fill(tmp_path)
            store = self.new_store(tmp_path)
            async with opened(store, now) as contents:
                assert contents.incoming == [moved(each, by_s) for each in _INCOMING]
                assert contents.outgoing == [moved(_OUTGOING[1], by_s)]
                self._check(store, contents, by_s)
            # The time by which it comes forward again does not count.
            then_s, _ = shift(now, now + 60.0, ClockHistory(by_s, -by_s))
            for again, more_s in ((None, 0.0), (now, 0.0), (now + 60.0, then_s)):
                store = self.new_store(tmp_path)
                async with opened(store, again) as contents:
                    self._check(store, contents, by_s + more_s)

        if self.new_store(tmp_path).durable:
            run(scenario())

    def test_times_move_there_and_back(self, tmp_path: Path) -> None:
        """A device may begin in 1970 at each start, and be set right after some."""

        async def scenario() -> None:
            await self._fill(tmp_path)
            for now in (12.0, 3.0, _NEWEST + 5.0, _NEWEST):
                async with opened(store := self.new_store(tmp_path), now):
                    assert everything(store) == _moved(now - _NEWEST)

        if self.new_store(tmp_path).durable:
            run(scenario())

    def test_a_clock_that_was_an_hour_behind_comes_back(self, tmp_path: Path) -> None:
        """No hour has passed meanwhile; and what passes from then on counts."""

        async def scenario() -> None:
            await self._fill(tmp_path)
            for ahead_s in (-7200.0, -3600.0, 0.0):
                store = self.new_store(tmp_path)
                async with opened(store, _NEWEST + ahead_s):
                    assert everything(store) == _moved(ahead_s)
            async with opened(store := self.new_store(tmp_path), _NEWEST + 60.0):
                assert everything(store) == _moved(0.0)

        if self.new_store(tmp_path).durable:
            run(scenario())

    def test_in_an_empty_store_no_time_moves(self, tmp_path: Path) -> None:
        """The first start of a device may be in 1970, and the second too."""

        async def scenario() -> None:
            for now in (_NEWEST, 12.0, 3.0):
                async with opened(self.new_store(tmp_path), now) as contents:
                    assert contents == Contents()

        run(scenario())

    def test_a_process_that_dies_while_times_move_leaves_all_or_none(
        self, tmp_path: Path
    ) -> None:
        """With half of them moved, the rest would look as old as a clock can lie."""
        now = 12.0

        async def scenario() -> None:
            (tmp_path / "live").mkdir()
            await self._fill(tmp_path / "live")
            store = self.new_store(tmp_path / "live")
            copies = Copies(tmp_path / "live", to=tmp_path / "left")
            self.watch(store, copies)
            async with opened(store, now):
                self.watch(store, lambda _step: None)
            for folder in sorted(copies.to.iterdir()):
                async with opened(store := self.new_store(folder)):
                    contents_now = everything(store)
                assert contents_now in (_moved(0.0), _moved(now - _NEWEST))
                async with opened(store := self.new_store(folder), now):
                    assert everything(store) == _moved(now - _NEWEST)

        if self.new_store(tmp_path).durable:
            run(scenario())

    def test_a_disk_that_fails_while_times_move_is_no_end(self, tmp_path: Path) -> None:
        """The next start moves all of them."""
        now = 12.0

        async def fails_at(step: int) -> bool:
            folder = tmp_path / str(step)
            folder.mkdir()
            await self._fill(folder)
            store = self.new_store(folder)
            fault = Fault(step)
            self.watch(store, fault)
            with contextlib.suppress(StoreError):
                async with opened(store, now):
                    self.watch(store, lambda _step: None)
            async with opened(store := self.new_store(folder), now):
                assert everything(store) == _moved(now - _NEWEST)
            return fault.hit

        if self.new_store(tmp_path).durable:
            run(at_each_step(fails_at))

    async def _fill(self, folder: Path) -> None:
        async with opened(store := self.new_store(folder)):
            await write(store, *_RECORDS)

    def _check(self, store: Store, contents: Contents, by_s: float) -> None:
        assert everything(store) == _moved(by_s)
        first = moved(_OUTGOING[0], by_s)
        assert first.expires_at is not None
        assert store.next_expiry() == first.expires_at
        assert store.expiring(first.expires_at - 1.0, limit=9) == []
        assert store.expiring(first.expires_at, limit=9) == [first]
        assert contents.remembered == {"resource": "1"}
        assert (contents.outbox_messages, contents.next_seq) == (3, 4)


def _moved(by_s: float) -> tuple[object, object, object]:
    """The contents of the store when all times have moved."""
    return (
        [moved(each, by_s) for each in _OUTGOING],
        [moved(each, by_s) for each in _INCOMING],
        [moved(_ENDED, by_s)],
    )
