"""What is wrong on purpose: each of these the simulation must find out.

A mutant is a place of the source, which is there exactly once, and what stands there
instead. One that survives shows what the simulated world does not see; then the world is
to be made better, and not this list shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change for the worse.

    Attributes:
        name: for the command.
        module: where.
        old: what stands there.
        new: what stands there instead.
        breaks: what is not true any more.
        by: the invariants that it violates; that one of our own assertions fails is no
            such thing, unless nothing else can.
        seed: one that has found it out; it is tried first.
    """

    name: str
    module: str
    old: str
    new: str
    breaks: str
    by: tuple[str, ...]
    seed: int = 0
