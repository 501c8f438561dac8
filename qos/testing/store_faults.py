"""The part of the contract of a store that is about failing and dying at every step."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from qos.core.message.effects import End, Forget, Save
from qos.core.message.model import OutgoingState
from qos.errors import StoreError
from qos.stores.base import Change, ForgetEnded, Remember, Store
from qos.testing.store_model import outcomes
from qos.testing.store_records import (
    ended,
    everything,
    incoming,
    opened,
    outgoing,
    write,
)

__all__ = ["Copies", "Fault", "FaultContract", "Probe", "at_each_step", "run"]

Probe: TypeAlias = Callable[[str], None]


class FaultContract:
    """The tests of a write that fails, and of a process that dies in it."""

    def new_store(self, folder: Path) -> Store:
        """A store that is not open yet and keeps its data in this folder.

        Another call with the same folder returns another store for the same data.
        """
        raise NotImplementedError

    def watch(self, store: Store, probe: Probe) -> None:
        """Call `probe` before each step on the disk, in the thread that makes the step.

        If it raises an OSError, the step must fail with that error. A store without
        such a hook does nothing here; the tests that need it then pass.
        """
        if hasattr(store, "probe"):
            store.probe = probe

    #: The contents before, and one write to them: all of it must be there, or none.
    BEFORE: Sequence[Change] = (
        Save(outgoing(1)),
        Save(outgoing(2, state=OutgoingState.OFFERED)),
        End(ended(0)),
        Save(incoming("old")),
        Remember("resource", "1"),
    )
    CHANGES: Sequence[Sequence[Change]] = (
        [Save(outgoing(3))],
        [Save(outgoing(1, state=OutgoingState.OFFERED))],
        [Forget(outgoing(1))],
        [Forget(outgoing(2))],
        [End(ended(2))],
        [ForgetEnded(before=0.0, below=1)],
        [Remember("resource", "2")],
        [
            Save(outgoing(3)),
            End(ended(2)),
            ForgetEnded(before=0.0, below=1),
            Save(outgoing(1, state=OutgoingState.OFFERED)),
            Save(incoming("new")),
            Forget(incoming("old")),
            Remember("resource", "2"),
        ],
    )

    @pytest.mark.parametrize("changes", CHANGES)
    def test_a_write_that_fails_at_any_step_changes_nothing(
        self, tmp_path: Path, changes: Sequence[Change]
    ) -> None:
        """The disk is full for one step; then there is space again."""
        before, after = outcomes(self.BEFORE, changes)

        async def fails_at(step: int) -> bool:
            folder = tmp_path / str(step)
            folder.mkdir()
            store = self.new_store(folder)
            fault = Fault(step)
            async with opened(store):
                await write(store, *self.BEFORE)
                self.watch(store, fault)
                try:
                    await write(store, *changes)
                    message, expected = store.url, [after]
                except StoreError as error:
                    message = str(error)
                    expected = [before]
                assert store.url in message
                snapshot = everything(store)
                try:
                    await write(store, Remember("more", "x"))
                    assert snapshot == expected[0][:3]
                except StoreError:
                    # Either is possible; see Store.write.
                    expected = [before, after]
            again = self.new_store(folder)
            async with opened(again) as contents:
                contents.remembered.pop("more", None)
                assert (*everything(again), contents.remembered) in expected
            return fault.hit

        if self.new_store(tmp_path).durable:
            run(at_each_step(fails_at))

    @pytest.mark.parametrize("changes", CHANGES)
    def test_a_process_that_dies_at_any_step_leaves_all_or_none(
        self, tmp_path: Path, changes: Sequence[Change]
    ) -> None:
        """Even if the next process dies during its recovery."""
        before_and_after = outcomes(self.BEFORE, changes)

        async def survives(copies: Copies, *, then_dies: bool) -> None:
            for folder in sorted(copies.to.iterdir()):
                store = self.new_store(folder)
                again = Copies(
                    folder, to=copies.to.with_name(f"{copies.to.name}-{folder.name}")
                )
                if then_dies:
                    self.watch(store, again)
                async with opened(store) as contents:
                    assert (*everything(store), contents.remembered) in before_and_after
                    self.watch(store, lambda _step: None)
                    await write(store, Save(outgoing(99)))
                async with opened(self.new_store(folder)) as reopened:
                    count = contents.outbox_messages + 1
                    assert reopened.outbox_messages == count
                if then_dies:
                    await survives(again, then_dies=False)

        async def scenario() -> None:
            (tmp_path / "live").mkdir()
            store = self.new_store(tmp_path / "live")
            copies = Copies(tmp_path / "live", to=tmp_path / "left")
            async with opened(store):
                await write(store, *self.BEFORE)
                self.watch(store, copies)
                await write(store, *changes)
            await survives(copies, then_dies=True)

        if self.new_store(tmp_path).durable:
            run(scenario())


def run(scenario: Coroutine[object, object, None]) -> None:
    """Run a scenario in an event loop of its own."""
    asyncio.run(scenario)


async def at_each_step(fails_at: Callable[[int], Awaitable[bool]]) -> None:
    """Let a disk fail at the n-th step, for n = 0, 1, 2 … until no step is left."""
    step = 0
    while await fails_at(step):
        step += 1


class Fault:
    """A disk that is full at the n-th step only."""

    def __init__(self, step: int) -> None:
        self._left = step
        self._lock = threading.Lock()
        self.hit = False

    def __call__(self, step: str) -> None:
        """A step: see StoreContract.watch."""
        with self._lock:
            self._left -= 1
            if self._left == -1:
                self.hit = True
                raise OSError(errno.ENOSPC, f"No space left on device, at {step!r}")


class Copies:
    """A copy of a folder before each step, as a process that dies there leaves it."""

    def __init__(self, live: Path, *, to: Path) -> None:
        self.to = to
        self._live = live
        self._lock = threading.Lock()
        self._count = 0
        to.mkdir()

    def __call__(self, step: str) -> None:
        """A step: see StoreContract.watch."""
        with self._lock:
            copy = self.to / f"{self._count:03d}"
            # Another thread may be in the middle of its step. A file that is being
            # renamed might be copied under neither name, a state that no process
            # leaves.
            while not self._is_copied(copy):
                shutil.rmtree(copy, ignore_errors=True)
            self._count += 1

    def _is_copied(self, copy: Path) -> bool:
        before = _names(self._live)
        try:
            shutil.copytree(self._live, copy)
        except (shutil.Error, FileNotFoundError):
            return False
        return before == _names(copy) == _names(self._live)


def _names(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}
