"""Headless Chromium controlled over a pipe: any width, dark mode, screenshots."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from browser import COMMAND

_HEIGHT = 900


@dataclass
class Page:
    """An open page.

    Attributes:
        console: everything on the console, by the page or about it.
    """

    browser: "Browser"
    session: str
    console: list[str] = field(default_factory=list)

    def open(self, path: Path, *, width: int, dark: bool = False) -> None:
        """Load a file into a window of this width, as on a telephone below 600 pixels.

        Returns when it is loaded.
        """
        window = {"width": width, "height": _HEIGHT, "mobile": width < 600}
        window["deviceScaleFactor"] = 1
        self.call("Emulation.setDeviceMetricsOverride", **window)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.as_uri())
        self.browser.wait(self, "Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Save an image of the page from its top to its end."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        found = self.call(
            "Page.captureScreenshot",
            captureBeyondViewport=True,
            clip={**size, "scale": 1},
        )
        path.write_bytes(base64.b64decode(found["data"]))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol for this page."""
        return self.browser.call(self, method, params)


class Browser:
    """Speaks the DevTools protocol over a pair of pipes."""

    def __init__(self, reads: int, writes: int) -> None:
        self._from = os.fdopen(reads, "rb", buffering=0)
        self._to = os.fdopen(writes, "wb", buffering=0)
        self._rest = b""
        self._last = 0
        self._seen: list[str] = []

    def page(self) -> Page:
        """A new tab."""
        page = Page(self, "")
        target = self.call(page, "Target.createTarget", {"url": "about:blank"})
        attach = {"targetId": target["targetId"], "flatten": True}
        page.session = self.call(page, "Target.attachToTarget", attach)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        return page

    def call(self, page: Page, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """See Page.call."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if page.session:
            message["sessionId"] = page.session
        self._to.write(json.dumps(message).encode() + b"\0")
        if method == "Page.navigate":
            self._seen.clear()
        while True:
            found = self._next(page)
            if found.get("id") == self._last:
                assert "error" not in found, found
                result: dict[str, Any] = found["result"]
                return result

    def wait(self, page: Page, event: str) -> None:
        """Wait for this event."""
        while event not in self._seen:
            self._next(page)

    def _next(self, page: Page) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = self._from.read(2**16)
            assert more, "the browser has ended"
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        method = message.get("method", "")
        self._seen.append(method)
        if method in {
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
        }:
            page.console.append(json.dumps(message["params"]))
        return message

    def close(self) -> None:
        """Close the pipes; the browser then ends by itself."""
        self._to.close()
        self._from.close()


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start Chromium.

    Args:
        folder: for its data.
    """
    theirs_in, writes = os.pipe()
    reads, theirs_out = os.pipe()
    # Chromium expects the pipes as file descriptors 3 and 4.
    shell = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    options = ("--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}")
    command = ("bash", "-c", shell, *COMMAND, *options)
    process = subprocess.Popen(
        command,
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    found = Browser(reads, writes)
    try:
        yield found
    finally:
        found.close()
        process.kill()
        process.wait()
