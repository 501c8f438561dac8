"""Types the commands of pages into shells, as a reader would, and compares the output.

The blocks in ```sh are typed. A block in ```text after one is what it prints, where … is
anything. Comments, which no reader sees, say where the reader types something else than
into the first terminal: see MARKS.

    type_page.py PAGE… --twice PAGE…

Pages after `--twice` are typed twice in a row, as by a reader who begins again: on the
same machine, in the same folder. `--once` ends that.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: Of a block whose command goes on; the rest of the page is typed meanwhile.
TERMINALS = {
    "<!-- a second terminal -->": "second",
    "<!-- a third terminal -->": "third",
}
PRINTED = "<!-- printed in the second terminal -->"
STOP = "<!-- stop the second terminal -->"
MARKS = (*TERMINALS, PRINTED, STOP)

#: For a machine under load.
PATIENCE_S = 100.0 * float(os.environ.get("PATIENCE", "1"))


class Block(NamedTuple):
    mark: str
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The marks and blocks of a page, in order."""
    marks = "|".join(map(re.escape, MARKS))
    fence = rf"^(?:({marks})\n)?```(sh|text)\n(.*?)^```$|^({marks})$"
    for found in re.finditer(fence, page, re.DOTALL | re.MULTILINE):
        yield Block(found[1] or found[4] or "", found[2] or "", found[3] or "")


class Terminal:
    """A shell that ends with the first command that fails."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        self._shell = subprocess.Popen(
            ["/bin/bash", "--norc", "-e", "-o", "pipefail"],
            stdin=subprocess.PIPE,
            stdout=write,
            stderr=write,
            process_group=0,
        )
        os.close(write)
        self.printed = ""

    def type(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(text.encode())
        self._shell.stdin.flush()

    def wait_for(self, text: str) -> None:
        """Until it has printed this.

        Raises:
            SystemExit: it has ended, or has not printed it in time.
        """
        wanted = re.escape(text.rstrip("\n")).replace("…", ".*")
        ends_at = time.monotonic() + PATIENCE_S
        while not self._has(wanted):
            status = self._shell.poll()
            if status is None and time.monotonic() < ends_at:
                time.sleep(0.02)
            elif not self._has(wanted):  # it may have printed something at its end
                why = "it took too long" if status is None else f"status {status}"
                sys.exit(f"{why}; wanted:\n{text}\nthere was:\n{self.printed}")

    def _has(self, wanted: str) -> bool:
        try:
            while data := os.read(self._read, 65536):
                # The lines of HTTP end with a carriage return.
                self.printed += data.decode(errors="replace").replace("\r", "")
        except BlockingIOError:
            pass
        return re.search(wanted, self.printed) is not None

    def stop(self) -> None:
        """As Ctrl-C does."""
        os.killpg(self._shell.pid, signal.SIGINT)
        self._shell.wait(PATIENCE_S)


def type_page(page: Path) -> None:
    """Type it.

    Raises:
        SystemExit: something has failed, or is not as the page says.
    """
    began = time.monotonic()
    first = typed = Terminal()
    others: dict[str, Terminal] = {}
    for number, block in enumerate(blocks(page.read_text())):
        name = TERMINALS.get(block.mark)
        if block.mark == STOP:
            others.pop("second").stop()
        elif block.language == "text":
            shown = others["second"] if block.mark == PRINTED else typed
            shown.wait_for(block.text)
            print(re.sub("^", "    ", shown.printed.rstrip(), flags=re.MULTILINE))
        else:
            where = f", a {name} terminal" if name else ""
            print(f"-- {time.monotonic() - began:5.1f} s{where}")
            print(block.text, end="", flush=True)
            if name is None:
                typed = first
                typed.printed = ""
                typed.type(f"{block.text}echo done-{number}\n")
                typed.wait_for(f"done-{number}\n")
                typed.printed = typed.printed.replace(f"done-{number}\n", "")
            else:
                if name in others:
                    others[name].stop()
                typed = others[name] = Terminal()
                typed.type(block.text)
    for each in others.values():
        each.stop()
    first.stop()
    print(f"all of {page} in {time.monotonic() - began:.1f} s", flush=True)


def type_pages(words: list[str]) -> None:
    """Type these pages, once or twice: see above."""
    times = 1
    for word in words:
        if word in _TIMES:
            times = _TIMES[word]
            continue
        for number in range(times):
            if number:
                time.sleep(
                    1
                )  # Nobody types a page twice in the second that is in a name.
            type_page(Path(word))


_TIMES = {"--once": 1, "--twice": 2}


if __name__ == "__main__":
    type_pages(sys.argv[1:])
