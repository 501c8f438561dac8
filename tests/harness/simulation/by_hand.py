"""Plans made by hand, of edges that hardly any seed meets; each has a seed below 0."""

from __future__ import annotations

from collections.abc import Iterator

from qos.core.queue.terminus import ExpiryPolicy
from simulation.plan import Fault, Plan, PlannedItem, Settings

__all__ = ["PLANS"]

#: A gateway keeps the terminus of `wasp`, for two seconds.
_KEPT = Settings(expiry=ExpiryPolicy.LINK_DETACH, terminus_s=2)

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


#: By seed.
PLANS = {plan.seed: plan for plan in _plans()}
