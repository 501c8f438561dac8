"""Makes a plan from a seed: messages, items and faults.

A seed below 0 stands for a plan that was made by hand (`by_hand`).

Most faults come at random. Some come at the time of a message or an item, to machines
that are concerned with it. And some are patterns of several faults that do harm
together.
"""

from __future__ import annotations

import random
from dataclasses import replace

from qos.core.message.model import Level
from qos.core.queue.terminus import ExpiryPolicy
from qos.core.strings import bare
from simulation import by_hand
from simulation.plan import (
    ALWAYS,
    BOTH_SELECTORS,
    LONG_S,
    PUSH_RELS,
    RECEIVERS,
    REQUEST_FAULTS,
    SENDERS,
    TEXT_SENDERS,
    TROUBLE_S,
    WORKERS,
    Fault,
    Plan,
    PlannedItem,
    PlannedMessage,
    Settings,
    jid_of,
)

__all__ = ["plan_of"]


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    if seed < 0:
        return by_hand.PLANS[seed]
    chance = random.Random(seed)
    settings = Settings(
        quota=chance.choice((2, 20)),
        window=chance.choice((1, 2, 8)),
        hold_ttl_s=chance.choice((3.0, 30.0, LONG_S)),
        lock_s=chance.choice((2.0, 10.0)),
        durable_locks=chance.random() < 0.4,
        shared=chance.random() < 0.5,
    )
    # Both at once is rare: they share only the network.
    parts = chance.choice(("messages", "messages", "items", "items", "both"))
    patient = settings.hold_ttl_s == LONG_S
    messages = () if parts == "items" else _messages(chance, settings, patient=patient)
    items = () if parts == "messages" else _items(chance)
    faults = _faults(chance, messages, items, settings)
    messages, regrets = _regretted(seed, messages)
    faults += regrets
    faults = [each for each in faults if not _has_no_such_disk(each)]
    if patient:
        faults = [each for each in faults if not _makes_impatient(each)]
    settings, messages = _consumed(seed, settings, messages)
    settings, messages = _without_takers(seed, settings, messages)
    messages = _posted(seed, messages)
    settings, messages = _distrusted(seed, settings, messages)
    messages, drops = _dropped(seed, settings, messages)
    faults += drops
    # By a random draw of its own, as well.
    strangers = random.Random(f"strangers {seed}").random() < 0.3
    settings = replace(settings, strangers=bool(items) and strangers)
    settings, items = _selected(seed, settings, items)
    settings, more = _kept(seed, settings) if items else (settings, [])
    faults += more
    settings, more = _pushed(seed, settings, items)
    faults += more
    settings, more = _pulled(seed, settings, items)
    faults += more
    settings, more = _resumed(seed, settings, items)
    faults += more
    faults += _service_away(seed, settings, items)
    return Plan(
        seed=seed,
        settings=settings,
        faults=tuple(sorted(faults, key=lambda each: (each.at, each.target))),
        messages=messages,
        items=items,
    )


def _consumed(
    seed: int, settings: Settings, messages: tuple[PlannedMessage, ...]
) -> tuple[Settings, tuple[PlannedMessage, ...]]:
    """Perhaps add consumers.

    By a draw of its own, since known seeds must stay the same.
    """
    chance = random.Random(f"consumers {seed}")
    if chance.random() < 0.5:
        return settings, messages
    fails = (0, 0, 0, 1, ALWAYS)
    return replace(settings, consumes=True), tuple(
        replace(each, fails=chance.choice(fails)) for each in messages
    )


def _without_takers(
    seed: int, settings: Settings, messages: tuple[PlannedMessage, ...]
) -> tuple[Settings, tuple[PlannedMessage, ...]]:
    """Perhaps no handler takes messages for a while, or a device only sends.

    By a draw of its own, as in `_consumed`.
    """
    chance = random.Random(f"takers {seed}")
    if not settings.consumes and chance.random() < 0.3:
        settings = replace(settings, handler_after_s=chance.uniform(0.0, 4.0))
    if settings.shared and chance.random() < 0.3:
        settings = replace(settings, sends_only=True)
        # Messages to this device alone would have no end.
        bell = jid_of("bell", settings)
        messages = tuple(
            replace(each, to=bare(bell)) if each.to == bell else each
            for each in messages
        )
    return settings, messages


def _distrusted(
    seed: int, settings: Settings, messages: tuple[PlannedMessage, ...]
) -> tuple[Settings, tuple[PlannedMessage, ...]]:
    """Perhaps one of the senders is a stranger to the receivers.

    Then there may be plain messages too. By draws of their own, as in `_consumed`.
    """
    chance = random.Random(f"trust {seed}")
    if chance.random() < 0.9:
        return settings, messages
    senders = chance.choice((SENDERS, TEXT_SENDERS))
    settings = replace(settings, distrusted=senders, contacts=chance.random() < 0.5)
    chance = random.Random(f"levels of trust {seed}")
    if chance.random() < 0.4:
        return settings, messages
    settings = replace(
        settings,
        domain=not settings.contacts and chance.random() < 0.5,
        accepts_anyone=chance.random() < 0.3,
        roster_s=chance.choice((0.0, 0.2, 2.0)) if settings.contacts else 0.0,
    )
    plain = [
        PlannedMessage(
            number=len(messages) + number,
            at=each.at + chance.random(),
            sender=each.sender,
            to=each.to,
            level=Level.UNACKNOWLEDGED,
        )
        for number, each in enumerate(messages[:3])
    ]
    return settings, (*messages, *plain)


def _dropped(
    seed: int, settings: Settings, messages: tuple[PlannedMessage, ...]
) -> tuple[tuple[PlannedMessage, ...], list[Fault]]:
    """Perhaps an operator drops by force what a receiver had in hand when it was killed.

    By a draw of its own, as in `_consumed`.
    """
    chance = random.Random(f"drops by force {seed}")
    ours = [each for each in messages if each.sender in SENDERS and each.taking_s]
    if not ours or chance.random() < 0.92:
        return messages, []
    message = chance.choice(ours)
    longer = replace(message, taking_s=message.taking_s + 1.0)
    messages = tuple(longer if each == message else each for each in messages)
    at = message.at + chance.uniform(0.1, 0.8)
    return messages, [
        Fault("drop", name, at, chance.uniform(0.1, 3.0))
        for name in _receivers(message, settings)
    ]


def _posted(
    seed: int, messages: tuple[PlannedMessage, ...]
) -> tuple[PlannedMessage, ...]:
    """Perhaps some messages are posted by clients of a gateway at their sender.

    By a draw of its own, as in `_consumed`.
    """
    chance = random.Random(f"posts {seed}")
    if chance.random() < 0.85:
        return messages
    return tuple(
        replace(each, posted=True, withdrawn_s=None)
        if each.level is Level.ASSURED
        and each.sender in SENDERS
        and chance.random() < 0.6
        else each
        for each in messages
    )


def _selected(
    seed: int, settings: Settings, items: tuple[PlannedItem, ...]
) -> tuple[Settings, tuple[PlannedItem, ...]]:
    """Perhaps let the workers choose their items by selectors.

    By a draw of its own, as in `_consumed`.
    """
    chance = random.Random(f"selectors {seed}")
    if not items or chance.random() < 0.5:
        return settings, items
    colors = ("red", "red", "blue", "")
    items = tuple(replace(each, color=chance.choice(colors)) for each in items)
    return replace(settings, selectors=chance.choice(BOTH_SELECTORS)), items


def _resumed(
    seed: int, settings: Settings, items: tuple[PlannedItem, ...]
) -> tuple[Settings, list[Fault]]:
    """Perhaps let the workers take up their locks again when a connection was lost.

    Theirs are lost often then, and all at once where the server restarts. By a draw of
    its own, as in `_consumed`.
    """
    chance = random.Random(f"resumable locks {seed}")
    kept = settings.durable_locks or settings.expiry is not None
    if not items or kept or settings.no_workers or chance.random() < 0.15:
        return settings, []
    faults = []
    for _ in range(chance.choice((0, 2, 5))):
        at = chance.uniform(0.2, TROUBLE_S)
        how = chance.choice(("", "resource"))
        name = chance.choice(WORKERS)
        faults.append(Fault("cut", name, at, chance.uniform(0.1, 3.0), how))
        if chance.random() < 0.3:
            soon = at + chance.uniform(0.0, 2.0)
            faults.append(Fault("kill", name, soon, chance.uniform(0.1, 2.0)))
    for _ in range(chance.choice((0, 0, 1, 2))):
        # A restart of the server.
        at, seconds = chance.uniform(0.2, TROUBLE_S), chance.uniform(0.1, 3.0)
        how = chance.choice(("", "resource"))
        for name in (*WORKERS, "queue", "shop"):
            late_s = chance.choice((0.0, chance.uniform(0.0, 0.1)))
            lasts_s = seconds + chance.uniform(0.0, 1.0)
            moved = how if name in WORKERS else ""
            faults.append(Fault("cut", name, at + late_s, lasts_s, moved))
    return replace(settings, resumable_locks=True), faults


def _service_away(
    seed: int, settings: Settings, items: tuple[PlannedItem, ...]
) -> list[Fault]:
    """Perhaps the service alone loses its connection, for longer than a lock lasts.

    By a draw of its own, as in `_consumed`.
    """
    chance = random.Random(f"the service is away {seed}")
    if not items or settings.no_workers or chance.random() < 0.7:
        return []
    faults = []
    for _ in range(chance.choice((1, 1, 2))):
        item = chance.choice(items)
        at = item.at + chance.uniform(0.05, 0.1 + item.works_s)
        seconds = settings.lock_s + chance.uniform(0.5, 6.0)
        faults.append(Fault("cut", "queue", at, seconds))
    return faults


def _kept(seed: int, settings: Settings) -> tuple[Settings, list[Fault]]:
    """Perhaps let a gateway keep the terminus of a worker, which is often away then.

    Once it may go for good: it comes back as another one. By a draw of its own, as in
    `_consumed`.
    """
    chance = random.Random(f"termini {seed}")
    if settings.durable_locks or chance.random() < 0.5:
        return settings, []
    faults = []
    for _ in range(chance.choice((0, 2, 5))):
        at = chance.uniform(0.2, TROUBLE_S)
        faults.append(Fault("cut", "wasp", at, chance.uniform(0.1, 5.0)))
        if chance.random() < 0.4:
            kill = at + chance.uniform(-1.0, 3.0)
            faults.append(
                Fault("kill", "queue", max(0.1, kill), chance.uniform(0.1, 2))
            )
    if chance.random() < 0.2:
        at = chance.uniform(1.0, TROUBLE_S)
        faults.append(Fault("kill", "wasp", at, 0.5, how="resource"))
        if chance.random() < 0.5:
            faults.append(Fault("kill", "queue", at + chance.uniform(0, 2.0), 0.5))
    settings = replace(
        settings,
        expiry=chance.choice(list(ExpiryPolicy)),
        terminus_s=chance.choice((0, 2, 8, 30)),
        durable_terminus=chance.random() < 0.6,
        default_released=chance.random() < 0.5,
    )
    return settings, faults


def _pushed(
    seed: int, settings: Settings, items: tuple[PlannedItem, ...]
) -> tuple[Settings, list[Fault]]:
    """Perhaps let items be pushed to a target, beside the workers or without any.

    By a draw of its own, as in `_consumed`.
    """
    chance = random.Random(f"one-off links {seed}")
    if not items or chance.random() < 0.75:
        return settings, []
    alone = chance.random() < 0.5
    push = settings.selectors if any(settings.selectors) else ("",)
    if not alone:
        push = (chance.choice(("", *settings.selectors)),)
    faults = [_about_push(chance, items) for _ in range(chance.choice((0, 2, 4, 8)))]
    settings = replace(
        settings,
        push=push,
        push_rel=chance.choice(PUSH_RELS),
        no_workers=alone,
        link_s=chance.choice((1.0, 8.0, 3600.0)),
        push_sessions=chance.choice((1, 1, 3)),
        push_retries=chance.choice((0, 0, 2)),
        push_retry_wait_s=chance.choice((0.0, 3.0)),
    )
    return settings, faults


def _pulled(
    seed: int, settings: Settings, items: tuple[PlannedItem, ...]
) -> tuple[Settings, list[Fault]]:
    """Perhaps let a client of HornetQ consume, beside the workers or without any.

    Its locks last, since an unanswered message is acknowledged just before its end. By a
    draw of its own, as in `_consumed`.
    """
    chance = random.Random(f"consumers by links {seed}")
    if not items or settings.push or chance.random() < 0.8:
        return settings, []
    faults = []
    for _ in range(chance.choice((0, 3, 6))):
        kind = chance.choice(("unheard", "unanswered", "unanswered", "hang", "kill"))
        which = chance.randrange(1, chance.choice((4, 10, 25)))
        if kind == "kill":
            target = chance.choice(("queue", "queue", "puller"))
            at = chance.choice(items).at + chance.uniform(0.0, 1.0)
            faults.append(Fault(kind, target, at, chance.uniform(0.1, 3.0)))
        elif kind == "hang":
            faults.append(Fault(kind, "puller", which, chance.uniform(0.0, 8.0)))
        else:
            # 1: the service does not notice.
            faults.append(Fault(kind, "puller", which, chance.choice((0.0, 1.0))))
    alone = chance.random() < 0.5
    settings = replace(
        settings,
        pulled=True,
        pull_selector="" if alone else chance.choice(settings.selectors),
        no_workers=alone,
        lock_s=100.0,
    )
    return settings, faults


def _about_push(chance: random.Random, items: tuple[PlannedItem, ...]) -> Fault:
    """Something happens to a request, or to one of its ends while it is made."""
    kind = chance.choice((*sorted(REQUEST_FAULTS), "kill", "kill", "die", "timed"))
    which = chance.randrange(1, chance.choice((4, 10, 25)))
    if kind == "status":
        status = chance.choice((400, 500, 500, 503, 503))
        return Fault(kind, "target", which, status)
    if kind == "hang":
        return Fault(kind, "target", which, chance.uniform(0.0, 20.0))
    if kind in REQUEST_FAULTS:
        return Fault(kind, "target", which)
    if kind == "die":
        return Fault(kind, "target", which, chance.choice((0.1, 1.0, 8.0)))
    item = chance.choice(items)
    at = item.at + chance.choice((0.0, 0.0, item.works_s)) + chance.uniform(0.0, 0.3)
    if kind == "timed":
        kind = chance.choice(("stop", "partition"))
        return Fault(kind, "target", at, chance.uniform(0.1, 20.0))
    return Fault(kind, chance.choice(("queue", "target")), at, chance.uniform(0.1, 3.0))


def _regretted(
    seed: int, messages: tuple[PlannedMessage, ...]
) -> tuple[tuple[PlannedMessage, ...], list[Fault]]:
    """Perhaps withdraw many messages while they are queued, with slow writes.

    By a draw of its own, as in `_consumed`.
    """
    chance = random.Random(f"regrets {seed}")
    if not messages or chance.random() < 0.9:
        return messages, []
    sender = chance.choice(messages).sender
    faults = [
        Fault("slow", sender, commit, chance.uniform(0.02, 0.3))
        for commit in range(4, 20)
    ]
    return tuple(
        replace(each, withdrawn_s=chance.uniform(0.0, 0.8))
        if each.sender == sender and chance.random() < 0.4
        else each
        for each in messages
    ), faults


def _has_no_such_disk(fault: Fault) -> bool:
    """The shop has no disk, and that of a worker is a database that takes no time."""
    if fault.kind == "slow":
        return fault.target in {"shop", *WORKERS}
    return fault.kind in {"full", "error"} and fault.target == "shop"


def _makes_impatient(fault: Fault) -> bool:
    """A message that is lost or not held any more may have no end but its deadline."""
    moves = fault.kind == "jump" or fault.how == "resource"
    return moves and fault.target in RECEIVERS


def _messages(
    chance: random.Random, settings: Settings, *, patient: bool
) -> tuple[PlannedMessage, ...]:
    ordered = chance.random() < 0.4
    # Some go to the same account: a window and a quota belong to an account.
    lamp, bell = (jid_of(name, settings) for name in RECEIVERS)
    targets = chance.sample((lamp, lamp.partition("/")[0], bell), 2)
    longest = None if patient else LONG_S
    made = []
    for number in range(chance.randrange(5, 13)):
        acknowledged = chance.random() < 0.25
        made.append(
            PlannedMessage(
                number=number,
                at=chance.random() * chance.choice((0.3, 8.0)),
                sender=chance.choice((*SENDERS * 3, *TEXT_SENDERS)),
                to=chance.choice(targets),
                level=Level.ACKNOWLEDGED if acknowledged else Level.ASSURED,
                ordered=ordered,
                deadline_s=chance.choice(
                    (longest, longest, chance.uniform(0.05, 8.0), chance.random())
                ),
                withdrawn_s=chance.choice((*(None,) * 7, 3.0 * chance.random() ** 2)),
                taking_s=chance.choice((0.0, 0.0, chance.uniform(0.0, 1.0))),
            )
        )
    return tuple(sorted(made, key=lambda each: each.at))


def _items(chance: random.Random) -> tuple[PlannedItem, ...]:
    made = [
        PlannedItem(
            item_id=f"item-{number}",
            at=chance.random() * chance.choice((0.3, 8.0)),
            works_s=chance.choice(
                (0.0, chance.uniform(0, 1.0), chance.uniform(0, 6.0))
            ),
            fails=chance.choice((0, 0, 0, 1, ALWAYS)),
        )
        for number in range(chance.randrange(2, 7))
    ]
    return tuple(sorted(made, key=lambda each: each.at))


# -- what goes wrong -------------------------------------------------------


def _faults(
    chance: random.Random,
    messages: tuple[PlannedMessage, ...],
    items: tuple[PlannedItem, ...],
    settings: Settings,
) -> list[Fault]:
    machines = [*SENDERS * 2, *TEXT_SENDERS, *RECEIVERS * 2] if messages else []
    machines += ["queue", "queue", "shop", *WORKERS] if items else []
    wipes = chance.random() < 0.35
    # Sometimes a quiet world: a few faults find bugs that many faults hide.
    busy = chance.choice((0, 4, 10, 20))
    makers = (_stanza, _stanza, _timed, _effect, _disk)
    faults = []
    for _ in range(1 + int(busy * chance.random())):
        maker = chance.choice(makers)
        faults.append(maker(chance, chance.choice(machines), wipes=wipes))
    for _ in range(chance.randrange(5)):
        if messages and (not items or chance.random() < 0.5):
            faults += _about_message(chance, chance.choice(messages), settings, wipes)
        else:
            faults += _about_item(chance, chance.choice(items), settings)
    return faults


def _about_message(
    chance: random.Random, message: PlannedMessage, settings: Settings, wipes: bool
) -> list[Fault]:
    pattern = chance.choice((_strikes, _strikes, _amnesia, _drought, _slowness))
    receivers = _receivers(message, settings)
    if pattern is _strikes:
        moment = message.at + chance.random() * chance.choice((0.15, 1.5))
        return _strikes(chance, (message.sender, *receivers), moment, wipes=wipes)
    if pattern is _amnesia and wipes:
        return _amnesia(chance, message, receivers)
    if pattern is _slowness:
        return _slowness(chance, message)
    if message.sender in TEXT_SENDERS:
        return []
    return _drought(chance, message, settings)


def _strikes(
    chance: random.Random, parties: tuple[str, ...], moment: float, *, wipes: bool
) -> list[Fault]:
    """A few faults at once, to machines that are concerned with it."""
    return [
        _timed(
            chance,
            chance.choice(parties),
            wipes=wipes,
            at=moment + chance.random() * 0.1,
        )
        for _ in range(chance.randrange(1, 4))
    ]


def _amnesia(
    chance: random.Random, message: PlannedMessage, receivers: list[str]
) -> list[Fault]:
    """The sender misses the answer to its deliver, and the receiver loses its disk."""
    at, receiver = message.at + chance.uniform(0.05, 0.13), chance.choice(receivers)
    wiped_s = chance.random()
    return [
        Fault("kill", message.sender, at, chance.random()),
        Fault("wipe", receiver, at + chance.uniform(0.02, 0.2), wiped_s),
    ]


def _drought(
    chance: random.Random, message: PlannedMessage, settings: Settings
) -> list[Fault]:
    """A held message expires before it can be released, and then comes again."""
    at, ttl_s = message.at + chance.uniform(0.03, 0.08), min(settings.hold_ttl_s, 4.0)
    return [
        Fault("partition", message.sender, at, ttl_s + chance.random()),
        Fault("replay", message.sender, at + ttl_s + chance.uniform(0.2, 2.0), 6.0),
    ]


def _slowness(chance: random.Random, message: PlannedMessage) -> list[Fault]:
    """The sender's disk is slow, for long, or until the sender dies."""
    first, commits = chance.randrange(1, 12), chance.choice((1, 2, 6))
    faults = [
        Fault("slow", message.sender, commit, chance.uniform(0.1, 1.0))
        for commit in range(first, first + commits)
    ]
    if chance.random() < 0.5:
        at = message.at + chance.uniform(0.03, 0.3)
        faults.append(Fault("kill", message.sender, at, chance.random()))
    return faults


def _about_item(
    chance: random.Random, item: PlannedItem, settings: Settings
) -> list[Fault]:
    pattern = chance.choice((_strikes, _strikes, _silence, _stale))
    if pattern is _silence:
        return _silence(chance, item)
    if pattern is _stale:
        return _stale(chance, item, settings)
    moment = item.at + item.works_s * chance.choice((0.0, 1.0, chance.random()))
    moment += chance.random() * chance.choice((0.15, 1.5))
    parties = ("queue", "queue", "shop", *WORKERS)
    return _strikes(chance, parties, moment, wipes=False)


def _silence(chance: random.Random, item: PlannedItem) -> list[Fault]:
    """The service does its work, but nothing of it is heard for a long time."""
    at = item.at + chance.choice((0.0, item.works_s)) + chance.uniform(0.02, 0.15)
    return [Fault("partition", "queue", at, chance.uniform(10.0, 14.0))]


def _stale(chance: random.Random, item: PlannedItem, settings: Settings) -> list[Fault]:
    """A worker's request arrives when its lock has ended, and it has a new one."""
    worker, other = chance.sample(WORKERS, 2)
    at = item.at + item.works_s + chance.uniform(0.03, 0.08)
    again_at = at + settings.lock_s + chance.uniform(0.1, 4.0)
    return [
        Fault("kill", other, item.at, 15.0),
        Fault("partition", worker, at, settings.lock_s),
        Fault("replay", worker, again_at, 8.0),
    ]


def _receivers(message: PlannedMessage, settings: Settings) -> list[str]:
    account = message.to.partition("/")[0]
    return [
        name
        for name in RECEIVERS
        if jid_of(name, settings).partition("/")[0] == account
    ]


def _stanza(chance: random.Random, target: str, *, wipes: bool) -> Fault:
    kinds = ["lose", "lose", "delay", "duplicate", "unsure"]
    # By the proto-XEP, an old stanza that comes late is a new message.
    kinds += ["late", "late", "duplicate"] if target not in TEXT_SENDERS else []
    kind = chance.choice(kinds)
    seconds = _seconds(chance)
    if kind in {"lose", "unsure"} or (kind == "duplicate" and target in TEXT_SENDERS):
        seconds = 0.0
    which = chance.randrange(1, chance.choice((6, 15, 40)))
    if kind == "unsure" and which % 2:
        return Fault("bounce", target, which, 1.0)
    return Fault(kind, target, which, seconds)


def _timed(
    chance: random.Random, target: str, *, wipes: bool, at: float | None = None
) -> Fault:
    kinds = ["kill", "kill", "stop", "jump", "cut", "partition"]
    if wipes and target in RECEIVERS:
        kinds += ["wipe"] * 4
    if target in WORKERS:
        kinds += ["leave"]
    if target not in TEXT_SENDERS:
        kinds += ["replay"]
    kind = chance.choice(kinds)
    seconds = _seconds(chance)
    if kind == "jump":
        seconds = chance.choice((-3600.0, -5.0, 5.0, 1800.0))
    elif kind == "replay":
        seconds = float(chance.randrange(1, 8))
    moment = TROUBLE_S * chance.random() ** 2 if at is None else at
    how = _resource(chance, target) if kind == "kill" else ""
    return Fault(kind, target, moment, seconds, how)


def _seconds(chance: random.Random) -> float:
    return chance.choice((0.1, 1.0, 5.0, 15.0)) * chance.random()


def _effect(chance: random.Random, target: str, *, wipes: bool) -> Fault:
    effect = chance.randrange(1, chance.choice((10, 30, 80)))
    return Fault("die", target, effect, _seconds(chance), _resource(chance, target))


def _resource(chance: random.Random, target: str) -> str:
    share = {"queue": 0.0, "bee": 0.5, "wasp": 0.5}.get(target, 0.25)
    return "resource" if chance.random() < share else ""


def _disk(chance: random.Random, target: str, *, wipes: bool) -> Fault:
    kind = chance.choice(("full", "error", "slow"))
    commit = chance.randrange(1, chance.choice((6, 15, 40)))
    seconds = _seconds(chance) if kind == "slow" else chance.randrange(1, 6)
    return Fault(kind, target, commit, seconds)
