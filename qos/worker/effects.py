"""Effects of a job in an SQLite database of the application: each exactly once.

::

    async def handle(job: Job) -> None:  # the handler of Worker.run
        async with job.effects(db) as effects:
            effects.execute("INSERT INTO invoices VALUES (?, ?)", (number, amount))

No order of two commits would do. Effects before the retract are doubled when it is
refused; effects after it are lost when the process dies in between. So there are three
steps, of which the middle one is the service's:

1. The statements are written into a table of the database as *prepared*, on disk.
2. The item is retracted, with the token of the delivery.
3. In one transaction the statements are executed, and replaced by a mark that they
   were. The mark is needed because the event of this delivery may come again, to a
   worker that was started again.

        killed before 1    nothing has happened; the item comes again
        killed after 1     `recover` repeats the retract. If the lock has ended, the retract is
                           refused and the statements are dropped. If the item is still
                           locked, it is accepted and the statements are executed
        killed after 2     `recover` repeats the retract; the service knows the token that
                           settled the item and answers the same; they are executed
        killed after 3     nothing is left to do

A lock that has ended never comes back, and tokens are random. So a refusal with
`item-not-found` or `unexpected-request` is final, and only after such a refusal are the
statements dropped. Nothing else decides anything, and they stay prepared: neither a
`conflict` with the lock of another worker of the account, nor the answer of a server in
place of the service, nor the lack of an answer.

**What can repeat: nothing. What can be lost: the effects of an item whose retract was
sent by a process that died then, if `recover` did not run while the service remembers
the token: one hour, or the node's `queue#dedupe_window` if that is longer;** also if
the node was deleted meanwhile. A statement that fails in step 3, though it succeeded
when it was tried in step 1, stays prepared.

`Worker(effects_db=…)` calls `recover` before it takes any item, and then each time it
subscribes; otherwise the application must call it. It handles the prepared effects of
the worker's own service, account and node. Several workers may share a database file:
the first that comes takes a row.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from qos.core.queue.item import ItemOutcome
from qos.core.wall_clock import ClockHistory, shift
from qos.errors import JobLost, LocalProtocolError
from qos.stores.base import Parameters, Value
from qos.stores.sqlite_guard import Guard

__all__ = ["FINAL", "Effects", "Key", "apply", "drop", "prepare", "prepared"]

#: The refusals that mean: this token has settled nothing, and will settle nothing.
FINAL = frozenset({"item-not-found", "unexpected-request"})

_TABLE = """
CREATE TABLE IF NOT EXISTS main.xmpp_qos_prepared (
    service TEXT NOT NULL,
    account TEXT NOT NULL,
    node TEXT NOT NULL,
    item_id TEXT NOT NULL,
    token TEXT NOT NULL,
    statements TEXT NOT NULL,
    prepared_at REAL NOT NULL,
    PRIMARY KEY (service, account, node, item_id, token)
)
"""

#: By how much the times in that table have moved, in one row; see qos.core.wall_clock.
_CLOCK_TABLE = """
CREATE TABLE IF NOT EXISTS main.xmpp_qos_clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    moved_s REAL NOT NULL,
    behind_s REAL NOT NULL
)
"""

_THIS = "service = ? AND account = ? AND node = ? AND item_id = ? AND token = ?"

_OWN_TABLES = ("xmpp_qos_prepared", "xmpp_qos_clock")

_FULL = 2

#: Replaces the statements of a delivery whose effects are done. Its event may come
#: again, to a worker that was started again; the service, which knows the token, would
#: again answer that the item is accepted.
_DONE = ""

#: How long that mark is kept. A server does not hold a stanza for longer.
_REMEMBERED_S = 7 * 24 * 3600.0

Statement: TypeAlias = tuple[str, Parameters]


@dataclass(frozen=True, slots=True)
class Key:
    """One delivery of one item to one account."""

    service: str
    account: str
    node: str
    item_id: str
    token: str

    def columns(self) -> tuple[str, ...]:
        """The values as the columns of the table."""
        return (self.service, self.account, self.node, self.item_id, self.token)


class EffectsJob(Protocol):
    """A job, as its effects know it; see Job."""

    id: str
    node: str
    token: str
    outcome: ItemOutcome | None

    def check_held(self) -> None:
        """Raise JobLost if the job is lost."""

    async def accept(self) -> None:
        """Accept the job, or raise JobLost."""


class Effects:
    """The effects of a job: they happen if, and only if, the job is accepted.

    On a clean exit of the block the job is accepted, and the effects happen. On an
    exception nothing is recorded.

    The connection must not be in a transaction of the application then (with
    `autocommit=False`, of Python 3.12, it always is). An authorizer that the
    application has set on it is removed. Commits take their time on disk, and the event
    loop waits meanwhile.
    """

    def __init__(
        self, job: EffectsJob, db: sqlite3.Connection, *, service: str, by: str
    ) -> None:
        self._job = job
        self._db = db
        self._key = Key(service, by, job.node, job.id, job.token)
        self._statements: list[Statement] = []

    def execute(self, sql: str, parameters: Parameters = ()) -> None:
        """Record a statement, to be executed when the job is accepted.

        Args:
            sql: one statement that changes tables of the application in this file.
                qos.stores.sqlite_guard says what else is allowed: for example no
                `COMMIT`, `ATTACH` or `PRAGMA`, and no temporary table. A forbidden
                statement is refused at the end of the block, before the item is
                accepted.
            parameters: its values: None, int, float, str or bytes.

        Raises:
            LocalProtocolError: a value is of another type.
        """
        _packed([(sql, parameters)])
        self._statements.append((sql, parameters))

    async def __aenter__(self) -> Self:
        if not self._key.token:
            raise LocalProtocolError(
                f"item {self._job.id!r} has no token: the service cannot tell "
                "whether it was this delivery that settled it"
            )
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Accept the job, and execute the statements.

        Raises:
            JobLost: the job was not accepted, and nothing was done; or the result is
                not known, and `Worker.recover` will finish it.
            LocalProtocolError: the job was settled before, or a statement is forbidden
                for effects; nothing was done.
            sqlite3.Error: the statements cannot be executed. Nothing was done, unless
                `job.outcome` is accepted: then they stay prepared.
        """
        if exc is not None:
            return
        job = self._job
        if job.outcome is not None:
            raise LocalProtocolError(
                f"item {job.id!r} has been {job.outcome.value} before its effects"
            )
        job.check_held()
        prepare(self._db, self._key, self._statements)
        try:
            await job.accept()
        except JobLost as lost:
            if lost.condition in FINAL:
                drop(self._db, self._key)
            raise
        apply(self._db, self._key)


# -- the table -------------------------------------------------------------


def prepare(db: sqlite3.Connection, key: Key, statements: Sequence[Statement]) -> None:
    """Try the statements, and write them down; on return they are on disk.

    Raises:
        LocalProtocolError: the connection is in a transaction, or a statement is
            forbidden for effects; nothing was written.
        sqlite3.Error: they fail, or cannot be written; nothing was written.
    """
    packed = _packed(statements)
    with _synchronous(db):
        with _transaction(db, keep=False):
            _execute(db, statements)
        with _transaction(db):
            db.execute(_TABLE)
            db.execute(
                "INSERT OR IGNORE INTO main.xmpp_qos_prepared"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*key.columns(), packed, time.time()),
            )


def apply(db: sqlite3.Connection, key: Key) -> bool:
    """Execute prepared statements, once; False: they were executed before.

    Raises:
        LocalProtocolError: the connection is in a transaction, or a statement is
            forbidden for effects; all stays prepared.
        sqlite3.Error: a statement fails; all stays prepared.
    """
    with _transaction(db):
        rows = _rows(
            db,
            f"SELECT statements FROM main.xmpp_qos_prepared WHERE {_THIS}",  # noqa: S608
            key.columns(),
        )
        if not rows or rows[0][0] == _DONE:
            return False
        db.execute(
            f"UPDATE main.xmpp_qos_prepared SET statements = ? WHERE {_THIS}",  # noqa: S608
            (_DONE, *key.columns()),
        )
        _execute(db, _unpacked(rows[0][0]))
    return True


def drop(db: sqlite3.Connection, key: Key) -> None:
    """Forget prepared statements, since the job was not accepted."""
    with _transaction(db):
        _forget(db, key)


def prepared(
    db: sqlite3.Connection, *, service: str, account: str, node: str
) -> list[Key]:
    """The prepared deliveries, oldest first; also removes old marks.

    Marks are removed here, and not for each job, since that looks at the whole table.
    """
    with _transaction(db):
        db.execute(_TABLE)
        now = time.time()
        _move(db, now)
        db.execute(
            "DELETE FROM main.xmpp_qos_prepared WHERE statements = ? AND prepared_at < ?",
            (_DONE, now - _REMEMBERED_S),
        )
        rows = _rows(
            db,
            "SELECT item_id, token FROM main.xmpp_qos_prepared WHERE service = ? "
            "AND account = ? AND node = ? AND statements <> ? ORDER BY prepared_at",
            (service, account, node, _DONE),
        )
    return [Key(service, account, node, row[0], row[1]) for row in rows]


def _move(db: sqlite3.Connection, now: float) -> None:
    """Move the times of the marks with a clock that was set: none is older for that."""
    db.execute(_CLOCK_TABLE)
    rows = _rows(db, "SELECT moved_s, behind_s FROM main.xmpp_qos_clock")
    history = ClockHistory(*rows[0]) if rows else ClockHistory()
    newest = _rows(db, "SELECT MAX(prepared_at) FROM main.xmpp_qos_prepared")
    by_s, history = shift(newest[0][0], now, history)
    if by_s:
        db.execute(
            "UPDATE main.xmpp_qos_prepared SET prepared_at = prepared_at + ?", (by_s,)
        )
        db.execute(
            "INSERT OR REPLACE INTO main.xmpp_qos_clock VALUES (1, ?, ?)",
            (history.moved_s, history.behind_s),
        )


def _execute(db: sqlite3.Connection, statements: Sequence[Statement]) -> None:
    """Execute the application's statements."""
    guard = Guard(_OWN_TABLES)
    guard.install(db)
    try:
        for sql, parameters in statements:
            guard.execute(db, sql, parameters)
    finally:
        db.set_authorizer(None)


def _rows(
    db: sqlite3.Connection, sql: str, parameters: Sequence[str] = ()
) -> list[tuple[Any, ...]]:
    """Rows in sqlite3's default form, whatever the application has set for its own."""
    cursor = db.cursor()
    cursor.row_factory = None
    before, db.text_factory = db.text_factory, str
    try:
        return cursor.execute(sql, parameters).fetchall()
    finally:
        db.text_factory = before


def _forget(db: sqlite3.Connection, key: Key) -> None:
    db.execute(
        f"DELETE FROM main.xmpp_qos_prepared WHERE {_THIS}",  # noqa: S608 - a constant
        key.columns(),
    )


@contextmanager
def _transaction(db: sqlite3.Connection, *, keep: bool = True) -> Iterator[None]:
    """A transaction of ours; nothing inside may wait for anything but the disk."""
    if db.in_transaction:
        raise LocalProtocolError(
            "the connection is in a transaction: commit it first, or give the "
            "effects a connection of their own"
        )
    # Begin at once, so that this line is the one that waits for other writers.
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        if keep:
            db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


@contextmanager
def _synchronous(db: sqlite3.Connection) -> Iterator[None]:
    """Put commits on disk before they return, whatever the application has set."""
    before = int(_rows(db, "PRAGMA synchronous")[0][0])
    if before >= _FULL or db.in_transaction:
        yield
        return
    db.execute(f"PRAGMA synchronous = {_FULL}")
    try:
        yield
    finally:
        db.execute(f"PRAGMA synchronous = {before}")


# -- statements as text ----------------------------------------------------


def _packed(statements: Sequence[Statement]) -> str:
    packed: list[Any] = []
    for sql, parameters in statements:
        values: Any
        if isinstance(parameters, Mapping):
            values = {name: _value(parameter) for name, parameter in parameters.items()}
        else:
            values = [_value(parameter) for parameter in parameters]
        packed.append([sql, values])
    return json.dumps(packed)


def _value(value: Value) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if value is None or isinstance(value, int | float | str):
        return value
    raise LocalProtocolError(f"{type(value).__name__} is no value of a statement")


def _unpacked(packed: str) -> list[Statement]:
    return [(sql, _unpacked_values(values)) for sql, values in json.loads(packed)]


def _unpacked_values(values: Any) -> Parameters:
    if isinstance(values, dict):
        return {name: _unpacked_value(value) for name, value in values.items()}
    return [_unpacked_value(value) for value in values]


def _unpacked_value(value: Any) -> Any:
    if isinstance(value, dict):
        return base64.b64decode(value["bytes"])
    return value
