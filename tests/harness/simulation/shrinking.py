"""Makes a failing plan as small as possible, so that only its essentials are left.

Delta debugging (Zeller and Hildebrandt 2002): leave out halves, then quarters, and so
on, as long as the same invariant is violated; first of the faults, then of the work. At
the end no single one of them can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from simulation.plan import Plan
from simulation.world import run

__all__ = ["described", "minimal", "shrink"]

T = TypeVar("T")


def shrink(plan: Plan, invariant: str) -> Plan:
    """The smallest plan found that violates the same invariant.

    Args:
        plan: a plan that violates it.
        invariant: the name of its function.
    """

    def fails(smaller: Plan) -> bool:
        return any(each.invariant == invariant for each in run(smaller).violations)

    before = None
    while before != plan:  # without a message a fault may not matter
        before = plan
        for part in ("faults", "messages", "items"):
            plan = _smaller(plan, part, fails)
    return plan


def _smaller(plan: Plan, part: str, fails: Callable[[Plan], bool]) -> Plan:
    def with_some(some: tuple[object, ...]) -> Plan:
        return replace(plan, **{part: some})  # type: ignore[arg-type]  # by its name

    return with_some(minimal(getattr(plan, part), lambda some: fails(with_some(some))))


def minimal(
    parts: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool]
) -> tuple[T, ...]:
    """A part of the parts that still fails, and of which none can be left out.

    Args:
        parts: fail together.
        fails: whether these parts fail.
    """
    if not parts or fails(()):
        return ()
    pieces = 2
    while len(parts) > 1:
        size = -(-len(parts) // pieces)
        for start in range(0, len(parts), size):
            rest = parts[:start] + parts[start + size :]
            if rest and fails(rest):
                parts, pieces = rest, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(2 * pieces, len(parts))
    return parts


def described(plan: Plan) -> Sequence[str]:
    """The plan in words, a line each."""
    return [
        str(plan.settings),
        *map(str, plan.messages),
        *map(str, plan.items),
        *map(str, plan.faults),
    ]
