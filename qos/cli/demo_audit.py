"""The last part of `xmpp-qos demo`: an audit of the journals that the others have left."""

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
Doors, counter, service and bees have each kept a journal of what they did, and of
nothing that was in it. What do all of them say together? (That is xmpp-qos audit.)
"""

#: One clock, and all is over: whatever the journals do not explain is an anomaly.
_STRICT = ("--skew", "0.001", "--stuck-after", "1")


class Journals:
    """The journals of the demo: where they are kept, and their audit.

    As a context manager it takes away what nobody could find.

    Args:
        out: an empty or a new folder; None: a new one, if there can be an audit.
        wanted: whether there is to be one.

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
        """Audit them and say what was found, or why not; returns whether all is well.

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
    """Why there can be no audit."""
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
