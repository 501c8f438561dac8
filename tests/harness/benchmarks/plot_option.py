"""The option --plot: its requirements and its errors."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from benchmarks.group import HOW_TO_INSTALL
from qos.cli.status import CommandError, Status
from qos.errors import UsageError

__all__ = ["add_plot", "check_plot", "plotting"]


def add_plot(parser: argparse._ActionsContainer, *, note: str = "") -> None:
    """Add the option.

    Args:
        parser: the parser, or a group of it.
        note: a text for people, put behind the description.
    """
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE.svg",
        help=f"draw the figures into this file; needs the group `benchmarks`{note}",
    )


def check_plot(path: Path | None) -> None:
    """Check that a plot can be drawn into this file; None: no plot is wanted.

    Raises:
        UsageError: it cannot.
    """
    if path is None:
        return
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "--plot needs the group `benchmarks`, and there is no matplotlib: "
            f"{HOW_TO_INSTALL}"
        )
    if not path.parent.is_dir():
        raise UsageError(f"--plot {path}: there is no folder {path.parent}")


@contextlib.contextmanager
def plotting(path: Path) -> Iterator[None]:
    """A context for code that draws into this file.

    Raises:
        CommandError: the file cannot be written.
    """
    try:
        yield
    except OSError as error:
        text = f"--plot {path}: {error.strerror or error}"
        raise CommandError(text, Status.OUTPUT) from None
