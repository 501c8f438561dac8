"""The output of a part of `xmpp-qos demo`: its progress, its rows, its result."""

from __future__ import annotations

import sys

from qos.cli.output import ProgressBar, print_text, say

__all__ = ["ProgressLine", "is_bold", "show"]


class ProgressLine(ProgressBar):
    """A line of progress on stderr, if that is a terminal."""

    def tell(self, text: str) -> None:
        """Draw the line again."""
        if self._shown:
            self._set(f"  {text}")


def is_bold(*, json: bool) -> bool:
    """Whether the output may be bold: it goes to a terminal."""
    return (sys.stderr if json else sys.stdout).isatty()


async def show(*parts: str, json: bool) -> None:
    """Write a table and a verdict, with empty lines between; with JSON, to stderr.

    Raises:
        CommandError: stdout is closed at the other end, or cannot be written.
    """
    text = "".join(f"\n{part}\n" for part in parts)
    if json:
        say(text.removesuffix("\n"))
    else:
        await print_text(text)
