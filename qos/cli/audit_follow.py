"""`xmpp-qos audit --follow`: an audit that keeps running."""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from qos.cli.audit_run import AuditRun
from qos.cli.output import note
from qos.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qos.audit.follow import Look
    from qos.audit.results import Summary

__all__ = ["EVERY_S", "LATE_DAYS", "FollowRun", "check", "line_of"]

EVERY_S = 60.0
LATE_DAYS = 7


def check(arguments: argparse.Namespace) -> None:
    """Check that the options fit together, and fill in the defaults.

    Raises:
        UsageError: they do not fit together.
    """
    if not arguments.follow:
        for name in ("once", "every", "late"):
            if getattr(arguments, name):
                raise UsageError(f"--{name} is of --follow only")
        return
    if arguments.first or arguments.last:
        raise UsageError("--follow has no --from and --to: it reads what is there")
    if arguments.once and arguments.every:
        raise UsageError("give --once or --every, not both")
    arguments.every = arguments.every or EVERY_S
    arguments.late = arguments.late or LATE_DAYS
    if arguments.stuck_after >= arguments.late * 86_400:
        raise UsageError(
            f"--stuck-after {arguments.stuck_after:g} is longer than a day stays open: "
            "make --late longer"
        )
    if arguments.keep is not None and arguments.keep <= arguments.late:
        raise UsageError(
            f"--keep {arguments.keep} is not longer than --late {arguments.late}: rows of "
            "a day that is open must stay"
        )


class FollowRun(AuditRun):
    """A follower of journals; a second cancellation stops it at once.

    Args:
        report: called for each look that has found something new.
    """

    def __init__(
        self,
        journals: list[str],
        out: str,
        arguments: argparse.Namespace,
        report: Callable[[Look], Coroutine[Any, Any, None]],
    ) -> None:
        super().__init__(journals, out, arguments)
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._waits = ""
        self._next_at = 0.0

    def _do(self, spark: SparkSession) -> Summary:
        from qos.audit.delta import CannotWrite
        from qos.audit.follow import follow

        arguments = self._arguments
        try:
            look = follow(
                spark,
                self._journals,
                self._out,
                limits=self._limits,
                lateness=timedelta(days=arguments.late),
                every_s=None if arguments.once else arguments.every,
                stop=self._stopped,
                keep_days=arguments.keep,
                on_look=self._look,
                progress=self._busy,
            )
        except CannotWrite as error:
            raise UsageError(str(error)) from None
        return look.summary

    def _stops_gently(self) -> bool:
        if self._stopped.is_set():
            return False
        self._stopped.set()
        if not self._waits:
            note("stopping after this batch; press Ctrl-C again to stop at once")
        return True

    def _busy(self, step: str) -> None:
        self._waits = ""
        self._progress(step)

    def _look(self, look: Look) -> None:
        self._waits = line_of(look)
        self._next_at = time.monotonic() + self._arguments.every
        if look.new:
            telling = asyncio.run_coroutine_threadsafe(self._report(look), self._loop)
            self._wait_for(telling)

    def _state(self) -> str:
        waits = self._waits
        if not waits or self._stopped.is_set():
            return super()._state()
        seconds = max(0.0, self._next_at - time.monotonic())
        return f"{waits}; the next look in {seconds:.0f} s"


def line_of(look: Look) -> str:
    """The result of a look, as one line."""
    summary = look.summary
    batch = "no batch yet" if look.batch < 0 else f"batch {look.batch}"
    return (
        f"{look.at:%Y-%m-%d %H:%M:%S} UTC: {batch}, {summary.lines:,} lines, "
        f"{summary.events:,} events, {sum(summary.anomalies.values()):,} anomalies"
    )
