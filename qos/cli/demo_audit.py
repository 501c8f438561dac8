"""The last part of `xmpp-qos demo`: an audit of the journals of the other parts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from qos.cli import audit
from qos.cli.output import say
from qos.cli.status import Status
from qos.errors import UsageError

__all__ = ["Journals"]

_STORY = """
Doors, counter, service and bees have each kept a journal of what they did, without the
contents. An audit compares all of them (as does xmpp-qos audit).
"""

#: There is one clock, and everything is over: all that the journals do not explain is
#: an anomaly.
_STRICT = ("--skew", "0.001", "--stuck-after", "1")


class Journals:
    """The journals of the demo: their folder, and their audit.

    As a context manager it removes a folder that the user cannot know of.

    Args:
        out: a new or empty folder; None: a new one, if an audit is possible.
        wanted: whether the user wants an audit.

    Attributes:
        folder: of the journals; None: they would be of no use.

    Raises:
        UsageError: the folder cannot be used.
    """

    def __init__(self, out: Path | None, *, wanted: bool) -> None:
        self._wanted = wanted
        self._problem = _problem() if wanted else None
        self._lasts = out is not None
        if out is not None:
            _check(out)
        elif wanted and not self._problem:
            out = Path(tempfile.mkdtemp(prefix="xmpp-qos-demo-"))
        self._out = out
        self.folder = out / "journal" if out is not None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._out is not None and not self._lasts:
            shutil.rmtree(self._out, ignore_errors=True)

    async def audit(self, *, json: bool) -> bool:
        """Audit the journals and show the result, or why there is none.

        Returns whether all is well.

        Raises:
            CommandError: Spark has failed, or stdout cannot be written.
        """
        if self._wanted and not self._problem:
            assert self._out is not None
            say(_STORY.removesuffix("\n"))
            words = [str(self.folder), "--out", str(self._out), *_STRICT]
            arguments = audit.parser("xmpp-qos audit").parse_args(
                [*words, "--json"] if json else words
            )
            try:
                clean = await audit.run(arguments) == Status.DONE
            except UsageError as error:
                self._problem = str(error)
            else:
                self._lasts = True
                say(f"The journals: {self.folder}")
                return clean
        if self._problem:
            say(f"\nNo audit of the journals: {self._problem}")
        if self._lasts:
            say(f"The journals: {self.folder}")
        return True


def _problem() -> str | None:
    """The reason why an audit is not possible, or None."""
    from qos.spark.session import NoSpark, check_spark

    try:
        check_spark()
    except NoSpark as error:
        return str(error)
    return None


def _check(out: Path) -> None:
    try:
        if out.exists() and any(out.iterdir()):
            raise UsageError(f"--out {out}: there is something in it")
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}") from None
