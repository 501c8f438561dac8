"""What is wrong on purpose: each of these the simulation must find out.

A mutant is a place of the source, which is there exactly once, and what stands there
instead. One that survives shows what the simulated world does not see; then the world is
to be made better, and not this list shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change for the worse.

    Attributes:
        name: for the command.
        module: where.
        old: what stands there.
        new: what stands there instead.
        breaks: what is not true any more.
        seed: one that has found it out; it is tried first.
    """

    name: str
    module: str
    old: str
    new: str
    breaks: str
    seed: int = 0


_SENDER = (
    Mutant(
        "save-after-transmit",
        "qos.core.sender",
        "(Save(record), transmit) if first or releasing",
        "(transmit, Save(record)) if first or releasing",
        "A step is on disk before it is sent.",
        seed=64,
    ),
    Mutant(
        "delivers-counted-late",
        "qos.core.sender",
        "return record, (Save(record), transmit) if first or releasing",
        "before = replace(record, delivers=record.delivers - releasing)\n"
        "    return record, (Save(before), transmit) if first or releasing",
        "How many deliver have been sent is written before each is sent.",
        seed=65,
    ),
    Mutant(
        "store-gone-is-never-doubt",
        "qos.core.sender",
        "return _I.STORE_GONE_UNSEEN if record.delivers == 1 else _I.STORE_GONE",
        "return _I.STORE_GONE_UNSEEN",
        "What a lost store may have handed over is not offered again.",
        seed=65,
    ),
    Mutant(
        "not-mine-is-store-gone",
        "qos.core.sender",
        "if reply.source != record.peer:",
        "if reply.source == '':",
        "Another device that does not hold a message says nothing about it.",
        seed=432,
    ),
    Mutant(
        "doubt-is-forgotten",
        "qos.core.sender",
        "return record.doubted or record.unanswered",
        "return False",
        "What was sent at level acknowledged, and not answered, may have arrived.",
        seed=11,
    ),
    Mutant(
        "told-before-it-is-written",
        "qos.core.sender",
        "return record, (End(Ended.of(record, at.now)), Settle(record))",
        "return record, (Settle(record), End(Ended.of(record, at.now)))",
        "A record is gone from the disk before the application learns the end.",
        seed=3,
    ),
    Mutant(
        "order-is-ignored",
        "qos.core.flow",
        "return not record.ordered or self._ordered[0] == record.seq",
        "return True",
        "What is ordered is released in the order of its acceptance.",
        seed=74,
    ),
    Mutant(
        "order-is-ignored-at-first",
        "qos.core.flow",
        "return not before",
        "return True",
        "What is handed over by its first step waits for all before it.",
        seed=9,
    ),
    Mutant(
        "window-leaks",
        "qos.core.flow",
        "self._under_way.remove(record.msg_id)",
        "self._under_way.discard('')",
        "A message that has ended makes room for another.",
        seed=15,
    ),
    Mutant(
        "queue-is-read-again",
        "qos.engine.backlog",
        "if chunk[0].seq not in self._ending:",
        "if chunk[0].seq >= 0:",
        "What ends while it is queued is not offered.",
        seed=3620,
    ),
    Mutant(
        "doubt-ends-with-the-process",
        "qos.core.sender",
        "doubted=record.state is _S.OFFERED, due_at=math.inf)",
        "doubted=False, due_at=math.inf)",
        "What was offered before a restart may have arrived.",
        seed=11,
    ),
)

_RECEIVER = (
    Mutant(
        "received-before-it-is-written",
        "qos.core.receiver",
        'return held, (Reserve(held), Save(held), Answer("received", held.hold))',
        'return held, (Reserve(held), Answer("received", held.hold), Save(held))',
        "What an answer says is on disk before it is sent.",
        seed=11,
    ),
    Mutant(
        "answer-before-the-hand-over",
        "qos.core.receiver",
        "return meant, (Save(meant), Deliver(meant))",
        'return meant, (Save(meant), Answer("result", request.hold), Deliver(meant))',
        "The result follows the hand-over.",
        seed=3,
    ),
    Mutant(
        "hand-over-before-it-is-written",
        "qos.core.receiver",
        "return meant, (Save(meant), Deliver(meant))",
        "return meant, (Deliver(meant), Save(meant))",
        "Releasing is on disk before the hand-over.",
        seed=37,
    ),
    Mutant(
        "no-mark-after-a-restart",
        "qos.core.receiver",
        "record = replace(record, redelivered=True)",
        "record = replace(record, redelivered=False)",
        "What may have been handed over before is marked.",
        seed=37,
    ),
    Mutant(
        "no-tombstones",
        "qos.core.receiver",
        "if not record.mark:",
        "if record.mark or not record.mark:",
        "What was done lately is remembered.",
        seed=37,
    ),
    Mutant(
        "tombstones-for-everybody",
        "qos.core.receiver",
        "if not record.mark:",
        "if False:",
        "A peer that knows the text alone may use an id again after a success.",
        seed=14,
    ),
    Mutant(
        "hold-is-shared",
        "qos.core.receiver",
        'hold=at.token if assured else ""',
        'hold=at.token.partition(".")[0] if assured else ""',
        "A hold is of one held message.",
        seed=3,
    ),
    Mutant(
        "hold-is-not-checked",
        "qos.core.receiver",
        'if record is not None and request.hold not in {"", record.hold}:',
        "if record is None:",
        "A deliver releases what is held under its hold, and nothing else.",
        seed=31,
    ),
    Mutant(
        "looser-key",
        "qos.core.receiver",
        '_SEPARATOR.join(("u", request.source, request.msg_id))',
        '_SEPARATOR.join(("u", bare(request.source), request.msg_id))',
        "Two resources that both count from 1 are two senders.",
        seed=113,
    ),
    Mutant(
        "released-twice",
        "qos.core.receiver",
        "if meant is not None and meant.state is _S.HELD:",
        "if meant is not None and meant.state in {_S.HELD, _S.DONE}:",
        "What is done is answered, and not handed over again.",
        seed=4,
    ),
    Mutant(
        "quota-is-not-checked",
        "qos.core.receiver",
        "    if at.exceeded:\n        return record,",
        "    if at.exceeded == '':\n        return record,",
        "No more is held than the quotas allow.",
        seed=33,
    ),
    Mutant(
        "quota-is-not-given-back",
        "qos.core.receiver",
        "effects: tuple[Effect, ...] = (Refund(record),)",
        "effects: tuple[Effect, ...] = ()",
        "What is handed over is not counted any more.",
        seed=3,
    ),
    Mutant(
        "unwritten-is-held",
        "qos.engine.inbox",
        "            message.record = before\n            for effect in effects:",
        "            for effect in effects:",
        "What could not be written is not held.",
        seed=40,
    ),
    Mutant(
        "expired-is-released",
        "qos.core.receiver",
        "    (_S.HELD, _I.EXPIRE): _S.EXPIRED,",
        "    (_S.HELD, _I.EXPIRE): _S.DONE,",
        "What was held for too long is not handed over, and not said to be.",
        seed=62,
    ),
)

_QUEUE = (
    Mutant(
        "token-is-not-checked",
        "qos.core.work_queue",
        '        if token in {"", item.token}:',
        "        if token != '-':",
        "A settlement is of the delivery whose token it has.",
        seed=7,
    ),
    Mutant(
        "told-before-the-lock-is-written",
        "qos.engine.queue",
        "        self._busy = True\n",
        "        self._busy = True\n        self._perform(step)\n",
        "The event goes out after the commit of the lock.",
        seed=0,
    ),
    Mutant(
        "answered-before-the-commit",
        "qos.engine.queue",
        "self._step.outputs.append(Reply(answer, result))",
        "answer(result, {})",
        "An answer leaves when what it says is on disk.",
        seed=0,
    ),
    Mutant(
        "failed-commit-is-kept",
        "qos.engine.queue",
        "        self._core = None\n        self._timers",
        "        self._timers",
        "A commit that fails takes back all that was decided since.",
        seed=39,
    ),
    Mutant(
        "count-is-not-kept",
        "qos.core.work_queue",
        "count = item.delivery_count + counts",
        "count = int(counts)",
        "Failed deliveries are counted.",
        seed=0,
    ),
    Mutant(
        "one-more-delivery",
        "qos.core.work_queue",
        "count >= options.max_deliveries",
        "count > options.max_deliveries",
        "An item is dead after as many failed deliveries as the node allows.",
        seed=0,
    ),
    Mutant(
        "settling-token-is-forgotten",
        "qos.core.work_queue",
        'token=item.token if by else ""',
        'token=""',
        "A repeated retract is known by the token that settled the item.",
        seed=0,
    ),
    Mutant(
        "no-dedupe",
        "qos.core.publishing",
        "now < before.ended_at + options.dedupe_window",
        "now < before.ended_at",
        "An item that is published again is the same item.",
        seed=60,
    ),
    Mutant(
        "lock-never-ends",
        "qos.core.queue_node",
        "                if item.deadline <= now:",
        "                if item.deadline <= 0:",
        "A lock times out.",
        seed=19,
    ),
    Mutant(
        "locks-are-not-counted",
        "qos.core.holders",
        "if load >= subscription.queue_requests:",
        "if load < 0:",
        "A worker has no more items than it has asked for.",
        seed=0,
    ),
    Mutant(
        "extension-is-not-written",
        "qos.core.queue_node",
        "            effects.append(SaveItem(after))\n        return effects, left_s",
        "        return effects, left_s",
        "A lock lasts as long as its holder was told, over a restart.",
        seed=124,
    ),
    Mutant(
        "lock-goes-with-its-token",
        "qos.core.work_queue",
        "return replace(item, holder=holder, last_holder=holder, token=token, order=order)",
        "return replace(item, holder=holder, last_holder=holder, order=order)",
        "Who takes a durable lock over has a token of his own.",
        seed=57,
    ),
    Mutant(
        "lock-is-taken-from-the-living",
        "qos.core.holders",
        "if each in self._left]",
        "]",
        "A durable lock is taken over only from who has gone.",
        seed=1,
    ),
)

_WORKER = (
    Mutant(
        "effects-before-the-retract",
        "qos.worker.effects",
        "        prepare(self._db, self._key, self._statements)\n        try:",
        "        prepare(self._db, self._key, self._statements)\n"
        "        apply(self._db, self._key)\n        try:",
        "Effects are there when the item is accepted, and not before.",
        seed=0,
    ),
    Mutant(
        "dropped-without-an-answer",
        "qos.worker.effects",
        "            if lost.condition in FINAL:",
        "            if lost.item_id:",
        "No silence decides anything.",
        seed=1,
    ),
    Mutant(
        "dropped-on-success",
        "qos.worker.worker",
        "                    effects.apply(db, key)",
        "                    effects.drop(db, key)",
        "What is prepared is done when the retract is confirmed.",
        seed=1,
    ),
    Mutant(
        "prepared-is-never-looked-at",
        "qos.worker.worker",
        "            await self.recover(self._effects_db)",
        "            await asyncio.sleep(0)",
        "After a restart the retract of everything prepared is repeated.",
        seed=1,
    ),
    Mutant(
        "applied-whatever-is-said",
        "qos.worker.worker",
        "                    effects.drop(db, key)",
        "                    effects.apply(db, key)",
        "What is refused for good is dropped.",
        seed=35,
    ),
)

#: All of them.
_CONSUMER = (
    Mutant(
        "told-before-what-was-consumed-is-written",
        "qos.core.receiver",
        "return done, (written, *told)",
        "return done, (*told, written)",
        "The sender is told when the effects are on disk.",
    ),
    Mutant(
        "consumed-though-it-failed",
        "qos.engine.handing_over",
        "if error is None:\n            message.transaction",
        "if True:\n            message.transaction",
        "What a consumer has written is undone when it fails.",
    ),
    Mutant(
        "mark-and-effects-apart",
        "qos.engine.inbox",
        "(message.transaction or self._store).write((effect,))",
        "self._store.write((effect,))",
        "The effects and the mark that a message is done are one commit.",
    ),
    Mutant(
        "hand-overs-counted-late",
        "qos.core.receiver",
        "return record, (Save(record), Consume(record))",
        "return record, (Consume(record), Save(record))",
        "Each hand-over to a consumer is counted on disk before it begins.",
    ),
    Mutant(
        "hand-overs-without-end",
        "qos.core.receiver",
        "if record.handovers >= at.handovers_max:",
        "if record.handovers > at.handovers_max:",
        "A message on which a consumer fails is parked in time.",
    ),
    Mutant(
        "no-mark-for-a-consumer",
        "qos.core.receiver",
        "redelivered=record.redelivered or record.handovers > 0",
        "redelivered=record.redelivered",
        "What a consumer has failed on comes again with the mark.",
    ),
    Mutant(
        "lanes-are-ignored",
        "qos.engine.handing_over",
        "if lane is None or self._lanes.enter(lane, message.key):",
        'if self._lanes.enter(lane or "", message.key) or True:',
        "A consumer has one message of an account at a time.",
    ),
)

MUTANTS = (*_SENDER, *_RECEIVER, *_CONSUMER, *_QUEUE, *_WORKER)
