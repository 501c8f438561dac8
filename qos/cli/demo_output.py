"""The output of a part of `xmpp-qos demo`: its progress, its rows, its result."""

from __future__ import annotations

import sys

from qos.cli.output import ProgressBar, print_text, say

__all__ = ["ProgressLine", "is_bold", "show"]


class ProgressLine(ProgressBar):
    """A line of progress on stderr, where that is a terminal."""

    def tell(self, text: str) -> None:
        """Draw it anew."""
        if self._shown:
            self._set(f"  {text}")


def is_bold(*, json: bool) -> bool:
    """Whether what is shown can be bold: where it goes to is a terminal."""
    return (sys.stderr if json else sys.stdout).isatty()


async def show(*parts: str, json: bool) -> None:
    """Write a table and a verdict, with empty lines between; JSON has stdout alone.

    Raises:
        CommandError: nobody reads stdout any more, or it cannot be written.
    """
    text = "".join(f"\n{part}\n" for part in parts)
    if json:
        say(text.removesuffix("\n"))
    else:
        await print_text(text)
