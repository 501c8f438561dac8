"""`python -m benchmarks guard`: fails if this library is slower, compared with its floor."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarks.command_run import measured_on
from qos.cli.output import note, print_parts
from qos.cli.status import CommandError, Status
from qos.errors import UsageError

if TYPE_CHECKING:
    from benchmarks.guard import Ratios

__all__ = ["run"]

#: Many short turns: a disturbance of the machine then hits only a few of them.
_SECONDS = 0.5
_TURNS = 9

_PAYLOAD_BYTES = 200


async def run(arguments: argparse.Namespace) -> int:
    """Measure, and once more if something seems slower."""
    from benchmarks.guard import regressions

    ratios = await _ratios()
    slower = regressions(ratios)
    if slower:
        note(f"slower than expected, measuring again: {'; '.join(slower.values())}")
        ratios = await _ratios()
        again = regressions(ratios)
        # Noise hits different rows each time: only a row that is slower twice counts.
        slower = {row: text for row, text in again.items() if row in slower}
    if slower:
        text = f"slower than expected, twice: {'; '.join(slower.values())}"
        raise CommandError(text, Status.REFUSED)
    rates = (f"{row} {each.rate:.2f}" for row, each in ratios.items())
    times = (f"{row} {each.cpu:.1f}" for row, each in ratios.items())
    await print_parts(
        f"of the rate of their floors: {', '.join(rates)}",
        f"times the processor time of their floors: {', '.join(times)}",
    )
    return Status.DONE


async def _ratios() -> Mapping[str, Ratios]:
    """The ratios of each watched row to its floor, on a Prosody started for this."""
    from benchmarks.figures import ratio
    from benchmarks.guard import EXPECTED, WINDOW, Ratios
    from benchmarks.rows import Row
    from benchmarks.run import Plan
    from benchmarks.servers import ProsodyServer
    from benchmarks.settings import FLOOR, STORES, settings_for
    from qos.core.message.model import Level
    from qos.testing.processes import NotInstalled

    ours = [each for each in settings_for(list(Level), STORES) if each.name in EXPECTED]
    bases = {each.floor for each in ours}
    settings = [*(each for each in FLOOR if each.name in bases), *ours]
    server = ProsodyServer()
    plan = Plan(
        windows=[WINDOW], sizes=[_PAYLOAD_BYTES], seconds=_SECONDS, repeat=_TURNS
    )
    rows = [Row(each, server, window_max=WINDOW) for each in settings]
    try:
        measured, _ = await measured_on(server, rows, plan)
    except NotInstalled as error:
        raise UsageError(str(error)) from None
    by_name = {each.row: each for each in measured}
    found = {}
    for each in ours:
        row, floor = by_name[each.name], by_name[each.floor]
        rate, cpu = ratio(row, floor, "rate"), ratio(row, floor, "cpu_us_ends")
        assert rate is not None
        if cpu is None:
            raise UsageError("no /proc: processor time cannot be measured here")
        found[each.name] = Ratios(rate, cpu)
    return found
