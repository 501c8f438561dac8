"""The command as process 1 of a container has it: orphans become its children."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Final

import turned_clock

__all__ = ["command"]

#: prctl(2): from linux/prctl.h.
_PR_SET_CHILD_SUBREAPER: Final = 36


def command(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run `xmpp-qos` with these words, as the process that adopts its orphans."""
    from qos.cli import children

    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("prctl")
    children._INIT = os.getpid()
    return turned_clock.command(words, environment)
