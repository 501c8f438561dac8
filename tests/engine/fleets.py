"""The fleets of tests/fleet as journals, with the truth about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from generator import HIDDEN, TWIN, Fault, Plan, fleet
from layout import Layout, lay_out
from nodes import SECOND
from oracle import Key, Verdict, verdicts
from qos.journal.schema import SCHEMA_VERSION
from recount import Recount

__all__ = ["NOW", "Fleets", "journals_in", "make_fleets"]

#: The time of the audit: long after.
NOW = datetime(2026, 2, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Fleets:
    """Two fleets: one without faults, and one with some.

    Attributes:
        journals: of both, in the worst order that is allowed; see journals_in.
        layouts: of each.
        recount: of the same files.
        truth: the verdict on each message that their lines prove.
        faults: the real faults, as (kind, account of the sender, msg_id).
    """

    journals: Path
    layouts: list[Layout]
    recount: Recount
    truth: Mapping[Key, Verdict]
    faults: set[Fault]

    def write(self, folder: Path, *, late: bool) -> None:
        """Write the files into another folder: the late files, or the others."""
        for name in journals_in(folder):
            Path(name).mkdir(parents=True, exist_ok=True)
        for layout in self.layouts:
            layout.write(folder, late=late)


def journals_in(folder: Path) -> list[str]:
    """The folders of journals in a folder of fleets: some devices have namesakes."""
    return [str(folder), *(str(folder / name) for name in (TWIN, HIDDEN))]


def make_fleets(journals: Path, seed: int) -> Fleets:
    """Make two fleets, and put their journals into a folder."""
    versions = tuple(range(1, SCHEMA_VERSION + 1))
    layouts: list[Layout] = []
    truth: dict[Key, Verdict] = {}
    faults: set[Fault] = set()
    for number in (0, 4):
        domain = f"fleet{number}"
        plan = Plan(seed, faults=number, versions=versions, domain=domain)
        made = fleet(plan)
        layout = lay_out(made, seed, name=domain)
        layout.write(journals)
        layouts.append(layout)
        now = round(NOW.timestamp()) * SECOND
        truth |= verdicts(layout.given, layout.newer, layout.named, now=now)
        faults |= made.faults
    recount = Recount(journals, version=SCHEMA_VERSION)
    return Fleets(journals, layouts, recount, truth, faults)
