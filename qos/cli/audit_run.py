"""The parameters of an audit command, for a single audit or a follower."""

from __future__ import annotations

import argparse
import contextlib
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from qos.audit.locations import for_people
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
        super().__init__(master=arguments.master, out=for_people(out))
        self._journals = journals
        self._arguments = arguments

    def _is_short(self) -> bool:
        from qos.audit.driver import MARGIN
        from qos.audit.journals import tied_folders
        from qos.audit.locations import local_path
        from qos.audit.new_files import each_file
        from qos.audit.results import REPORT
        from qos.audit.small_journals import are_small

        arguments = self._arguments
        folders, _ = tied_folders(self._journals)
        elsewhere = any(local_path(folder) is None for folder in folders)
        if elsewhere or (arguments.follow and not arguments.once):
            return False
        first = arguments.first and arguments.first - MARGIN
        last = arguments.last and arguments.last + MARGIN
        files = each_file(None, folders, first, last)
        out = local_path(self._out)
        with contextlib.suppress(OSError):
            if arguments.follow and out is not None and (out / REPORT).exists():
                # Nearly all files older than the last report were taken in before it.
                drawn = (out / REPORT).stat().st_mtime
                files = (file for file in files if os.stat(file.path).st_mtime >= drawn)
            return are_small(file.size for file in files)
        # A file was renamed meanwhile, or it cannot be read.
        return False

    def _limits(self) -> Limits:
        from qos.audit.tables import Limits

        return Limits(
            now=datetime.now(UTC),
            stuck_after_s=self._arguments.stuck_after,
            skew_s=self._arguments.skew,
        )
