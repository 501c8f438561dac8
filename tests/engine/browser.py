"""A page as a browser without a network shows it.

Headless Chromium, one process each.
"""

import json
import re
import subprocess
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

#: The command line without the task.
COMMAND = (
    "chromium",
    "--headless",
    # In a container, as root, there are neither namespaces nor much of /dev/shm.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    # No name is resolved, so that no external resource is loaded by chance.
    "--host-resolver-rules=MAP * ~NOTFOUND",
)

#: `[1:2:1121/230719.3:INFO:CONSOLE:1] "text", source: file:///… (1)`
_CONSOLE = re.compile(r":CONSOLE[:(]\d+\)?\] (.*)")

#: The source of a message that belongs to no page.
_ITSELF = "not an origin"

#: Enough for a machine under load.
_S_MAX = 120.0


@dataclass(frozen=True)
class Seen:
    """The result of loading a page.

    Attributes:
        html: the page after its scripts.
        console: everything on the console: errors and all else.
        requests: all requests of the page to other places.
    """

    html: str
    console: list[str]
    requests: set[str]

    def texts(self, of_class: str) -> list[str]:
        """The text in each element of a class."""
        return _Texts(of_class, self.html).found


def look_at(page: Path, folder: Path) -> Seen:
    """Open a file.

    Args:
        page: the file.
        folder: an empty folder for the browser's data.
    """
    log = folder / "net.json"
    done = subprocess.run(
        [
            *COMMAND,
            "--enable-logging=stderr",
            "--window-size=1200,900",
            # The time given to scripts and timers.
            "--virtual-time-budget=10000",
            f"--user-data-dir={folder / 'profile'}",
            f"--log-net-log={log}",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=_S_MAX,
        check=True,
    )
    asked = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    # Whatever its options, Chromium sends some requests to its maker.
    urls = {each["url"] for each in asked if each.get("initiator", _ITSELF) != _ITSELF}
    return Seen(done.stdout, _CONSOLE.findall(done.stderr), urls)


class _Texts(HTMLParser):
    def __init__(self, of_class: str, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._class = of_class
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        is_it = self._class in (dict(attrs).get("class") or "").split()
        if self._open or is_it:
            self._open.append(tag)
        if is_it:
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open:
            self.found[-1] += data
