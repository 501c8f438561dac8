"""The contract of a store, as tests that your own store can inherit.

::

    class TestMyStore(StoreContract):
        def new_store(self, folder: Path) -> Store:
            return MyStore(folder / "mine")

pytest then collects them. Needs pytest and hypothesis.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from qos.core.message.effects import End, Forget, Save
from qos.core.message.model import (
    Ended,
    Incoming,
    IncomingState,
    Level,
    Outgoing,
    OutgoingState,
    Rejection,
)
from qos.errors import StoreError, StoreInUse
from qos.stores.base import Change, Contents, ForgetEnded, Remember, Store, stored

__all__ = ["StoreContract", "ended", "incoming", "outgoing", "write"]

Probe: TypeAlias = Callable[[str], None]

#: Texts that are often handled wrongly: quotes, slashes, texts that look like a path or
#: SQL, the ends of the ranges that XML permits, and an id of 1 kB.
NASTY_TEXTS = (
    "'",
    '"; DROP TABLE outgoing; --',
    "../../etc/passwd",
    "a/b\\c",
    "\t\r\n x \u0085\u2028",
    "\U0001f4a1 lämp@exämple.org/\U0001f3e0",
    "\u0020\ud7ff\ue000\ufffd\U00010000\U0010ffff",
    "NULL",
    "%s?#&<>]]>",
    "\U0001f4a1" * 256,
)


def outgoing(seq: int, **changes: Any) -> Outgoing:
    """A message of the outbox."""
    record = Outgoing(
        msg_id=f"msg-{seq}",
        seq=seq,
        to=f"lamp{seq % 2}@example.org/1",
        level=Level.ASSURED,
        payload=f"<message xmlns='jabber:client'><body>{seq}</body></message>",
        size=10 + seq,
        created_at=1_700_000_000.125 + seq,
        offer_id=f"offer-{seq}",
        deliver_id=f"deliver-{seq}",
    )
    return replace(record, **changes)


def ended(seq: int, **changes: Any) -> Ended:
    """The end of a message of the outbox."""
    record = outgoing(seq, state=OutgoingState.DELIVERED, attempts=2)
    return replace(Ended.of(record, 1_800_000_000.5), **changes)


def incoming(key: str, **changes: Any) -> Incoming:
    """A received message."""
    record = Incoming(
        key=key,
        msg_id="1",
        source="controller@example.org/1",
        to="lamp@example.org/1",
        level=Level.ASSURED,
        payload="<message xmlns='jabber:client'><body>on</body></message>",
        size=55,
        received_at=1_700_000_000.125,
        changed_at=1_700_000_000.125,
        mark="mark",
        hold="hold",
    )
    if changes.get("state") is IncomingState.REJECTED:
        why = Rejection("conflict", "cancel", "'ä'\n", redelivered=True)
        record = replace(record, rejection=why.to_text())
    return replace(record, **changes)


async def write(store: Store, *changes: Change) -> None:
    """Write, and wait until it is on disk."""
    written = store.write(changes)
    if written is not None:
        await written


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Contents]:
    """Open the store, and close it in any case."""
    contents = store.open()
    try:
        yield contents
    finally:
        await store.close()


def records(store: Store) -> tuple[list[Outgoing], list[Incoming]]:
    """All messages that an open store holds."""
    return list(store.outgoing()), list(store.incoming())


def everything(store: Store) -> tuple[list[Outgoing], list[Incoming], list[Ended]]:
    """All messages that an open store holds, and all ended ones."""
    return (*records(store), list(store.ended()))


class StoreContract:
    """The tests. A subclass makes the store."""

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

    # -- what is there -----------------------------------------------------

    def test_a_new_store_is_empty(self, tmp_path: Path) -> None:
        """A new store must not contain messages that nobody sent."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store) as contents:
                assert contents == Contents()
                assert records(store) == ([], [])
                assert store.queued("a@b", after=0, limit=9) == []
                assert store.expiring(9e9, limit=9) == []
                assert store.next_expiry() is None
                assert store.find_outgoing("x") is None

        run(scenario())

    def test_what_was_written_is_there_after_a_restart(self, tmp_path: Path) -> None:
        """The purpose of a store; one that is not durable starts empty."""
        saved = [outgoing(1), outgoing(2, state=OutgoingState.OFFERED)]
        held = incoming("k")

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, *map(Save, saved), Save(held), Remember("a", "b"))
            again = self.new_store(tmp_path)
            async with opened(again) as contents:
                if not again.durable:
                    assert contents == Contents()
                    return
                assert contents == Contents(
                    outgoing=[saved[1]],
                    queued={saved[0].flow: 1},
                    outbox_messages=2,
                    outbox_bytes=saved[0].size + saved[1].size,
                    next_seq=3,
                    incoming=[held],
                    remembered={"a": "b"},
                )
                assert records(again) == (saved, [held])

        run(scenario())

    def test_only_stored_fields_are_kept(self, tmp_path: Path) -> None:
        """After a restart there is nobody any more who waits for an answer."""
        sent = outgoing(
            1,
            addressed=frozenset({"a@b/c"}),
            unanswered=True,
            doubted=True,
            tries=3,
            due_at=5.0,
            condition="gone",
            condition_by="b",
        )
        held = incoming("k", redelivered=True)

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, Save(sent), Save(held))
                assert records(store) == ([outgoing(1)], [incoming("k")])
                assert store.queued(sent.flow, after=0, limit=1) == [stored(sent)]
                assert store.find_outgoing(sent.msg_id) == stored(sent)

        run(scenario())

    def test_every_stored_field_and_every_state_is_kept(self, tmp_path: Path) -> None:
        """A field that is dropped may be a hold token or a deadline."""
        full = [
            outgoing(
                seq,
                level=level,
                expires_at=1.1,
                ordered=True,
                sender="me@here/2",
                state=state,
                namespace="urn:xmpp:qos",
                peer="a@b/c",
                hold="h",
                own="me@here/2",
                attempts=3,
                delivers=2,
            )
            for seq, (level, state) in enumerate(
                ((level, state) for level in Level for state in OutgoingState), start=1
            )
        ]
        held = [
            incoming(state.value, state=state, mark="", hold="")
            for state in IncomingState
        ]

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, *map(Save, full), *map(Save, held))
                held.sort(key=lambda record: record.key)
                assert records(store) == (full, held)

        run(scenario())

    def test_saving_a_record_again_replaces_it(self, tmp_path: Path) -> None:
        """A step of a message is one record, not two."""
        steps = [
            outgoing(1),
            outgoing(1, state=OutgoingState.OFFERED, attempts=1),
            outgoing(1, state=OutgoingState.RELEASING, hold="h", delivers=1),
        ]
        ends = [
            incoming("k"),
            incoming("k", state=IncomingState.DONE, payload="", changed_at=2e9),
            incoming("k", state=IncomingState.RELEASING, payload="new", hold="new"),
        ]

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                for step, end in zip(steps, ends, strict=True):
                    await write(store, Save(step), Save(end))
                    assert records(store) == ([step], [end])

        run(scenario())

    def test_a_forgotten_record_is_gone(self, tmp_path: Path) -> None:
        """Forgetting an unknown record, or one record twice, is not an error."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, Save(outgoing(1)), Save(incoming("k")))
                for _ in range(2):
                    await write(store, Forget(outgoing(1)), Forget(incoming("k")))
                    assert records(store) == ([], [])
                    assert store.queued(outgoing(1).flow, after=0, limit=9) == []
                    assert store.find_outgoing("msg-1") is None
                await write(store, Save(outgoing(1)), Forget(outgoing(1)))
                await write(store, Save(incoming("k")), Forget(incoming("k")))
                assert records(store) == ([], [])
                await write(store, Forget(outgoing(1)), Save(outgoing(1)))
                await write(store, Forget(outgoing(1)), Save(outgoing(1, own="me")))
                assert records(store) == ([outgoing(1, own="me")], [])

        run(scenario())

    def test_received_messages_come_in_the_order_of_their_change(
        self, tmp_path: Path
    ) -> None:
        """The oldest tombstone is the first to be evicted."""
        held = [
            incoming("b", changed_at=3.0),
            incoming("c", changed_at=1.0),
            incoming("a", changed_at=3.0),
            incoming("d", changed_at=2.0),
        ]
        ordered = [held[1], held[3], held[2], held[0]]

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, *map(Save, held))
                assert list(store.incoming()) == ordered
            async with opened(self.new_store(tmp_path)) as contents:
                assert contents.incoming == (ordered if store.durable else [])

        run(scenario())

    @pytest.mark.parametrize("size", [0, 1, 2**20])
    def test_payloads_of_any_size(self, tmp_path: Path, size: int) -> None:
        """An empty payload is not the same as no payload."""
        sent = outgoing(1, payload="é" * size, size=2 * size)
        held = incoming("k", payload="é" * size, size=2 * size)
        done = replace(held, state=IncomingState.DONE, payload="")

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, Save(sent), Save(held))
                assert records(store) == ([sent], [held])
                await write(store, Save(done))
                assert records(store) == ([sent], [done])

        run(scenario())

    def test_any_text_that_xml_permits(self, tmp_path: Path) -> None:
        """Peers choose ids, JIDs and names."""
        sent = [
            outgoing(seq, msg_id=text, to=text, payload=text, hold=text, peer=text)
            for seq, text in enumerate(NASTY_TEXTS, start=1)
        ]
        held = [
            incoming(text, msg_id=text, source=text, mark=text, payload=text)
            for text in NASTY_TEXTS
        ]
        named = [Remember(text, text) for text in NASTY_TEXTS]

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, *map(Save, sent), *map(Save, held), *named)
                held.sort(key=lambda record: record.key)
                assert records(store) == (sent, held)
                for record in sent:
                    assert store.find_outgoing(record.msg_id) == record
                    assert store.queued(record.flow, after=0, limit=9) == [record]
            async with opened(self.new_store(tmp_path)) as contents:
                if store.durable:
                    assert contents.remembered == {text: text for text in NASTY_TEXTS}
                    assert contents.queued == {record.flow: 1 for record in sent}
            async with opened(store):
                await write(store, *map(Forget, sent), *map(Forget, held))
                assert records(store) == ([], [])

        run(scenario())

    # -- the queue ---------------------------------------------------------

    def test_queued_messages_come_by_flow_and_seq(self, tmp_path: Path) -> None:
        """The queue is read in pieces, each beginning after the last."""
        sent = [outgoing(seq) for seq in (1, 2, 3, 5, 8, 13)]
        in_flight = outgoing(4, state=OutgoingState.OFFERED)
        even, odd = sent[1].flow, sent[0].flow

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, *map(Save, reversed(sent)), Save(in_flight))
                seqs = [
                    [record.seq for record in store.queued(flow, after=after, limit=3)]
                    for flow, after in ((odd, 0), (odd, 3), (odd, 13), (even, 0))
                ]
                assert seqs == [[1, 3, 5], [5, 13], [], [2, 8]]
                assert store.queued("nobody@example.org", after=0, limit=3) == []

        run(scenario())

    def test_messages_expire_earliest_first(self, tmp_path: Path) -> None:
        """Only queued messages: the engine itself keeps the deadlines of the others."""
        sent = [
            outgoing(1, expires_at=30.0),
            outgoing(2, expires_at=10.0),
            outgoing(3),
            outgoing(4, expires_at=20.0),
            outgoing(5, expires_at=1.0, state=OutgoingState.RELEASING),
            outgoing(6, expires_at=10.0),
        ]

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, *map(Save, sent))
                assert store.next_expiry() == 10.0
                assert store.expiring(9.0, limit=9) == []
                assert store.expiring(20.0, limit=9) == [sent[1], sent[5], sent[3]]
                assert store.expiring(20.0, limit=2) == [sent[1], sent[5]]
                await write(store, Forget(sent[1]), Forget(sent[5]))
                assert store.next_expiry() == 20.0

        run(scenario())

    def test_no_seq_is_given_twice(self, tmp_path: Path) -> None:
        """The order of acceptance continues, even if no message is left."""

        async def scenario() -> None:
            expected = 1
            for seq in (1, 2, 7):
                store = self.new_store(tmp_path)
                async with opened(store) as contents:
                    assert contents.next_seq == expected
                    await write(store, Save(outgoing(seq)))
                    await write(store, Forget(outgoing(seq)))
                expected = seq + 1 if store.durable else 1

        run(scenario())

    # -- writing -----------------------------------------------------------

    def test_writes_are_made_in_their_order(self, tmp_path: Path) -> None:
        """Even if nobody waits between them, and they share a commit."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                last: asyncio.Future[None] | None = None
                for attempt in range(300):
                    last = store.write([Save(outgoing(1, attempts=attempt))])
                    if attempt % 50 == 0:
                        await asyncio.sleep(0)
                if last is not None:
                    await last
                assert list(store.outgoing()) == [outgoing(1, attempts=299)]

        run(scenario())

    def test_what_was_written_is_there_when_the_store_is_closed_at_once(
        self, tmp_path: Path
    ) -> None:
        """Closing a store must not lose what was written before."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                written = store.write([Save(outgoing(1))])
            assert written is None or written.done()
            async with opened(self.new_store(tmp_path)) as contents:
                assert contents.outbox_messages == int(store.durable)

        run(scenario())

    def test_nothing_is_written_by_no_changes(self, tmp_path: Path) -> None:
        """A write without changes ends at once."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                assert store.write([]) is None

        run(scenario())

    def test_a_writer_that_is_cancelled_takes_nobody_along(
        self, tmp_path: Path
    ) -> None:
        """The future is shared, and a task that waits for it may be cancelled."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                tasks = [
                    asyncio.create_task(write(store, Save(outgoing(seq))))
                    for seq in (1, 2, 3)
                ]
                await asyncio.sleep(0)
                tasks[1].cancel()
                await asyncio.wait(tasks)
                assert tasks[0].exception() is None
                assert tasks[2].exception() is None
                assert list(store.outgoing()) == [outgoing(seq) for seq in (1, 2, 3)]

        run(scenario())

    # -- opening and closing -----------------------------------------------

    def test_a_store_has_an_id_for_its_life(self, tmp_path: Path) -> None:
        """A peer sees from it whether our store is still the same."""

        async def scenario() -> None:
            stores = [self.new_store(tmp_path), self.new_store(tmp_path)]
            (tmp_path / "other").mkdir()
            stores.append(self.new_store(tmp_path / "other"))
            ids = []
            for store in stores:
                async with opened(store):
                    ids.append(store.store_id)
            assert all(ids)
            assert (ids[0] == ids[1]) is stores[0].durable
            assert ids[0] != ids[2]

        run(scenario())

    def test_a_store_is_open_once(self, tmp_path: Path) -> None:
        """Two engines on one store would send everything twice."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                with pytest.raises(StoreInUse, match=store.url):
                    store.open()
                await write(store, Save(outgoing(1)))
                if store.durable:
                    other = self.new_store(tmp_path)
                    with pytest.raises(StoreInUse, match=other.url):
                        other.open()
                await write(store, Save(outgoing(2)))
                assert len(list(store.outgoing())) == 2
            async with opened(self.new_store(tmp_path)):
                pass

        run(scenario())

    def test_a_store_may_be_opened_again(self, tmp_path: Path) -> None:
        """Closing it twice, or before it was opened, is harmless."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            await store.close()
            for turn in (1, 2):
                async with opened(store) as contents:
                    assert contents.outbox_messages == (turn - 1) * store.durable
                    await write(store, Save(outgoing(turn)))
                await store.close()

        run(scenario())

    def test_a_store_that_is_not_open_says_so(self, tmp_path: Path) -> None:
        """A closed store must not look empty, nor accept what it would not keep."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, Save(outgoing(1)))
            uses: list[Callable[[], object]] = [
                lambda: store.write([Save(outgoing(2))]),
                lambda: store.queued("a@b", after=0, limit=1),
                lambda: store.expiring(1.0, limit=1),
                store.next_expiry,
                lambda: list(store.outgoing()),
                lambda: store.find_outgoing("msg-1"),
                lambda: list(store.ended()),
                lambda: list(store.incoming()),
            ]
            for use in uses:
                with pytest.raises(StoreError, match="not open"):
                    use()

        run(scenario())

    def test_of_two_ends_of_a_message_in_one_commit_the_last_counts(
        self, tmp_path: Path
    ) -> None:
        """Even if the first end is old enough to be forgotten in that commit."""

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            again = ended(1, ended_at=2.0)
            async with opened(store):
                await write(store, End(ended(1, ended_at=0.0)))
                await write(store, End(again), ForgetEnded(before=1.0, below=0))
                assert list(store.ended()) == [again]
            async with opened(store):
                assert list(store.ended()) == ([again] if store.durable else [])

        run(scenario())

    # -- failing and dying at every step -----------------------------------

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
        before, after = _outcomes(self.BEFORE, changes)

        async def fails_at(step: int) -> bool:
            folder = tmp_path / str(step)
            folder.mkdir()
            store = self.new_store(folder)
            fault = _Fault(step)
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
                shown = everything(store)
                try:
                    await write(store, Remember("more", "x"))
                    assert shown == expected[0][:3]
                except StoreError:
                    # Either is possible; see Store.write.
                    expected = [before, after]
            again = self.new_store(folder)
            async with opened(again) as contents:
                contents.remembered.pop("more", None)
                assert (*everything(again), contents.remembered) in expected
            return fault.hit

        async def scenario() -> None:
            step = 0
            while await fails_at(step):
                step += 1

        if self.new_store(tmp_path).durable:
            run(scenario())

    @pytest.mark.parametrize("changes", CHANGES)
    def test_a_process_that_dies_at_any_step_leaves_all_or_none(
        self, tmp_path: Path, changes: Sequence[Change]
    ) -> None:
        """Even if the next process dies during its recovery."""
        outcomes = _outcomes(self.BEFORE, changes)

        async def survives(left: _Copies, *, then_dies: bool) -> None:
            for folder in sorted(left.to.iterdir()):
                store = self.new_store(folder)
                again = _Copies(
                    folder, to=left.to.with_name(f"{left.to.name}-{folder.name}")
                )
                if then_dies:
                    self.watch(store, again)
                async with opened(store) as contents:
                    assert (*everything(store), contents.remembered) in outcomes
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
            left = _Copies(tmp_path / "live", to=tmp_path / "left")
            async with opened(store):
                await write(store, *self.BEFORE)
                self.watch(store, left)
                await write(store, *changes)
            await survives(left, then_dies=True)

        if self.new_store(tmp_path).durable:
            run(scenario())

    # -- against a model ---------------------------------------------------

    def test_it_does_what_a_dict_would_do(self) -> None:
        """Random changes, many at a time, with restarts between them."""
        contract = self

        class Machine(_StoreMachine):
            def new_store(self, folder: Path) -> Store:
                return contract.new_store(folder)

        run_state_machine_as_test(
            Machine,
            settings=settings(max_examples=25, stateful_step_count=20, deadline=None),
        )


def run(scenario: Coroutine[object, object, None]) -> None:
    """Run a scenario in an event loop of its own."""
    asyncio.run(scenario)


class _Fault:
    """A disk that is full at the n-th step only."""

    def __init__(self, step: int) -> None:
        self._left = step
        self._lock = threading.Lock()
        self.hit = False

    def __call__(self, step: str) -> None:
        with self._lock:
            self._left -= 1
            if self._left == -1:
                self.hit = True
                raise OSError(errno.ENOSPC, f"No space left on device, at {step!r}")


class _Copies:
    """A copy of a folder before each step, as a process that dies there leaves it."""

    def __init__(self, live: Path, *, to: Path) -> None:
        self.to = to
        self._live = live
        self._lock = threading.Lock()
        self._count = 0
        to.mkdir()

    def __call__(self, step: str) -> None:
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


_State: TypeAlias = tuple[list[Outgoing], list[Incoming], list[Ended], dict[str, str]]


def _outcomes(before: Sequence[Change], changes: Sequence[Change]) -> list[_State]:
    """The two possible contents: before the changes, and after them."""
    model = _Model()
    model.make(before)
    first = model.state()
    model.make(changes)
    return [first, model.state()]


class _Model:
    """A store as it would be without disks."""

    def __init__(self) -> None:
        self.outgoing: dict[int, Outgoing] = {}
        self.ended: dict[int, Ended] = {}
        self.incoming: dict[str, Incoming] = {}
        self.remembered: dict[str, str] = {}

    def make(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Remember):
                self.remembered[change.name] = change.value
            elif isinstance(change, ForgetEnded):
                for seq, each in list(self.ended.items()):
                    if each.ended_at <= change.before or seq < change.below:
                        del self.ended[seq]
            elif isinstance(change, End):
                self.outgoing.pop(change.ended.seq, None)
                self.ended[change.ended.seq] = change.ended
            elif isinstance(change.record, Incoming):
                self.incoming.pop(change.record.key, None)
                if isinstance(change, Save):
                    self.incoming[change.record.key] = stored(change.record)
            else:
                self.outgoing.pop(change.record.seq, None)
                if isinstance(change, Save):
                    self.outgoing[change.record.seq] = stored(change.record)

    def state(self) -> _State:
        return (
            sorted(self.outgoing.values(), key=lambda record: record.seq),
            sorted(self.incoming.values(), key=lambda r: (r.changed_at, r.key)),
            sorted(self.ended.values(), key=lambda each: each.seq),
            dict(self.remembered),
        )

    def queued(self) -> list[Outgoing]:
        records, *_ = self.state()
        return [r for r in records if r.state is OutgoingState.QUEUED]

    def expiring(self, now: float) -> list[Outgoing]:
        found = [
            (record.expires_at, record.seq, record)
            for record in self.queued()
            if record.expires_at is not None and record.expires_at <= now
        ]
        return [record for _, _, record in sorted(found, key=lambda item: item[:2])]


_TEXTS = st.text(
    st.sampled_from("\t\n\r")
    | st.characters(
        min_codepoint=0x20,
        exclude_categories=["Cs"],
        exclude_characters="\ufffe\uffff",
    ),
    max_size=20,
)
_KEYS = st.sampled_from(NASTY_TEXTS[:4])
#: A folder in memory, for tests that are not about crashes.
_RAM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
_FLOWS = ("a@b", "c@d", "f")
_TIMES = st.integers(0, 20).map(float)


class _StoreMachine(RuleBasedStateMachine):
    """Random use of a store, compared with the model after every step."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="store-contract-", dir=_RAM))
        self._runner = asyncio.Runner()
        self._store = self.new_store(self._folder)
        self._store.open()
        self._model = _Model()
        #: The largest seq that was used, and the largest one seen after any step.
        self._used = 0
        self._largest = 0

    def new_store(self, folder: Path) -> Store:
        raise NotImplementedError

    def teardown(self) -> None:
        self._runner.run(self._store.close())
        self._runner.close()
        shutil.rmtree(self._folder)

    @rule(data=st.data(), writes=st.integers(1, 3))
    def writes(self, data: st.DataObject, writes: int) -> None:
        kinds = [self._accept, self._step, self._forget, self._end, self._forget_ended]
        kinds += [self._receive, self._forget_received, self._remember]
        batches: list[list[Change]] = []
        for _ in range(writes):
            batches.append([])
            for kind in data.draw(st.lists(st.sampled_from(kinds), max_size=4)):
                batches[-1].append(kind(data))
                self._model.make(batches[-1][-1:])

        async def write_all() -> None:
            for written in [self._store.write(changes) for changes in batches]:
                if written is not None:
                    await written

        self._runner.run(write_all())
        self._largest = max([self._largest, *self._model.outgoing])

    @rule()
    def restarts(self) -> None:
        self._runner.run(self._store.close())
        self._store = self.new_store(self._folder)
        contents = self._store.open()
        if not self._store.durable:
            self._model = _Model()
            self._used = self._largest = 0
        sent, received, _, remembered = self._model.state()
        assert self._largest < contents.next_seq <= self._used + 1
        assert contents == Contents(
            outgoing=[
                record
                for record in sent
                if record.state in {OutgoingState.OFFERED, OutgoingState.RELEASING}
            ],
            queued=Counter(record.flow for record in self._model.queued()),
            outbox_messages=len(sent),
            outbox_bytes=sum(record.size for record in sent),
            next_seq=contents.next_seq,
            incoming=received,
            remembered=remembered,
        )

    @invariant()
    def agrees(self) -> None:
        store, queued = self._store, self._model.queued()
        sent, received, ended, _ = self._model.state()
        assert everything(store) == (sent, received, ended)
        for flow in _FLOWS:
            seen: list[Outgoing] = []
            while page := store.queued(
                flow, after=seen[-1].seq if seen else 0, limit=2
            ):
                assert len(page) <= 2
                seen += page
            assert seen == [record for record in queued if record.flow == flow]
        expiring = self._model.expiring(math.inf)
        first = expiring[0].expires_at if expiring else None
        assert store.next_expiry() == first
        for now in (0.0, 7.0, 20.0):
            assert store.expiring(now, limit=99) == self._model.expiring(now)
            assert store.expiring(now, limit=2) == self._model.expiring(now)[:2]
        for record in sent:
            assert store.find_outgoing(record.msg_id) == record
        assert store.find_outgoing("nobody's") is None
        for msg_id in {each.msg_id for each in ended} | {"nobody's"}:
            found = [each for each in ended if each.msg_id == msg_id]
            assert list(store.ended(msg_id)) == found

    # Each method draws a change that the engine could make.

    def _accept(self, data: st.DataObject) -> Change:
        self._used += data.draw(st.integers(1, 3))
        return Save(
            outgoing(
                self._used,
                to=data.draw(st.sampled_from(_FLOWS))
                + data.draw(st.just("/é") | st.just("")),
                msg_id=f"{self._used} {data.draw(_TEXTS)}",
                payload=data.draw(_TEXTS),
                size=data.draw(st.integers(0, 9)),
                created_at=data.draw(st.floats(0, 2e9)),
                expires_at=data.draw(st.none() | _TIMES),
                ordered=data.draw(st.booleans()),
                state=data.draw(st.sampled_from(OutgoingState)),
            )
        )

    def _step(self, data: st.DataObject) -> Change:
        if not self._model.outgoing:
            return self._accept(data)
        text = st.none() | _TEXTS
        return Save(
            replace(
                self._some(data),
                state=data.draw(st.sampled_from(OutgoingState)),
                offer_id=data.draw(_TEXTS),
                deliver_id=data.draw(_TEXTS),
                namespace=data.draw(text),
                peer=data.draw(text),
                hold=data.draw(text),
                own=data.draw(text),
                attempts=data.draw(st.integers(0, 9)),
                delivers=data.draw(st.integers(0, 9)),
                tries=7,
            )
        )

    def _forget(self, data: st.DataObject) -> Change:
        if not self._model.outgoing:
            return Forget(outgoing(self._used + 1))
        return Forget(self._some(data))

    def _end(self, data: st.DataObject) -> Change:
        known = [*self._model.outgoing.values(), outgoing(self._used + 1)]
        record = replace(
            data.draw(st.sampled_from(known)),
            state=data.draw(st.sampled_from(OutgoingState)),
            condition=data.draw(st.none() | _TEXTS),
            condition_by=data.draw(st.none() | _TEXTS),
        )
        return End(Ended.of(record, data.draw(_TIMES)))

    def _forget_ended(self, data: st.DataObject) -> Change:
        below = data.draw(st.integers(0, self._used + 1))
        return ForgetEnded(data.draw(_TIMES), below)

    def _some(self, data: st.DataObject) -> Outgoing:
        return data.draw(st.sampled_from(list(self._model.outgoing.values())))

    def _receive(self, data: st.DataObject) -> Change:
        return Save(
            incoming(
                data.draw(_KEYS),
                payload=data.draw(_TEXTS),
                size=data.draw(st.integers(0, 9)),
                changed_at=data.draw(_TIMES),
                state=data.draw(st.sampled_from(IncomingState)),
                mark=data.draw(_TEXTS),
                hold=data.draw(_TEXTS),
                redelivered=True,
            )
        )

    def _forget_received(self, data: st.DataObject) -> Change:
        return Forget(incoming(data.draw(_KEYS)))

    def _remember(self, data: st.DataObject) -> Change:
        return Remember(data.draw(_KEYS), data.draw(_TEXTS))
