"""Measurements on a server that the command starts, with progress on the terminal."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from qos.cli.output import ProgressBar

if TYPE_CHECKING:
    from benchmarks.figures import Measured
    from benchmarks.run import Plan
    from benchmarks.sample import Contender
    from benchmarks.servers import Server

__all__ = ["folders", "measured_on"]


async def measured_on(
    server: Server, contenders: Sequence[Contender], plan: Plan
) -> tuple[list[Measured], dict[str, str]]:
    """Start the server, measure, and stop it.

    All files are in the temporary folder, and are removed at the end.

    Returns:
        The measurements; and by name, the reason why a contender was left out.

    Raises:
        BenchFailed: a measurement has failed.
        NotInstalled: the server is not installed.
    """
    from benchmarks.run import measure

    absent: dict[str, str] = {}
    progress = _Progress()
    with folders("server", "rows") as (server_folder, rows_folder):
        try:
            await server.start(server_folder)
            measured = await measure(
                contenders,
                plan,
                rows_folder,
                progress=progress.tell,
                absent=absent.__setitem__,
            )
        finally:
            progress.close()
            await server.stop()
    return measured, absent


@contextmanager
def folders(*names: str) -> Iterator[list[Path]]:
    """Folders with these names in the temporary folder; removed at the end."""
    with tempfile.TemporaryDirectory(prefix="xmpp-qos-bench-") as parent:
        folders = [Path(parent, name) for name in names]
        for each in folders:
            each.mkdir()
        yield folders


class _Progress:
    """The progress: the current step, and the remaining time."""

    def __init__(self) -> None:
        self._line = ProgressBar()
        self._began: float | None = None

    def tell(self, text: str, done: float) -> None:
        now = time.monotonic()
        if done and self._began is not None:
            left_s = (now - self._began) * (1 - done) / done
            text = f"{text} ({done:.0%}, {left_s / 60:.0f} min left)"
        else:
            self._began = now
        self._line.tell(text)

    def close(self) -> None:
        self._line.close()
