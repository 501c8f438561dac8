"""How `xmpp-qos demo` shows a part: its progress, its rows, and what came of it."""

from __future__ import annotations

import sys

from qos.cli.output import ProgressBar, note
from qos.cli.status import CommandError, Status

__all__ = ["ProgressLine", "is_bold", "show"]


class ProgressLine(ProgressBar):
    """What is going on, on stderr where that is a terminal."""

    def tell(self, text: str) -> None:
        """Draw it anew."""
        if self._shown:
            self._set(f"  {text}")


def is_bold(*, json: bool) -> bool:
    """Whether what is shown can be bold: where it goes to is a terminal."""
    return (sys.stderr if json else sys.stdout).isatty()


def show(*parts: str, json: bool) -> None:
    """Write a table and a verdict, with empty lines between; JSON has stdout alone.

    Raises:
        CommandError: nobody reads stdout any more, or it cannot be written.
    """
    text = "".join(f"\n{part}\n" for part in parts)
    if json:
        note(text.removesuffix("\n"), name="")
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise CommandError("nobody reads stdout any more", Status.PIPE) from None
    except OSError as error:
        problem = f"cannot write to stdout: {error.strerror or error}"
        raise CommandError(problem, Status.OUTPUT) from None
