"""The parameters of an audit command, for a single audit or a follower."""

from __future__ import annotations

import argparse
import contextlib
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from qos.cli.spark_run import SparkRun

if TYPE_CHECKING:
    from qos.audit.results import Summary  # noqa: F401 - named in a string
    from qos.audit.tables import Limits

__all__ = ["AuditRun"]


class AuditRun(SparkRun["Summary"]):
    """The base of a single audit and of a follower."""

    def __init__(
        self, journals: list[str], out: str, arguments: argparse.Namespace
    ) -> None:
        super().__init__(master=arguments.master, out=out)
        self._journals = journals
        self._arguments = arguments

    def _is_short(self) -> bool:
        from qos.audit.driver import MARGIN
        from qos.audit.journals import tied_folders
        from qos.audit.locations import local_path
        from qos.audit.new_files import each_file
        from qos.audit.results import REPORT
        from qos.audit.small_journals import are_small

        given = self._arguments
        folders, _ = tied_folders(self._journals)
        elsewhere = any(local_path(folder) is None for folder in folders)
        if elsewhere or (given.follow and not given.once):
            return False
        first = given.first and given.first - MARGIN
        last = given.last and given.last + MARGIN
        files = each_file(None, folders, first, last)
        out = local_path(self._out)
        with contextlib.suppress(FileNotFoundError):
            if given.follow and out is not None and (out / REPORT).exists():
                # Nearly all files older than the last report were taken in before it.
                drawn = (out / REPORT).stat().st_mtime
                files = (each for each in files if os.stat(each.path).st_mtime >= drawn)
            return are_small(each.size for each in files)
        # A file was renamed meanwhile.
        return False

    def _limits(self) -> Limits:
        from qos.audit.tables import Limits

        return Limits(
            now=datetime.now(UTC),
            stuck_after_s=self._arguments.stuck_after,
            skew_s=self._arguments.skew,
        )
