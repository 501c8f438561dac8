"""The first part of `xmpp-qos demo`: the three levels over a bad link."""

from __future__ import annotations

import tempfile
from pathlib import Path

from qos.cli.demo_output import ProgressLine, is_bold, show
from qos.cli.output import print_json, say
from qos.core.message.model import Level
from qos.demo.process import SpareProcess
from qos.demo.run import Conditions, Progress, run_level
from qos.demo.table import Row, render
from qos.demo.text import number, times

__all__ = ["show_levels"]

_STORY = """\
Counting people in a closed space, by the example in the proto-XEP.

Two doors, an entrance and an exit, report each person who passes to a counter, by an
event (XEP-0337) in an XMPP message: Entered or Left. All three are clients of a server
that is part of this program: nothing leaves this machine. {messages} people pass, while
  - the link between the three loses {loss:g} % of the stanzas, delays each by up to
    {delay:g} ms, and with {cut:g} % of them cuts the connection of the receiver;
  - the counter, a process of its own, is killed {kills} (SIGKILL) and started again.

The counter writes each event to disk, with the id of the message, before it reports that
the event is done. If it is killed in between, it gets the message again, marked as
redelivered. Only then does it look whether it knows the id, and so counts the event once.

The same people and the same link, first at most once (unacknowledged), then at least
once (acknowledged), then exactly once (assured), with --seed {seed}:
"""


async def show_levels(
    conditions: Conditions, *, json: bool, journal: Path | None = None
) -> bool:
    """Run the scenario at each level; returns whether assured was exact.

    Args:
        conditions: the same for all levels.
        json: print the rows on stdout, and the table on stderr.
        journal: the folder of all journals; None: there is none.

    Raises:
        CommandError: stdout cannot be written.
        ProcessDied, TimeoutError, OSError: the scenario cannot be run.
    """
    say(_story(conditions))
    rows = await _run_levels(conditions, json=json, journal=journal)
    table = render(rows, bold=is_bold(json=json))
    await show(table, _verdict(rows[-1]), json=json)
    return rows[-1].exact


async def _run_levels(
    conditions: Conditions, *, json: bool, journal: Path | None
) -> list[Row]:
    rows: list[Row] = []
    progress = ProgressLine()
    with tempfile.TemporaryDirectory(prefix="xmpp-qos-demo-") as name:
        folder = Path(name)
        try:
            async with SpareProcess(folder, "qos.demo.counter") as spare:
                for level in Level:
                    stores = folder / level.value
                    stores.mkdir()
                    row = await run_level(
                        level,
                        conditions,
                        stores,
                        spare,
                        lambda now: progress.tell(_in_flight(now)),
                        journal,
                    )
                    progress.close()
                    say(_ended(row))
                    rows.append(row)
                    if json:
                        await print_json({"seed": conditions.seed} | row.as_dict())
        finally:
            progress.close()
    return rows


# -- output ----------------------------------------------------------------


def _story(conditions: Conditions) -> str:
    return _STORY.format(
        messages=conditions.messages,
        loss=100 * conditions.loss,
        cut=100 * conditions.cut,
        delay=1000 * conditions.delay_s,
        kills=times(conditions.kills),
        seed=conditions.seed,
    )


def _in_flight(now: Progress) -> str:
    return (
        f"{now.level.value:14}  {now.sent}/{now.messages} sent, {now.counted} counted; "
        f"{_luck(now)}"
    )


def _ended(row: Row) -> str:
    return (
        f"  {row.level:14}  {_luck(row)}, {number(row.recognized, 'repeat')} recognized"
    )


def _luck(on_the_way: Progress | Row) -> str:
    return ", ".join(
        (
            f"{number(on_the_way.stanzas_dropped, 'stanza')} lost",
            number(on_the_way.cuts, "cut"),
            number(on_the_way.kills, "kill"),
        )
    )


def _verdict(assured: Row) -> str:
    if assured.exact:
        return (
            f"Assured: of {number(assured.sent, 'message')} each was counted once, "
            "and the doors know it."
        )
    outcomes = ", ".join(f"{n} {what}" for what, n in assured.outcomes.items())
    return (
        f"Assured has failed: {assured.lost} lost, {assured.duplicated} duplicated; "
        f"the doors were told: {outcomes}."
    )
