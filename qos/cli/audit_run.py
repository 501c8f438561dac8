"""Runs an audit in a thread, shows how far it is, and stops it."""

from __future__ import annotations

import abc
import argparse
import asyncio
import contextlib
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from qos.cli.demo_output import ProgressLine
from qos.cli.status import CommandError, Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qos.pipeline.driver import Summary
    from qos.pipeline.tables import Limits

__all__ = ["AuditRun"]

#: How often the terminal is told what Spark does.
_LOOK_S = 0.3


class AuditRun(abc.ABC):
    """What `audit` does with Spark."""

    def __init__(
        self, journals: list[str], out: str, arguments: argparse.Namespace
    ) -> None:
        self._journals = journals
        self._out = out
        self._arguments = arguments
        self._step = "starting Spark"
        self._spark: SparkSession | None = None
        self._given_up = threading.Event()

    async def run(self) -> Summary:
        """Do it; cancelled, it ends at once, or as `_stops_gently` has it."""
        bar = ProgressLine()
        task = asyncio.ensure_future(asyncio.to_thread(self._work))
        try:
            while not task.done():
                try:
                    bar.tell(self._state())
                    await asyncio.wait([task], timeout=_LOOK_S)
                except asyncio.CancelledError:
                    if not self._stops_gently():
                        raise
            return task.result()
        except asyncio.CancelledError:
            self._given_up.set()
            while not task.done():
                # A job may just be on its way to begin.
                if self._spark is not None:
                    self._spark.sparkContext.cancelAllJobs()
                await asyncio.wait([task], timeout=_LOOK_S)
            with contextlib.suppress(Exception):
                task.result()
            raise
        finally:
            bar.close()

    @abc.abstractmethod
    def _audit(self, spark: SparkSession) -> Summary:
        """What to do, in the thread."""

    def _stops_gently(self) -> bool:
        """Whether it is on its way to end by itself, now that it was cancelled."""
        return False

    def _limits(self) -> Limits:
        from qos.pipeline.tables import Limits

        return Limits(
            now=datetime.now(UTC),
            stuck_after_s=self._arguments.stuck_after,
            skew_s=self._arguments.skew,
        )

    def _progress(self, step: str) -> None:
        if self._given_up.is_set():
            raise _GivenUp
        self._step = step

    def _state(self) -> str:
        """What is being done, and how much of it."""
        spark = self._spark
        done = of = 0
        if spark is not None:
            tracker = spark.sparkContext.statusTracker()
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    done += info.numCompletedTasks
                    of += info.numTasks
        return f"{self._step}: {done} of {of} tasks" if of else f"{self._step} …"

    def _work(self) -> Summary:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from qos.pipeline.session import spark_session

        with spark_session(master=self._arguments.master, quiet=True) as spark:
            self._spark = spark
            try:
                return self._audit(spark)
            except (PySparkException, Py4JError) as error:
                lines = [line for line in str(error).splitlines() if line.strip()]
                why = lines[0] if lines else type(error).__name__
                text = f"Spark has failed while {self._step}: {why}"
                raise CommandError(text, Status.INTERNAL) from None
            except OSError as error:
                text = f"{error.filename or self._out}: {error.strerror or error}"
                raise CommandError(text, Status.OUTPUT) from None
            finally:
                self._spark = None


class _GivenUp(Exception):
    """Nobody waits for it any more."""
