"""The contract of a store, as tests that your own store can inherit.

::

    class TestMyStore(StoreContract):
        def new_store(self, folder: Path) -> Store:
            return MyStore(folder / "mine")

pytest then collects them. Needs pytest and hypothesis.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from qos.core.message.effects import Forget, Save
from qos.core.message.model import (
    IncomingState,
    Level,
    OutgoingState,
)
from qos.stores.base import Contents, Remember, Store, stored
from qos.testing.store_faults import run
from qos.testing.store_machine import StoreMachine
from qos.testing.store_records import (
    NASTY_TEXTS,
    ended,
    incoming,
    opened,
    outgoing,
    records,
    write,
)
from qos.testing.store_use import UseContract

__all__ = ["StoreContract", "ended", "incoming", "outgoing", "write"]


class StoreContract(UseContract):
    """The tests. A subclass makes the store: see `new_store`."""

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
        inbox_record = incoming("k")

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(
                    store, *map(Save, saved), Save(inbox_record), Remember("a", "b")
                )
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
                    incoming=[inbox_record],
                    remembered={"a": "b"},
                )
                assert records(again) == (saved, [inbox_record])

        run(scenario())

    def test_only_stored_fields_are_kept(self, tmp_path: Path) -> None:
        """After a restart there is nobody any more who waits for an answer."""
        outbox_record = outgoing(
            1,
            addressed=frozenset({"a@b/c"}),
            unanswered=True,
            doubted=True,
            tries=3,
            due_at=5.0,
            condition="gone",
            condition_by="b",
        )
        inbox_record = incoming("k", redelivered=True)

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, Save(outbox_record), Save(inbox_record))
                assert records(store) == ([outgoing(1)], [incoming("k")])
                assert store.queued(outbox_record.flow, after=0, limit=1) == [
                    stored(outbox_record)
                ]
                assert store.find_outgoing(outbox_record.msg_id) == stored(
                    outbox_record
                )

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
        inbox = [
            incoming(state.value, state=state, mark="", hold="")
            for state in IncomingState
        ]

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, *map(Save, full), *map(Save, inbox))
                inbox.sort(key=lambda record: record.key)
                assert records(store) == (full, inbox)

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
        inbox = [
            incoming("b", changed_at=3.0),
            incoming("c", changed_at=1.0),
            incoming("a", changed_at=3.0),
            incoming("d", changed_at=2.0),
        ]
        ordered = [inbox[1], inbox[3], inbox[2], inbox[0]]

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, *map(Save, inbox))
                assert list(store.incoming()) == ordered
            async with opened(self.new_store(tmp_path)) as contents:
                assert contents.incoming == (ordered if store.durable else [])

        run(scenario())

    @pytest.mark.parametrize("size", [0, 1, 2**20])
    def test_payloads_of_any_size(self, tmp_path: Path, size: int) -> None:
        """An empty payload is not the same as no payload."""
        outbox_record = outgoing(1, payload="é" * size, size=2 * size)
        inbox_record = incoming("k", payload="é" * size, size=2 * size)
        tombstone = replace(inbox_record, state=IncomingState.DONE, payload="")

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, Save(outbox_record), Save(inbox_record))
                assert records(store) == ([outbox_record], [inbox_record])
                await write(store, Save(tombstone))
                assert records(store) == ([outbox_record], [tombstone])

        run(scenario())

    def test_any_text_that_xml_permits(self, tmp_path: Path) -> None:
        """Peers choose ids, JIDs and names."""
        outbox = [
            outgoing(seq, msg_id=text, to=text, payload=text, hold=text, peer=text)
            for seq, text in enumerate(NASTY_TEXTS, start=1)
        ]
        inbox = [
            incoming(text, msg_id=text, source=text, mark=text, payload=text)
            for text in NASTY_TEXTS
        ]
        names = [Remember(text, text) for text in NASTY_TEXTS]

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, *map(Save, outbox), *map(Save, inbox), *names)
                inbox.sort(key=lambda record: record.key)
                assert records(store) == (outbox, inbox)
                for record in outbox:
                    assert store.find_outgoing(record.msg_id) == record
                    assert store.queued(record.flow, after=0, limit=9) == [record]
            async with opened(self.new_store(tmp_path)) as contents:
                if store.durable:
                    assert contents.remembered == {text: text for text in NASTY_TEXTS}
                    assert contents.queued == {record.flow: 1 for record in outbox}
            async with opened(store):
                await write(store, *map(Forget, outbox), *map(Forget, inbox))
                assert records(store) == ([], [])

        run(scenario())

    # -- the queue ---------------------------------------------------------

    def test_queued_messages_come_by_flow_and_seq(self, tmp_path: Path) -> None:
        """The queue is read in pieces, each beginning after the last."""
        outbox = [outgoing(seq) for seq in (1, 2, 3, 5, 8, 13)]
        in_flight = outgoing(4, state=OutgoingState.OFFERED)
        even, odd = outbox[1].flow, outbox[0].flow

        async def scenario() -> None:
            store = self.new_store(tmp_path)
            async with opened(store):
                await write(store, *map(Save, reversed(outbox)), Save(in_flight))
                seqs = [
                    [record.seq for record in store.queued(flow, after=after, limit=3)]
                    for flow, after in ((odd, 0), (odd, 3), (odd, 13), (even, 0))
                ]
                assert seqs == [[1, 3, 5], [5, 13], [], [2, 8]]
                assert store.queued("nobody@example.org", after=0, limit=3) == []

        run(scenario())

    def test_messages_expire_earliest_first(self, tmp_path: Path) -> None:
        """Only queued messages: the engine itself keeps the deadlines of the others."""
        outbox = [
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
                await write(store, *map(Save, outbox))
                assert store.next_expiry() == 10.0
                assert store.expiring(9.0, limit=9) == []
                assert store.expiring(20.0, limit=9) == [
                    outbox[1],
                    outbox[5],
                    outbox[3],
                ]
                assert store.expiring(20.0, limit=2) == [outbox[1], outbox[5]]
                await write(store, Forget(outbox[1]), Forget(outbox[5]))
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

    # -- against a model ---------------------------------------------------

    def test_it_does_what_a_dict_would_do(self) -> None:
        """Random changes, many at a time, with restarts between them."""
        contract = self

        class Machine(StoreMachine):
            def new_store(self, folder: Path) -> Store:
                return contract.new_store(folder)

        run_state_machine_as_test(
            Machine,
            settings=settings(max_examples=25, stateful_step_count=20, deadline=None),
        )
