"""What the journals of a run say, by the pipeline's own audit, where there is Spark."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qos.spark.session import NoSpark, check_spark

__all__ = ["Audited", "audit"]

#: In a process of its own: nothing of Spark is imported here, or left behind.
_COMMAND = "import sys, qos.cli; sys.exit(qos.cli.main())"

#: All clocks are one.
_SKEW_S = 0.001

#: Everything has ended; or, if somebody was greedy, all but what he has others hold.
#: Then what is open is seen by the logs alone.
_STUCK_AFTER_S, _NEVER_STUCK_S = 1, 10_000_000

#: How it ends when it says what it has found: nothing, or something.
_AUDITED = frozenset({0, 1})

#: That of an hour of a soak takes some minutes.
_SECONDS_MAX = 3600.0


@dataclass(frozen=True, slots=True)
class Audited:
    """What came of an audit.

    Attributes:
        lines: of all journals.
        anomalies: by kind.
        problems: of the journals, by kind.
        failure: why there is nothing of that, or ''.
        messages: of which there are lines; `judged` of them can be: of the others the
            lines do not prove whether they were lost.
    """

    lines: int
    anomalies: dict[str, int]
    problems: dict[str, int]
    failure: str = ""
    messages: int = 0
    judged: int = 0

    @property
    def clean(self) -> bool:
        """Whether it has found nothing wrong; in doubt is nothing wrong."""
        wrong = self.anomalies.keys() - {"in-doubt"} or self.problems or self.failure
        return self.lines > 0 and not wrong


async def audit(
    journals: Sequence[Path], out: Path, *, greedy: bool = False
) -> Audited | str:
    """Audit the journals in these folders together.

    Args:
        journals: each has a folder for each node.
        out: for the tables and the report.
        greedy: somebody has messages held that he never releases.

    Returns:
        What came of it; or what is missing here for one: Spark, and nothing else.
    """
    try:
        await asyncio.to_thread(check_spark)
    except NoSpark as error:
        return str(error)
    stuck_after_s = _NEVER_STUCK_S if greedy else _STUCK_AFTER_S
    folders = [str(node) for folder in journals for node in sorted(folder.iterdir())]
    process = await asyncio.create_subprocess_exec(
        *("setpriv", "--pdeathsig", "KILL", sys.executable, "-P", "-c", _COMMAND),
        *("audit", *folders, "--out", str(out), "--master", "local[1]"),
        *("--json", "--skew", f"{_SKEW_S}", "--stuck-after", f"{stuck_after_s}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            said, complaints = await process.communicate()
    except TimeoutError:
        return Audited(0, {}, {}, f"it took longer than {_SECONDS_MAX:g} s")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    last = complaints.decode().strip().rpartition("\n")[2]
    if process.returncode not in _AUDITED:
        return Audited(0, {}, {}, last or f"exit status {process.returncode}")
    summary = json.loads(said)
    return Audited(
        summary["lines"],
        summary["anomalies"],
        summary["problems"],
        messages=summary["rows"]["deliveries"],
        judged=summary["judged"],
    )
