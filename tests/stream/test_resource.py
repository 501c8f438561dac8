"""A server that gives a client another resource than the one it asks for."""

from __future__ import annotations

import pytest
from slixmpp import JID

import xep_qos  # noqa: F401 - makes the plugin known
from qos.stream.login import AccountSession
from qos.stream.server import Login


@pytest.mark.parametrize(
    ("bound", "plugin", "count"),
    [("orders.1a2b", False, 1), ("orders", False, 0), ("orders.1a2b", True, 0)],
)
async def test_a_worker_is_told_once_that_its_resource_was_changed(
    bound: str, plugin: bool, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its locks are found again by it; with xep_qos that plugin tells it."""
    session = AccountSession(Login.of("bee@localhost/orders", "secret", tls="off"))
    if plugin:
        session.client.register_plugin("xep_qos", {"store": "memory:"})
        caplog.clear()
    session.client.boundjid = JID(f"bee@localhost/{bound}")
    for _ in range(2):
        session._session_started({})
    logged = [
        each.message for each in caplog.records if each.name == "qos.stream.login"
    ]
    assert len(logged) == count
    for line in logged:
        assert "'orders.1a2b' instead of 'orders'" in line
