"""An audit of the journals of a run by the data pipeline, if Spark is installed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qos.spark.session import NoSpark, check_spark
from qos.testing.processes import completed

__all__ = ["Audited", "audit"]

#: The audit runs in a process of its own, so that Spark is neither imported nor left
#: here.
_COMMAND = "import sys, qos.cli; sys.exit(qos.cli.main())"

#: There is only one clock.
_SKEW_S = 0.001

#: Everything has ended. With a greedy member, all has ended except the messages that
#: others hold of his; open messages are then found by the logs alone.
_STUCK_AFTER_S, _NEVER_STUCK_S = 1, 10_000_000

#: The exit statuses of an audit with a result: nothing found, or something.
_AUDITED = frozenset({0, 1})

#: An audit of an hour of a soak takes some minutes.
_SECONDS_MAX = 3600.0


@dataclass(frozen=True, slots=True)
class Audited:
    """The result of an audit.

    Attributes:
        lines: of all journals.
        anomalies: by kind.
        problems: of the journals, by kind.
        failure: the reason why there is no result, or ''.
        messages: how many have lines; `judged` of them can be judged: for the others
            the lines do not prove whether they were lost.
    """

    lines: int
    anomalies: dict[str, int]
    problems: dict[str, int]
    failure: str = ""
    messages: int = 0
    judged: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong; messages in doubt are not wrong."""
        wrong = self.anomalies.keys() - {"in-doubt"} or self.problems or self.failure
        return self.lines > 0 and not wrong


async def audit(
    journals: Sequence[Path], out: Path, *, greedy: bool = False
) -> Audited | str:
    """Audit the journals in these folders together.

    All servers have the same domain on purpose. So each node has a namesake with the
    same full JID on the other server, and an audit that takes the journal of one for
    that of the other accuses nodes that have lost nothing.

    Args:
        journals: each has a folder for each node.
        out: for the tables and the report.
        greedy: a member never releases the messages that others hold of his.

    Returns:
        The result; or the name of the missing requirement, which is always Spark.
    """
    try:
        await asyncio.to_thread(check_spark)
    except NoSpark as error:
        return str(error)
    stuck_after_s = _NEVER_STUCK_S if greedy else _STUCK_AFTER_S
    folders = [str(node) for folder in journals for node in sorted(folder.iterdir())]
    try:
        done = await completed(
            *(sys.executable, "-P", "-c", _COMMAND),
            *("audit", *folders, "--out", str(out), "--master", "local[1]"),
            *("--json", "--skew", f"{_SKEW_S}", "--stuck-after", f"{stuck_after_s}"),
            seconds=_SECONDS_MAX,
        )
    except TimeoutError:
        return Audited(0, {}, {}, f"it took longer than {_SECONDS_MAX:g} s")
    last = done.err.strip().rpartition("\n")[2]
    if done.status not in _AUDITED:
        return Audited(0, {}, {}, last or f"exit status {done.status}")
    summary = json.loads(done.out)
    return Audited(
        summary["lines"],
        summary["anomalies"],
        summary["problems"],
        messages=summary["rows"]["deliveries"],
        judged=summary["judged"],
    )
