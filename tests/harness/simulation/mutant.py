"""Deliberate faults, each of which the simulation, or a test that it names, must find.

A mutant is a place in the source, which occurs exactly once, and its replacement. A
mutant that survives shows a gap of the simulated world; then the world must be
improved, and not this list shortened. A mutant names a test where the fault is outside
of that world: at a socket, or in a file.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A deliberate fault.

    Attributes:
        name: for the command.
        module: the module of the place.
        old: the text of the place.
        new: its replacement.
        breaks: the rule that does not hold any more.
        by: the invariants that it violates; a failed assertion of our own does not
            count, unless nothing else is possible.
        seed: a seed that has found it; it is tried first.
        test: the test that finds it, as pytest names it from the folder `tests`; no
            seed is tried then.
    """

    name: str
    module: str
    old: str
    new: str
    breaks: str
    by: tuple[str, ...] = ()
    seed: int = 0
    test: str = ""
