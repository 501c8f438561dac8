"""Deterministic simulation: everything at once, in one thread, from one seed.

Several senders and receivers, a queue service, its publisher and its workers, all of
the real core and engines, on machines that die, with disks that fail, and a network
that loses, doubles, delays and reorders. `run(plan_of(seed))` is always the same run.

From a shell: `PYTHONPATH=tests/harness python -m simulation --help`.
"""

from simulation.invariants import Violation
from simulation.plan import Fault, Plan
from simulation.planner import plan_of
from simulation.shrinking import described, shrink
from simulation.world import Result, run

__all__ = [
    "Fault",
    "Plan",
    "Result",
    "Violation",
    "described",
    "plan_of",
    "run",
    "shrink",
]
