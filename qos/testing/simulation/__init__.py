"""Deterministic simulation: everything at once, in one thread, from one seed.

Several senders and receivers, a queue service, its publisher and its workers, all of
the real core and engines, on machines that die, with disks that fail, and a network
that loses, doubles, delays and reorders. `run(plan_of(seed))` is always the same run.

From a shell: `python -m qos.testing.simulation --help`.
"""

from qos.testing.simulation.invariants import Violation
from qos.testing.simulation.making import plan_of
from qos.testing.simulation.plan import Fault, Plan
from qos.testing.simulation.shrinking import described, shrink
from qos.testing.simulation.world import Result, run

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
