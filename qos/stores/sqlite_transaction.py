"""A transaction of an application on a SQLite store: see qos.stores.base.Transaction.

It takes the place of one of the store's commits, so all writes of others wait for it,
and the application must not wait for them. For example, a message that it sends in the
transaction is not written before the transaction has ended. Such a write is refused,
since it would wait for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextvars import ContextVar
from typing import Any, TypeVar

from qos.errors import LocalProtocolError, StoreError
from qos.stores.base import Change, Parameters, Store
from qos.stores.group_commit import GroupCommit
from qos.stores.sqlite_application import ApplicationConnection

__all__ = ["SqliteTransaction", "refusal_inside"]

_T = TypeVar("_T")

#: The transaction of the handler that is running.
_current: ContextVar[SqliteTransaction | None] = ContextVar("transaction", default=None)


class SqliteTransaction:
    """One transaction; made by the store, used once."""

    def __init__(
        self,
        store: Store,
        commits: GroupCommit[Change],
        thread: Executor,
        connect: Callable[[], ApplicationConnection],
        commit: Callable[[Sequence[Change], Callable[[], None] | None], None],
    ) -> None:
        """Take two functions of the store, for its thread: `connect` and `commit`."""
        self._store = store
        self._commits = commits
        self._thread = thread
        self._connect = connect
        self._commit = commit
        self._begun = self._ended = False
        # Statements that are given at the same time begin only one transaction.
        self._beginning = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """See Transaction."""
        return self._begun and not self._ended

    async def begin(self) -> None:
        """See Transaction."""
        _current.set(self)
        async with self._beginning:
            self._check_not_ended()
            if not self._begun:
                await self._commits.take_turn()
                if self._ended:  # it has ended while this call waited
                    self._commits.end_turn()
                    self._check_not_ended()
                # From here on write or rollback gives the turn back.
                self._begun = True
                await self._run(lambda: self._connect().begin())

    async def execute(
        self, sql: str, parameters: Parameters = ()
    ) -> list[tuple[Any, ...]]:
        """See Transaction."""
        await self.begin()
        self._check_not_ended()
        return await self._run(lambda: self._connect().execute(sql, parameters))

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """See Transaction."""
        self._check_not_ended()
        self._ended = True
        if not self._begun:
            return self._store.write(changes)
        before = self._commits.journal.commit_begins()
        committed = self._run(lambda: self._commit(changes, before))

        def ended(_committed: object) -> None:
            self._commits.turn_committed()
            self._commits.end_turn()

        committed.add_done_callback(ended)
        return committed

    def rollback(self) -> None:
        """See Transaction."""
        if self.is_open:
            undone = self._run(lambda: self._connect().rollback())
            undone.add_done_callback(lambda _undone: self._commits.end_turn())
        self._ended = True

    def _run(self, call: Callable[[], _T]) -> asyncio.Future[_T]:
        """Run in the writer's thread; a waiting caller may be cancelled."""
        return asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _check_not_ended(self) -> None:
        if self._ended:
            raise LocalProtocolError("the transaction has ended")


def refusal_inside(store: Store) -> StoreError | None:
    """The error of a write that would wait for its own transaction, or None."""
    current = _current.get()
    if current is None or not current.is_open or current._store is not store:
        return None
    return StoreError(
        store.url,
        "a transaction is open here, which this write would have to wait for: "
        "send before its first statement, or after the handler",
    )
