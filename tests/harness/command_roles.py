"""The installed command as a process: `xmpp-qos` with its words, stdin and stdout.

The code is the same as in a shell, but in a fork of a process that has already imported
it: a new interpreter takes a second of a busy machine, and a campaign starts hundreds.
"""

from __future__ import annotations

import importlib
import io
import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from campaign.mutants import apply_mutant
from parents import die_with_parent
from qos.cli import main
from qos.options.login import PASSWORD_VARIABLE
from role import Role, Say, open_log

__all__ = ["Shipped"]

#: Imported before the fork; otherwise the command would import them later.
for _module in ("listen", "send", "outbox", "inbox", "queues", "worker_run"):
    importlib.import_module(f"qos.cli.{_module}")
for _module in ("queue_publish", "queue_verbs"):
    importlib.import_module(f"qos.cli.{_module}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped(Role):
    """One run of `xmpp-qos`, from its first word to its exit status.

    Attributes:
        words: the user's words after `xmpp-qos`.
        stdout: the file that stdout is appended to, as by `>>` in a shell; or a FIFO.
        stderr: the file that stderr is appended to.
        begins_line_in: a FIFO that gets a line feed before the command starts; '':
            none. It stands for a new reader: a line that was torn off in the FIFO is
            not continued, since the command prints it again elsewhere.
        lines: written to its stdin by another process, one a line.
        line_every_s: the pause of that process before each line.
        unbuffered: stdout is as with PYTHONUNBUFFERED=1.
        file_bytes_max: no file gets longer, as by `ulimit -f`; 0: no limit. The write
            that meets the limit is a short one.
        mutant: the name of a mistake to make; see `campaign.mutants`.
    """

    words: Sequence[str]
    stdout: str
    stderr: str
    begins_line_in: str = ""
    lines: Sequence[str] = ()
    line_every_s: float = 0.0
    unbuffered: bool = False
    file_bytes_max: int = 0
    mutant: str = ""

    def run(self, say: Say) -> int:
        """See Role. `ready` means only that the process has begun."""
        say("ready")
        if self.begins_line_in:
            fifo = open_log(self.begins_line_in)
            os.write(fifo, b"\n")
            os.close(fifo)
        if not self.lines:
            stdin = os.open(os.devnull, os.O_RDONLY)
        else:
            stdin = self._fed_by_another_process()
        streams = (stdin, open_log(self.stdout), open_log(self.stderr))
        for number, opened in enumerate(streams):
            os.dup2(opened, number)
            os.close(opened)
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout, sys.stderr = self._writing(1), self._writing(2)
        os.environ[PASSWORD_VARIABLE] = self.connect.password
        if self.file_bytes_max:
            limit = (self.file_bytes_max, resource.RLIM_INFINITY)
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        apply_mutant(self.mutant)
        return main(list(self.words))

    def _writing(self, number: int) -> io.TextIOWrapper:
        """A stream as Python makes it at its start."""
        raw = io.FileIO(number, "w", closefd=False)
        if self.unbuffered:
            return io.TextIOWrapper(raw, "utf-8", write_through=True)
        return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8")

    def _fed_by_another_process(self) -> int:
        """The read end of a pipe, into which a child writes the lines."""
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                die_with_parent()
                # Or whoever reads what the command says would wait for this process.
                os.close(1)
                os.close(reading)
                self._feed(writing)
            finally:
                os._exit(0)
        os.close(writing)
        return reading

    def _feed(self, writing: int) -> None:
        for line in self.lines:
            time.sleep(self.line_every_s)
            os.write(writing, f"{line}\n".encode())
