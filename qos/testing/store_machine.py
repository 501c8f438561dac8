"""Random use of a store, many changes at a time and with restarts, beside a model."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from qos.core.message.effects import End, Forget, Save
from qos.core.message.model import (
    Ended,
    IncomingState,
    Outgoing,
    OutgoingState,
)
from qos.stores.base import (
    Change,
    Contents,
    ForgetEnded,
    Remember,
    Store,
    accounts_of,
)
from qos.testing.store_model import Model
from qos.testing.store_records import (
    NASTY_TEXTS,
    everything,
    incoming,
    outgoing,
)

__all__ = ["StoreMachine"]

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


class StoreMachine(RuleBasedStateMachine):
    """Random use of a store, compared with the model after every step."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="store-contract-", dir=_RAM))
        self._runner = asyncio.Runner()
        self._store = self.new_store(self._folder)
        self._store.open()
        self._model = Model()
        #: The largest seq that was used, and the largest one seen after any step.
        self._used = 0
        self._largest = 0

    def new_store(self, folder: Path) -> Store:
        """See StoreContract."""
        raise NotImplementedError

    def teardown(self) -> None:
        """Close the store, and remove it."""
        self._runner.run(self._store.close())
        self._runner.close()
        shutil.rmtree(self._folder)

    @rule(data=st.data(), writes=st.integers(1, 3))
    def writes(self, data: st.DataObject, writes: int) -> None:
        """Make some writes at a time, each of several changes."""
        kinds = [self._accept, self._step, self._forget, self._end, self._forget_ended]
        kinds += [self._receive, self._forget_received, self._remember]
        batches: list[list[Change]] = []
        for _ in range(writes):
            batches.append([])
            for kind in data.draw(st.lists(st.sampled_from(kinds), max_size=4)):
                batches[-1].append(kind(data))
                self._model.make(batches[-1][-1:])

        async def write_all() -> None:
            for commit in [self._store.write(changes) for changes in batches]:
                if commit is not None:
                    await commit

        self._runner.run(write_all())
        self._largest = max([self._largest, *self._model.outgoing])

    @rule()
    def restarts(self) -> None:
        """Close the store, and open another one for the same data."""
        self._runner.run(self._store.close())
        self._store = self.new_store(self._folder)
        contents = self._store.open()
        if not self._store.durable:
            self._model = Model()
            self._used = self._largest = 0
        outbox, received, _, remembered = self._model.state()
        assert self._largest < contents.next_seq <= self._used + 1
        assert contents == Contents(
            outgoing=[
                record
                for record in outbox
                if record.state in {OutgoingState.OFFERED, OutgoingState.RELEASING}
            ],
            queued=Counter(record.flow for record in self._model.queued()),
            outbox_messages=len(outbox),
            outbox_bytes=sum(record.size for record in outbox),
            accounts=accounts_of(outbox),
            next_seq=contents.next_seq,
            incoming=received,
            remembered=remembered,
        )

    @invariant()
    def agrees(self) -> None:
        """Compare all that the store shows with the model."""
        store, queued = self._store, self._model.queued()
        outbox, received, ends, _ = self._model.state()
        assert everything(store) == (outbox, received, ends)
        for flow in _FLOWS:
            records: list[Outgoing] = []
            while page := store.queued(
                flow, after=records[-1].seq if records else 0, limit=2
            ):
                assert len(page) <= 2
                records += page
            assert records == [record for record in queued if record.flow == flow]
        expiring = self._model.expiring(math.inf)
        first = expiring[0].expires_at if expiring else None
        assert store.next_expiry() == first
        for now in (0.0, 7.0, 20.0):
            assert store.expiring(now, limit=99) == self._model.expiring(now)
            assert store.expiring(now, limit=2) == self._model.expiring(now)[:2]
        for record in outbox:
            assert store.find_outgoing(record.msg_id) == record
        assert store.find_outgoing("nobody's") is None
        for msg_id in {end.msg_id for end in ends} | {"nobody's"}:
            matches = [end for end in ends if end.msg_id == msg_id]
            assert list(store.ended(msg_id)) == matches
            digested = [end for end in matches if end.digest]
            assert store.find_ended(msg_id) == (digested[-1] if digested else None)

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
                account=data.draw(_TEXTS),
                digest=data.draw(st.just("") | _TEXTS),
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
        candidates = [*self._model.outgoing.values(), outgoing(self._used + 1)]
        record = replace(
            data.draw(st.sampled_from(candidates)),
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
