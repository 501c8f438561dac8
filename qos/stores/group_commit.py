"""Group commit: one commit at a time, shared by the stores on disk.

A commit waits for the disk, which needs about the same time for one change or a
hundred. So there is one commit at a time, and all changes written meanwhile go into the
next one.

A transaction of an application takes the turn of a commit: no commit begins until it
has ended, and after it a commit of the store comes first.

If there is a journal (`qos.journal`), each commit first gives the kernel every line
that was noted before the commit was put together. This happens in the thread that then
waits for the disk: another change of thread would cost more than the lines. The code
that changes a record notes the change *before* it writes the record into the store. So:

- After a kill before the commit, the store does not have the change, and the journal
  perhaps does. After the restart the store decides: either the same happens again and
  is noted again, under another boot (a message that was being settled is settled
  again), or something else happens, and that is noted. The only thing that would not be
  noted is a beginning: a message that only the journal knows. The writer finds these
  when it takes over the files of the dead boot, which are hidden until the commits of
  their lines have ended. The engines note for each that it was not stored
  (`qos.journal.messages.not_stored`).
- After a kill after the commit, the journal has all of it: the store never has a change
  that the journal does not have.
- Lines about things that are in no store, such as a repeated offer, are not waited for.
  The kernel gets them soon after.

So the journal is always ahead, and of its lines about one message the last counts. A
commit that fails is the same case without the restart. A store in memory has no
commits, and nothing waits: when its process dies, journal and store end together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Generic, TypeAlias, TypeVar

from qos.stores.base import Journal, NoJournal

__all__ = ["GroupCommit", "Start"]

#: The kind of changes of a store.
_Change = TypeVar("_Change")

#: Starts a commit of changes, off the event loop; before it, the work of the journal.
Start: TypeAlias = Callable[
    [list[_Change], Callable[[], None] | None], asyncio.Future[None]
]


class GroupCommit(Generic[_Change]):
    """Makes one commit of everything that is written during another.

    There is no task and nothing to start: a write costs the caller an append, and the
    end of a commit begins the next one.

    Attributes:
        journal: must be ahead of each commit.
    """

    def __init__(self, start: Start[_Change]) -> None:
        """Take the function that starts a commit; its future must not be cancelled."""
        self.journal: Journal = NoJournal()
        self._start = start
        self._enter(None)

    def _enter(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Begin in this loop.

        Work that was left in another loop can never be finished.
        """
        self._loop = loop
        self._changes: list[_Change] = []
        self._future: _Shared | None = None
        self._committing: _Shared | None = None
        self._busy = False
        #: The transactions that wait for a turn, and the one whose turn it is.
        self._turns: deque[asyncio.Future[None]] = deque()
        self._turn: asyncio.Future[None] | None = None

    def write(self, changes: Sequence[_Change]) -> asyncio.Future[None]:
        """Put the changes into the next commit; all of its writes share the future."""
        loop = self._running_loop()
        if self._future is None:
            future = _Shared(loop=loop)
            if not self._busy:
                self.journal.commit_wanted()
                self._next_soon(loop)
                self._busy = True
            # Last: after an error of the journal the next write begins anew.
            self._future = future
        self._changes.extend(changes)
        return self._future

    async def take_turn(self) -> None:
        """Wait until no commit runs; none begins then before `end_turn`."""
        loop = self._running_loop()
        if not self._busy:
            self._busy = True
            # Lines noted from now on may belong to a commit that has to wait.
            self.journal.commit_wanted()
            self._turn = loop.create_future()
            return
        turn = loop.create_future()
        self._turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.end_turn()
            raise

    def turn_committed(self) -> None:
        """Note that a commit made within the turn has ended.

        Call it before `end_turn`.
        """
        # Changes that others have written meanwhile were not in it; then lines noted
        # before it belong to the next commit.
        if self._future is None:
            self.journal.commit_ended(idle=False)

    def end_turn(self) -> None:
        """Let other commits and transactions go on."""
        assert self._turn is not None
        self._turn.get_loop().call_soon(self._turn_ended)
        self._turn.set_result(None)
        self._turn = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._enter(loop)
        return loop

    async def drain(self) -> None:
        """Wait until nothing is being written, whether it succeeds or fails."""
        if asyncio.get_running_loop() is not self._loop:
            return
        while (last := self._future or self._committing or self._turn) is not None:
            await asyncio.wait([last])

    def _next(self) -> None:
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                self._turn = turn.get_loop().create_future()
                turn.set_result(None)
                return
        self._commit()

    def _turn_ended(self) -> None:
        if self._future is not None:
            self._commit()
        else:
            self._next()

    def _commit(self) -> None:
        future, changes = self._future, self._changes
        self._future, self._changes = None, []
        self._committing = future
        if future is None:
            self._busy = False
            self.journal.commit_ended(idle=True)
            return
        try:
            commit = self._start(changes, self.journal.commit_begins())
        except Exception as error:  # noqa: BLE001 - or its writers would wait for ever
            self._end(future, error)
        else:
            commit.add_done_callback(lambda done: self._end(future, done.exception()))

    def _end(self, future: _Shared, error: BaseException | None) -> None:
        self._committing = None
        try:
            self.journal.commit_ended(idle=False)
        finally:
            # Whatever happens to the journal: else all writers would wait for ever.
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
            self._next_soon(future.get_loop())

    def _next_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Go on after this turn of the loop and the next one.

        In the first the writers wake. In the second those wake whom they have told of
        an end, and give their next message; and what has come in meanwhile is read. All
        that they write joins.
        """
        loop.call_soon(loop.call_soon, self._next)


#: Called with the future of a commit when it is done.
_Callback: TypeAlias = "Callable[[_Shared], object]"


class _Shared(asyncio.Future[None]):
    """The future of a commit: one of its writers cannot cancel it for the others.

    The loop wakes once for all its callbacks: a commit may have hundreds.
    """

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._together: list[tuple[_Callback, Context]] = []

    def add_done_callback(
        self, fn: _Callback, /, *, context: Context | None = None
    ) -> None:
        """See asyncio.Future."""
        if self.done():
            super().add_done_callback(fn, context=context)
            return
        if not self._together:
            super().add_done_callback(_Shared._call)
        self._together.append((fn, context or copy_context()))

    def remove_done_callback(self, fn: _Callback, /) -> int:
        """See asyncio.Future."""
        rest = [entry for entry in self._together if entry[0] != fn]
        removed, self._together = len(self._together) - len(rest), rest
        return removed + super().remove_done_callback(fn)

    def _call(self) -> None:
        together, self._together = self._together, []
        for callback, context in together:
            try:
                context.run(callback, self)
            except Exception as error:  # noqa: BLE001 - or the others would not be called
                message = f"an error in {callback!r}"
                report = {"message": message, "exception": error, "future": self}
                self.get_loop().call_exception_handler(report)

    def cancel(self, msg: object = None) -> bool:
        """Refuse. A waiting task is cancelled when the commit is done."""
        return False
