"""Runs Spark in a thread for a command, shows its progress, and stops it."""

from __future__ import annotations

import abc
import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from qos.cli.output import ProgressBar
from qos.cli.status import CommandError, Status

if TYPE_CHECKING:
    from deltalake.exceptions import DeltaError
    from pyspark.sql import SparkSession

__all__ = ["SparkRun", "disk_failure"]

_T = TypeVar("_T")

#: Seconds between two updates of the progress.
_LOOK_S = 0.3


class SparkRun(abc.ABC, Generic[_T]):
    """The work of a command with Spark.

    Args:
        master: see qos.spark.session.spark_session.
        out: named by a disk error that names no file.
    """

    #: A module that `_do` needs; it is imported while Java starts.
    _needs: ClassVar = "qos.audit.driver"

    def __init__(self, *, master: str | None, out: str) -> None:
        self._master = master
        self._out = out
        self._step = "starting Spark"
        self._spark: SparkSession | None = None
        self._given_up = threading.Event()

    async def run(self) -> _T:
        """Do the work.

        If it is cancelled, it ends at once, or as `_stops_gently` says.
        """
        with _py4j_is_quiet():
            return await self._run()

    async def _run(self) -> _T:
        bar = ProgressBar()
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
                # A new job may have begun meanwhile.
                self._cancel_jobs()
                await asyncio.wait([task], timeout=_LOOK_S)
            with contextlib.suppress(Exception):
                task.result()
            raise
        finally:
            bar.close()

    @abc.abstractmethod
    def _do(self, spark: SparkSession) -> _T:
        """The work itself, done in the thread."""

    def _is_short(self) -> bool:
        """Whether the work takes at most a minute; asked before there is a session."""
        return False

    def _stops_gently(self) -> bool:
        """Whether the cancelled work is about to end by itself."""
        return False

    def _progress(self, step: str) -> None:
        if self._given_up.is_set():
            raise _GivenUp
        self._step = step

    def _wait_for(self, doing: concurrent.futures.Future[None]) -> None:
        """Wait, in the thread, for something that the event loop does."""
        while True:
            with contextlib.suppress(TimeoutError):
                return doing.result(_LOOK_S)
            if self._given_up.is_set():
                doing.cancel()
                raise _GivenUp

    def _cancel_jobs(self) -> None:
        from py4j.protocol import Py4JError

        # Java may be gone: a signal to the process group ends it too.
        with contextlib.suppress(Py4JError, OSError):
            if self._spark is not None:
                self._spark.sparkContext.cancelAllJobs()

    def _state(self) -> str:
        """The current step, and its progress."""
        from py4j.protocol import Py4JError

        spark = self._spark
        tasks_done = tasks = 0
        with contextlib.suppress(Py4JError, OSError):
            if spark is not None:
                tracker = spark.sparkContext.statusTracker()
                for stage in tracker.getActiveStageIds():
                    info = tracker.getStageInfo(stage)
                    if info is not None:
                        tasks_done += info.numCompletedTasks
                        tasks += info.numTasks
        return (
            f"{self._step}: {tasks_done} of {tasks} tasks"
            if tasks
            else f"{self._step} …"
        )

    def _work(self) -> _T:
        from deltalake.exceptions import DeltaError
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from qos.spark.session import spark_session

        # The import takes a second, in which Java starts.
        threading.Thread(target=self._import).start()
        short = self._is_short()
        try:
            with spark_session(master=self._master, quiet=True, short=short) as spark:
                self._spark = spark
                try:
                    return self._do(spark)
                except (PySparkException, Py4JError) as error:
                    # Java, which can be asked for more, is still there.
                    raise _failure(error, self._step) from None
                finally:
                    self._spark = None
        except (PySparkException, Py4JError) as error:
            raise _failure(error, self._step) from None
        except ConnectionError:
            text = f"Spark was ended by somebody else while {self._step}"
            raise CommandError(text, Status.INTERNAL) from None
        except (OSError, DeltaError) as error:
            raise disk_failure(error, self._out) from None

    def _import(self) -> None:
        # The work itself imports the module again, and fails in the same way.
        with contextlib.suppress(Exception):
            import_module(self._needs)


def _failure(error: Exception, step: str) -> CommandError:
    """What to tell a user when Spark has failed during a step."""
    from qos.spark.causes import Lack, cause_of, error_texts

    cause = cause_of(error_texts(error))
    statuses = {Lack.ROOM: Status.OUTPUT, Lack.SETUP: Status.USAGE}
    status = statuses.get(cause.lack, Status.INTERNAL)
    return CommandError(f"Spark has failed while {step}: {cause.text}", status)


def disk_failure(error: OSError | DeltaError, out: str) -> CommandError:
    """What to tell a user when Python or deltalake could not read or write a file.

    Args:
        error: deltalake raises both kinds; neither names a file.
        out: named if the error names no file.
    """
    from qos.spark.causes import Lack, cause_of

    cause = cause_of([str(error)])
    file, text = out, cause.text
    if isinstance(error, OSError):
        file = error.filename or out
        if cause.lack is not Lack.ROOM:
            text = error.strerror or cause.text
    return CommandError(f"{file}: {text}", Status.OUTPUT)


@contextlib.contextmanager
def _py4j_is_quiet() -> Iterator[None]:
    """Keep Py4J from logging errors that it also raises.

    Some of its records go to the root logger, without a name.
    """

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.module != "java_gateway"

    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    before = py4j.level
    root.addFilter(is_of_others)
    py4j.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        root.removeFilter(is_of_others)
        py4j.setLevel(before)


class _GivenUp(Exception):
    """The caller does not wait any more."""
