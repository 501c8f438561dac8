"""The time that importing the plugin takes, beyond slixmpp's own import."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.footprint import Part, Plan, Progress, Spread, Target
from benchmarks.sample import BenchFailed
from qos.testing.processes import PATIENCE_S, completed

__all__ = ["MS_MAX", "measure"]

#: The target.
MS_MAX = 150.0

_SLIXMPP, _PLUGIN = "slixmpp", "xep_qos"

#: The program imports nothing of ours except the measured package.
_PROGRAM = f"""
import json, sys, time
found = {{}}
for name in ("{_SLIXMPP}", "{_PLUGIN}"):
    modules, wall, cpu = len(sys.modules), time.perf_counter(), time.process_time()
    __import__(name)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    found[name] = {{"ms": wall * 1e3, "cpu_ms": cpu * 1e3,
                   "modules": len(sys.modules) - modules}}
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class _Import:
    """The import of a package.

    Attributes:
        ms: the time.
        cpu_ms: the processor time.
        modules: the number of modules that were not loaded before.
    """

    ms: float
    cpu_ms: float
    modules: int


async def measure(plan: Plan, progress: Progress) -> Part:
    """Import both in fresh interpreters, one after the other.

    The plugin's time is that of its own import statement, after slixmpp's. The
    difference of two interpreters would have the noise of both.
    """
    # The first import writes the bytecode, and reads files that the later ones have in
    # the cache.
    await _imported()
    turns = []
    for turn in range(plan.repeat):
        progress(f"import: interpreter {turn + 1} of {plan.repeat}")
        turns.append(await _imported())
    rows, figures = [], {}
    for name, label in ((_SLIXMPP, "slixmpp"), (_PLUGIN, "the plugin, beyond it")):
        each = [turn[name] for turn in turns]
        ms = Spread.of([one.ms for one in each])
        cpu_ms = median(one.cpu_ms for one in each)
        modules = each[0].modules
        rows.append(
            (
                *(label, f"{ms.median:.0f}", f"{ms.low:.0f}-{ms.high:.0f}"),
                *(f"{cpu_ms:.0f}", str(modules)),
            )
        )
        figures[name] = {
            "ms": ms.median,
            "ms_quartiles": [ms.low, ms.high],
            "cpu_ms": cpu_ms,
            "modules": modules,
        }
    beyond = median(turn[_PLUGIN].ms for turn in turns)
    return Part(
        title="Import",
        head=(("", ""), ("", "ms"), ("", "quartiles"), ("CPU", "ms"), ("", "modules")),
        rows=rows,
        targets=[Target("the plugin's import", beyond, MS_MAX, "ms")],
        figures=figures,
    )


async def _imported() -> Mapping[str, _Import]:
    try:
        done = await completed(sys.executable, "-P", "-c", _PROGRAM)
    except TimeoutError:
        text = f"an import was not done within {PATIENCE_S:g} s"
        raise BenchFailed(text) from None
    if done.status:
        last = done.err.strip().rpartition("\n")[2]
        raise BenchFailed(f"an interpreter could not import it: {last}")
    return {name: _Import(**each) for name, each in json.loads(done.out).items()}
