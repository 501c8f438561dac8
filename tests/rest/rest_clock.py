"""Deadlines of the HTTP gateway that no test may miss because the machine is busy."""

import pytest

from qos.rest import admission, waiting
from qos.rest.push import client
from qos.testing import ManualClock
from turned_time import turned
from waiting import LIMIT_S

__all__ = ["body_clock", "patient"]


@pytest.fixture(autouse=True)
def body_clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock by which requests and bodies have to come; it stands still unless a test moves it."""
    return turned(monkeypatch, admission)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not want to wait gets what is there, however long it is looked for.

    And a target of pushes may take as long as it likes.
    """
    monkeypatch.setattr(waiting, "_LOOK_S", LIMIT_S)
    turned(monkeypatch, client)
