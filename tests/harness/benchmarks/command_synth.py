"""`python -m benchmarks synth`: journals of any size, with known anomalies in them."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.synth import EXPECTED, FIRST_DAY, Plan, Synthesised, synthesise
from qos.cli.output import ProgressBar, note, print_json
from qos.cli.status import CommandError, Status
from qos.errors import UsageError
from qos.options.parser import Parser, day, whole

__all__ = ["add_synth", "run"]

_EPILOG = f"""\
examples:
  python -m benchmarks synth --out journals --messages 100000 --lost 7 --stuck 3
  xmpp-qos audit journals --out audit

A fleet of devices reports to its hubs, as in real journals: with repeats, refusals, clocks
that differ, messages that could not be delivered, queues and workers. OUT/{EXPECTED}
lists exactly what an audit must find. The same options make the same journals.
"""


def add_synth(whats: argparse._SubParsersAction[Parser]) -> None:
    """Add it to the parser of `benchmarks`."""
    parser = whats.add_parser(
        "synth",
        help="journals with known anomalies, of any size",
        description="Make journals with known anomalies in them, to try, test or measure "
        "an audit.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="a new or empty folder for the journals",
    )
    for name, least, default, what in (
        ("devices", 1, 1000, "devices of the fleet"),
        ("messages", 0, 100_000, "messages, with some eight lines each"),
        ("lost", 0, 0, "messages that were lost"),
        ("duplicated", 0, 0, "messages that were handed over twice"),
        ("stuck", 0, 0, "messages that are stuck"),
        ("seed", 0, 1, "seed of everything that happens by chance"),
        ("days", 1, 1, "days over which the messages are spread"),
    ):
        parser.add_argument(
            f"--{name}",
            type=whole(least),
            default=default,
            metavar="N",
            help=f"{what} (default: %(default)s)",
        )
    parser.add_argument(
        "--first-day",
        type=day,
        default=FIRST_DAY,
        metavar="DATE",
        help="the first day (default: %(default)s)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the totals as JSON on stdout"
    )


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    try:
        plan = Plan(
            devices=arguments.devices,
            messages=arguments.messages,
            lost=arguments.lost,
            duplicated=arguments.duplicated,
            stuck=arguments.stuck,
            seed=arguments.seed,
            days=arguments.days,
            first_day=arguments.first_day,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    out: Path = arguments.out
    bar = ProgressBar()

    def progress(done: int, of: int) -> None:
        bar.tell(f"{done} of {of} parts")

    began = time.monotonic()
    try:
        made = await asyncio.to_thread(_synthesise, plan, out, progress)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        text = f"{error.filename or out}: {error.strerror or error}"
        raise CommandError(text, Status.OUTPUT) from None
    finally:
        bar.close()
    seconds = time.monotonic() - began
    anomalies = len(made.anomalies)
    if arguments.json:
        await print_json(
            {
                "out": str(out),
                "messages": plan.messages,
                "lines": made.lines,
                "files": made.files,
                "anomalies": anomalies,
                "seconds": round(seconds, 3),
            }
        )
    else:
        note(
            f"{out}: {plan.messages:,} messages, {made.lines:,} lines in {made.files:,} "
            f"files; {anomalies} anomalies, see {out / EXPECTED}"
        )
    return Status.DONE


def _synthesise(
    plan: Plan, out: Path, progress: Callable[[int, int], None]
) -> Synthesised:
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"--out {out}: there is something in it")
    return synthesise(plan, out, progress=progress)
