"""Audits of the fleets of tests/fleet, beside the truth about them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from generator import Plan, fleet
from layout import Layout, lay_out
from qos.journal.schema import SCHEMA_VERSION
from qos.pipeline.driver import audit
from qos.pipeline.tables import Limits
from recount import Recount

__all__ = ["NOW", "Fleets", "audited_fleets"]

#: When it is audited: long after.
NOW = datetime(2026, 2, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Fleets:
    """Two fleets: one without a fault, and one with some.

    Attributes:
        journals: of both, in the worst order that is allowed.
        layouts: of each.
        out: what an audit of them has made.
        recount: of the same files.
    """

    journals: Path
    layouts: list[Layout]
    out: Path
    recount: Recount

    def write(self, folder: Path, *, late: bool) -> None:
        """Put the files into another folder: those that come late, or the others."""
        for layout in self.layouts:
            layout.write(folder, late=late)


def audited_fleets(spark: SparkSession, folder: Path, seed: int) -> Fleets:
    """Make two fleets, and audit them."""
    journals, out = folder / "journals", folder / "out"
    versions = tuple(range(1, SCHEMA_VERSION + 1))
    layouts = []
    for faults in (0, 4):
        domain = f"fleet{faults}"
        plan = Plan(seed, faults=faults, versions=versions, domain=domain)
        layouts.append(lay_out(fleet(plan), seed, name=domain))
        layouts[-1].write(journals)
    audit(spark, [str(journals)], str(out), limits=Limits(now=NOW))
    return Fleets(journals, layouts, out, Recount(journals, version=SCHEMA_VERSION))
