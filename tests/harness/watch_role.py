"""A process that writes down the time, as its clock shows it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from role import Role, Say

__all__ = ["Watch"]

_EVERY_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch(Role):
    """Writes down the time again and again; it connects to nothing.

    Attributes:
        log: the file, which has the latest time.
    """

    log: str

    async def live(self, say: Say) -> None:
        """See Role."""
        say("ready")
        while True:
            await asyncio.to_thread(Path(self.log).write_text, f"{time.time()}")
            await asyncio.sleep(_EVERY_S)
