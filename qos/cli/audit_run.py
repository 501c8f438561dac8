"""What an audit is told by its command, whether it is done once or goes on."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from qos.cli.spark_run import SparkRun

if TYPE_CHECKING:
    from qos.pipeline.driver import Summary  # noqa: F401 - named in a string
    from qos.pipeline.tables import Limits

__all__ = ["AuditRun"]


class AuditRun(SparkRun["Summary"]):
    """An audit."""

    def __init__(
        self, journals: list[str], out: str, arguments: argparse.Namespace
    ) -> None:
        super().__init__(master=arguments.master, out=out)
        self._journals = journals
        self._arguments = arguments

    def _limits(self) -> Limits:
        from qos.pipeline.tables import Limits

        return Limits(
            now=datetime.now(UTC),
            stuck_after_s=self._arguments.stuck_after,
            skew_s=self._arguments.skew,
        )
