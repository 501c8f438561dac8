"""The simulation command: it runs seeds or mutants, and prints the results.

Exit status: 0 nothing was violated, and every mutant was found; 1 otherwise; 2 wrong
usage.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from qos.cli.output import ProgressBar, note
from qos.cli.status import Status
from qos.errors import UsageError
from qos.options.parser import Parser
from simulation.by_hand import PLANS
from simulation.campaign import (
    Hunted,
    Totals,
    campaign,
    hunt,
    run_mutated,
)
from simulation.mutants import MUTANTS, Mutant
from simulation.planner import plan_of
from simulation.shrinking import described, shrink
from simulation.world import run

__all__ = ["main"]

_PROG = "python -m simulation"
#: The command line, for the folder of the project.
_SHELL = f"PYTHONPATH=tests/harness {_PROG}"

_DESCRIPTION = """\
Run senders, receivers, a queue service and its workers in one thread and virtual time,
with whatever goes wrong that a seed decides on, and check what is promised at each step.
A seed that violates something is made as small as it can be, and shown.
"""

_EPILOG = f"""\
examples:
  {_SHELL} --seeds 20000
  {_SHELL} --seeds 1 --first 4711 --trace
  {_SHELL} --mutants
  {_SHELL} --seeds 100 --mutant no-tombstones

exit status:
  0  nothing was violated, or every mutant was found out
  1  something was violated, or a mutant survives
  2  wrong usage
"""

#: The number of failures that are shrunk, which takes time; for others the seed is
#: shown.
_SHRUNK_MAX = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        arguments = _parser().parse_args(words)
        mutant = _mutant(arguments.mutant)
    except UsageError as error:
        note(str(error), name=f"{_PROG}: ")
        return Status.USAGE
    try:
        if arguments.mutants:
            return _hunt(arguments)
        if mutant is not None and not arguments.mutated:
            return run_mutated(mutant, [*words, "--mutated"])
        return _campaign(arguments)
    except KeyboardInterrupt:
        return Status.INTERRUPTED


def _parser() -> Parser:
    parser = Parser(prog=_PROG, description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument(
        "--seeds",
        metavar="N",
        type=_count,
        default=2000,
        help="how many (default 2000)",
    )
    parser.add_argument(
        "--first",
        metavar="S",
        type=_seed,
        default=0,
        help="the first (default 0; plans made by hand have seeds below 0)",
    )
    parser.add_argument(
        "--jobs",
        metavar="J",
        type=_count,
        default=os.cpu_count() or 1,
        help="processes at a time (default: one for each core)",
    )
    parser.add_argument(
        "--mutant", metavar="NAME", help="on a source that is wrong on purpose"
    )
    parser.add_argument(
        "--mutants",
        action="store_true",
        help="on each such source, until a seed finds it out; N seeds at most",
    )
    parser.add_argument(
        "--trace", action="store_true", help="show what happens in what fails"
    )
    parser.add_argument("--mutated", action="store_true", help=argparse.SUPPRESS)
    return parser


def _seed(text: str) -> int:
    if text.startswith("-"):
        seed = -_whole(text[1:])
        if seed not in PLANS:
            raise argparse.ArgumentTypeError(f"there is no plan {text!r} made by hand")
        return seed
    return _whole(text)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def _count(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it must be 1 or more")
    return number


def _mutant(name: str | None) -> Mutant | None:
    if name is None:
        return None
    named = {each.name: each for each in MUTANTS}
    if name not in named:
        raise UsageError(f"there is no mutant {name!r}; there are: {', '.join(named)}")
    return named[name]


# -- seeds -----------------------------------------------------------------


def _campaign(arguments: argparse.Namespace) -> int:
    progress, began = ProgressBar(), time.monotonic()

    def tell(so_far: Totals) -> None:
        faults, violated = so_far.faults.total(), len(so_far.violated)
        progress.tell(
            f"{so_far.seeds} of {arguments.seeds} seeds, {faults} faults, "
            f"{violated} violated"
        )

    try:
        totals = campaign(
            arguments.first, arguments.seeds, jobs=arguments.jobs, progress=tell
        )
    finally:
        progress.close()
    for seed, invariant in totals.violated[:_SHRUNK_MAX]:
        _show_failure(seed, invariant, arguments)
    for seed, invariant in totals.violated[_SHRUNK_MAX:]:
        print(f"seed {seed} violates {invariant}: {_replay(seed, arguments)}")
    _show_totals(totals, time.monotonic() - began)
    return 1 if totals.violated else 0


def _show_failure(seed: int, invariant: str, arguments: argparse.Namespace) -> None:
    plan = shrink(plan_of(seed), invariant)
    result = run(plan, traced=arguments.trace)
    print(f"seed {seed} violates {invariant}: {_replay(seed, arguments)}")
    print("  the smallest run of its faults that still does:")
    for line in described(plan):
        print(f"    {line}")
    for violation in result.violations:
        print(f"  {violation}")
    for line in result.trace:
        print(f"    {line}")
    print(flush=True)


def _replay(seed: int, arguments: argparse.Namespace) -> str:
    mutant = f" --mutant {arguments.mutant}" if arguments.mutant else ""
    return f"{_SHELL} --seeds 1 --first {seed}{mutant}"


def _show_totals(totals: Totals, took_s: float) -> None:
    hours = totals.seconds / 3600
    rows = [
        ("seeds", f"{totals.seeds:,}"),
        ("virtual time", f"{hours:,.1f} h, run in {took_s:,.0f} s"),
        ("messages", f"{totals.messages:,}"),
        ("items", f"{totals.items:,}"),
        ("faults", f"{totals.faults.total():,}"),
        *((f"  {kind}", f"{count:,}") for kind, count in sorted(totals.faults.items())),
        ("seeds violated", f"{len(totals.violated):,}"),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")


# -- mutants ---------------------------------------------------------------


def _hunt(arguments: argparse.Namespace) -> int:
    progress = ProgressBar()
    hunted: dict[str, Hunted] = {}
    try:
        for each in hunt(
            MUTANTS, first=arguments.first, seeds=arguments.seeds, jobs=arguments.jobs
        ):
            hunted[each.name] = each
            progress.tell(f"{len(hunted)} of {len(MUTANTS)} mutants: {each.name}")
    finally:
        progress.close()
    width = max(len(each.name) for each in MUTANTS)
    found_out = 0
    for mutant in MUTANTS:
        result = hunted.get(mutant.name)
        found_out += result is not None and bool(result.violation)
        print(f"{mutant.name:{width}}  {_verdict(mutant, result)}")
    print(f"{found_out} of {len(MUTANTS)} mutants found out")
    return 0 if found_out == len(MUTANTS) else 1


def _verdict(mutant: Mutant, hunted: Hunted | None) -> str:
    if hunted is None:
        return "CANNOT BE TRIED: its process has ended"
    if hunted.error:
        return f"CANNOT BE TRIED: {hunted.error}"
    if not hunted.violation:
        return f"SURVIVES {mutant.test or f'{hunted.runs} seeds'}"
    if mutant.test:
        return f"found out by {mutant.test}"
    return f"found out by seed {hunted.seed}, {hunted.violation}"
