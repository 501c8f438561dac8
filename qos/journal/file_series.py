"""The files that one boot of a journal writes, one after another.

A file is put away when it is full or old, or when another day begins. It is published, so
that readers see it, when its lines are settled. What cannot be written is counted and
logged, and stops nothing.

Everything here blocks, and is called by one thread at a time: `qos.journal.writer` has the
lock, and knows when a line is settled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from qos.journal.counts import WindowCounts
from qos.journal.files import ActiveFile, Begun, Recovered, begun, recover
from qos.journal.schema import Entry, JournalEvent, LineMaker, time_text

__all__ = ["FileSeries"]

log = logging.getLogger(__name__)

#: How often a journal that cannot be written is logged, and how often a new file is
#: tried.
_LOG_EVERY_S = 60.0
_AGAIN_S = 1.0


class FileSeries:
    """The files of one boot, and the hidden files of dead boots until they are published.

    Attributes:
        lost: how many lines could not be written.
        begun: what the dead boots have begun; see `Begun`.
        full: the files that are put away and hidden, each with the number of engines'
            lines up to its last one.
        too_old: set by the writer: the file is to be put away before the next line.
        probe: see JournalWriter.
    """

    def __init__(
        self,
        folder: Path,
        *,
        node: str,
        boot: str,
        ours: str,
        began_at: float,
        counts: WindowCounts,
        rotate_bytes: int,
    ) -> None:
        """Take over the files of dead writers of the node, and start a new file.

        Args:
            folder: see JournalWriter, as for node, boot and rotate_bytes.
            node: the JID of the node.
            boot: of the writer.
            ours: what the boots of the same store begin with; see `recover`.
            began_at: the time, seconds since the epoch.
            counts: of the messages, whose lines come between the others.
            rotate_bytes: the largest size of a file.

        Raises:
            OSError: the folder cannot be written.
        """
        self.lost = 0
        self.too_old = False
        self.probe: Callable[[str], None] = _no_probe
        self._folder = folder
        self._node = node
        self._boot = boot
        self._rotate_bytes = rotate_bytes
        self._line_maker = LineMaker(node=node, boot=boot)
        self._counts = counts
        self._seq = 0
        # The number of lines noted by the engines; seq also counts the writer's own
        # lines.
        self._taken = 0
        self._number = 0
        self.full: list[tuple[int, ActiveFile]] = []
        self._again_at = self._log_at = 0.0
        self._file: ActiveFile | None = self._new_file(time_text(began_at)[:10])
        self._recovered = recover(folder, node=node, ours=ours)
        self.begun: list[Begun] = begun(self._recovered)
        if not self.begun:
            self._publish_recovered()

    def write(self, batch: Sequence[tuple[float, Entry | None]], settled: int) -> None:
        """Write these lines, and publish the files whose lines are settled."""
        self.write_lines(batch)
        self._publish_recovered()
        self._publish_full(settled)

    def has_settled(self, settled: int) -> bool:
        """Whether a file that is put away can be published."""
        return any(last <= settled for last, _ in self.full)

    def end(self, at: float) -> None:
        """Write the last lines, and publish everything."""
        self.write_lines([(at, None)])
        last = (*self._counts.closing(), Entry(JournalEvent.CLOSED))
        self.write_lines([(at, entry) for entry in last])
        self._publish_recovered()
        self._publish_all()

    def write_lines(self, batch: Sequence[tuple[float, Entry | None]]) -> None:
        """Write these lines and the writer's own, into as many files as needed."""
        if self.too_old:
            self.too_old = False
            self._put_away()
        chunk: list[str] = []
        lines, day, room = self._line_maker, "", 0
        if self._file is not None:
            day, room = self._file.day, self._rotate_bytes - self._file.size
        for at, entry in self._counts.with_counts(batch):
            self._seq += 1
            line = lines.make(at, self._seq, entry)
            # A line larger than a file gets a file of its own.
            if lines.day != day or len(line) > room != self._rotate_bytes:
                self._hand_over(chunk)
                chunk = []
                self._put_away()
                self._file = self._try_new_file(lines.day)
                day = lines.day if self._file is not None else ""
                room = self._rotate_bytes
            chunk.append(line)
            room -= len(line)
            self._taken += entry.event.__class__ is not JournalEvent
        self._hand_over(chunk)

    def _hand_over(self, chunk: list[str]) -> None:
        if not chunk:
            return
        if self._file is None:
            self.lost += len(chunk)
            return
        try:
            self.probe("write")
            self._file.write("".join(chunk).encode("ascii"))
        except OSError as error:
            self.lost += len(chunk)
            self._failed(error)
            # Publish now: for what began in these lines, no later line would tell how
            # it ended.
            self._publish_all()

    def _try_new_file(self, day: str) -> ActiveFile | None:
        if time.monotonic() < self._again_at:
            return None
        try:
            return self._new_file(day)
        except OSError as error:
            self._failed(error)
            return None

    def _new_file(self, day: str) -> ActiveFile:
        self.probe("create")
        self._number += 1
        return ActiveFile(
            self._folder,
            node=self._node,
            boot=self._boot,
            number=self._number,
            day=day,
        )

    def _put_away(self) -> None:
        """End the file; it stays hidden until its lines are settled."""
        if self._file is not None:
            self.full.append((self._taken, self._file))
            self._file = None

    def _publish_all(self) -> None:
        self._put_away()
        self._publish_full(self._taken)

    def _publish_full(self, settled: int) -> None:
        while self.full and self.full[0][0] <= settled:
            _, file = self.full.pop(0)
            self._publish(file)

    def _publish(self, file: ActiveFile | Recovered) -> None:
        try:
            file.publish(self.probe)
        except OSError as error:
            self._failed(error)

    def _publish_recovered(self) -> None:
        """Publish the files of dead boots.

        The ends of what began there are noted by now.
        """
        while self._recovered:
            self._publish(self._recovered.pop(0))

    def _failed(self, error: OSError) -> None:
        """Log the failure, but not for each line."""
        now = time.monotonic()
        self._again_at = now + _AGAIN_S
        if now >= self._log_at:
            self._log_at = now + _LOG_EVERY_S
            log.error(
                "the journal cannot be written, %d lines are lost so far: %s: %s",
                self.lost,
                error.filename or self._folder,
                error.strerror or error,
            )


def _no_probe(_step: str) -> None:
    """See JournalWriter.probe."""
