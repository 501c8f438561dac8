"""Makes an audit forget an account: its rows go, and no later audit writes them again.

The rows are removed by one commit for each table, with the cause `forget` in its history.
The list of forgotten accounts has the time. Former versions of the tables have the rows
until their files are removed, as those of each replaced version are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import SparkSession

from qos.audit import hadoop
from qos.audit.audits import Audits
from qos.audit.delta import CannotWrite
from qos.audit.follow_lock import alone
from qos.audit.forgetting import is_about, remember
from qos.audit.locations import for_people, whole_url
from qos.audit.results import REPORT
from qos.audit.swap import erase

__all__ = ["forget"]


def forget(
    spark: SparkSession,
    out: str,
    account: str,
    *,
    progress: Callable[[str], None] = lambda step: None,
) -> list[str]:
    """Remove all rows about an account and its devices, and keep them away.

    Readers see tables without them when this returns. The report is removed, as it may
    name the account: the next audit draws a new one. It may be repeated.

    Args:
        spark: see qos.audit.driver.audit.
        out: the folder of the tables.
        account: a bare JID.
        progress: called with a description of the present step.

    Returns:
        The names of the tables that had such rows.

    Raises:
        CannotWrite: another audit writes there, or none was finished there.
    """
    out = whole_url(out)
    with alone(out):
        audits = Audits(spark, out)
        audits.recover()
        if not audits.number:
            raise CannotWrite(f"{for_people(out)}: no audit was finished there")
        # First of all: from here on, no audit writes a row about it.
        accounts = remember(spark, out, account)
        touched = []
        for name in audits.names():
            progress(f"removing rows from {name}")
            if erase(spark, f"{out}/{name}", partial(is_about, accounts)):
                touched.append(name)
        hadoop.remove(spark, f"{out}/{REPORT}")
        audits.record(*audits.days)
    return touched
