"""A session in the background, whose loop ends whenever it likes."""

from __future__ import annotations

import threading

import pytest

from qos.errors import CannotConnect
from qos.spark.connection import Background
from qos.stream.login import AccountSession


def test_the_reason_is_told_although_the_loop_has_closed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task was told that the event loop is closed, and not that its store is in use."""
    closed, joined = threading.Event(), threading.Event()

    class SlowThread(threading.Thread):
        """Its loop has closed, and it has still something to do."""

        def run(self) -> None:
            super().run()
            closed.set()
            joined.wait(60)

        def join(self, timeout: float | None = None) -> None:
            joined.set()
            super().join(timeout)

    class LoopHasClosed(Background[AccountSession]):
        def close(self) -> None:
            assert closed.wait(60)
            super().close()

    monkeypatch.setattr("qos.spark.connection.threading.Thread", SlowThread)

    def refuse() -> AccountSession:
        raise CannotConnect("nobody is at home")

    with pytest.raises(CannotConnect, match="nobody is at home"):
        LoopHasClosed(refuse)
