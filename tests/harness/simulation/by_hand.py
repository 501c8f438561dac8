"""Plans made by hand, of edges that hardly any seed meets; each has a seed below 0."""

from __future__ import annotations

from collections.abc import Iterator

from qos.core.message.model import Level
from qos.core.queue.terminus import ExpiryPolicy
from simulation.plan import YEAR_S, Fault, Plan, PlannedItem, PlannedMessage, Settings

__all__ = ["PLANS"]

#: A gateway keeps the terminus of `wasp`, for two seconds.
_KEPT = Settings(expiry=ExpiryPolicy.LINK_DETACH, terminus_s=2)

_TWO_DAYS_S = 2 * 86_400.0

#: `wasp` is the only worker, and is away until the repair, for longer than that.
_AWAY = (Fault("kill", "bee", 0.0, 60.0), Fault("cut", "wasp", 2.0, 13.0))


def _plans() -> Iterator[Plan]:
    # The answer about credit waits for the commit of the item that took the credit, and
    # `wasp` goes before: an answer that asked for more would stop the timer.
    yield Plan(
        seed=-1,
        settings=_KEPT,
        faults=(
            *_AWAY,
            Fault("slow", "queue", 3, 2.0),
            Fault("replay", "wasp", 1.5, 1.0),
        ),
        items=(PlannedItem("item-0", 1.0),),
    )
    # One commit follows another when the terminus has to end, and long after.
    yield Plan(
        seed=-2,
        settings=_KEPT,
        faults=(
            *_AWAY,
            *(Fault("slow", "queue", commit, 1.0) for commit in range(3, 30)),
        ),
        items=tuple(PlannedItem(f"item-{n}", 1.0 + n / 2) for n in range(26)),
    )
    # A receiver and a sender begin with a clock that is 50 years ahead, and then with one
    # that is right. Messages are in each state at that time.
    yield Plan(
        seed=-3,
        faults=(
            *_wrong_for_a_while("lamp", 1.0, 5.0),
            *_wrong_for_a_while("ann", 3.0, 7.0),
        ),
        messages=tuple(
            PlannedMessage(
                number=number,
                at=begin + 0.02 * number,
                sender="ann",
                to="lamp@x/1",
                level=Level.ASSURED,
                deadline_s=60.0,
            )
            for begin in (0.8, 4.6)
            for number in _numbers(begin)
        ),
    )
    # The same for the queue, with items that are locked, and some that wait for a backoff
    # or for a worker that does not come back.
    yield Plan(
        seed=-4,
        settings=Settings(durable_locks=True),
        faults=(
            *_wrong_for_a_while("queue", 1.0, 3.0),
            Fault("kill", "bee", 2.95, 20.0, "resource"),
        ),
        items=tuple(
            PlannedItem(f"item-{n}", 0.5 + n / 4, works_s=0.4, fails=n % 3)
            for n in range(12)
        ),
    )

    # The same with a clock that goes back by two days and comes back, which is more than the
    # queue remembers an item: it was not two days ago that it ended.
    yield Plan(
        seed=-6,
        settings=Settings(durable_locks=True),
        faults=(
            *_wrong_for_a_while("queue", 1.0, 3.0, -_TWO_DAYS_S),
            *_wrong_for_a_while("lamp", 1.5, 5.0, -_TWO_DAYS_S),
            *_wrong_for_a_while("ann", 2.0, 4.0, -_TWO_DAYS_S),
            *(Fault("lose", "queue", number, 0.0) for number in range(10, 90, 3)),
            Fault("kill", "bee", 2.9, 2.0),
        ),
        messages=tuple(
            PlannedMessage(
                number=number,
                at=0.8 + 0.1 * number,
                sender="ann",
                to="lamp@x/1",
                level=Level.ASSURED,
                deadline_s=60.0,
            )
            for number in range(24)
        ),
        items=tuple(
            PlannedItem(f"item-{n}", 0.5 + n / 6, works_s=0.1) for n in range(24)
        ),
    )

    # Messages that are too large for the server, among others, at both levels; the sender
    # is killed when they have ended its stream once.
    yield Plan(
        seed=-5,
        settings=Settings(stanza_bytes_max=15_000),
        faults=(Fault("kill", "ann", 1.2, 0.5),),
        messages=tuple(
            PlannedMessage(
                number=number,
                at=1.0 + 0.01 * number,
                sender="ann",
                to="lamp@x/1" if number % 3 else "bell@x/1",
                level=Level.ACKNOWLEDGED if number % 4 == 1 else Level.ASSURED,
                padding=20_000 + number if number in {2, 9} else 0,
            )
            for number in range(20)
        ),
    )


def _numbers(begin: float) -> range:
    """The numbers of messages that are sent from this time on."""
    return range(12) if begin < 1.0 else range(12, 24)


def _wrong_for_a_while(
    target: str, since: float, until: float, ahead_s: float = 50 * YEAR_S
) -> Iterator[Fault]:
    """It is killed, and starts with a clock that is far ahead; then with the right one."""
    for at, seconds in ((since, ahead_s), (until, -ahead_s)):
        yield Fault("jump", target, at - 0.5, seconds)
        yield Fault("kill", target, at, 0.5)


#: By seed.
PLANS = {plan.seed: plan for plan in _plans()}
