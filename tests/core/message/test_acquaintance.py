"""Who is known, and who is a stranger."""

from __future__ import annotations

import pytest

from qos.core.message.acquaintance import is_stranger
from qos.core.message.trust import TrustPolicy

EVE = "eve@far.example/1"


@pytest.mark.parametrize(
    ("sender", "facts", "expected"),
    [
        (EVE, {}, True),
        (EVE, {"listed": True}, False),
        (EVE, {"addressed": True}, False),
        (EVE, {"occupant": True}, False),
        (EVE, {"policy": TrustPolicy(named=frozenset({"eve@far.example"}))}, False),
        (EVE, {"policy": TrustPolicy(named=frozenset({"bob@far.example"}))}, True),
        # All are trusted, and all may be strangers.
        (EVE, {"policy": TrustPolicy(anyone=True)}, True),
        ("lamp@x/2", {}, False),
        ("lamp@x", {}, False),
        ("x", {}, False),
        ("x/1", {}, True),
        ("", {}, False),
    ],
)
def test_known_are_those_whom_we_have_chosen(
    sender: str, facts: dict[str, object], expected: bool
) -> None:
    """Anybody can send presence."""
    given: dict[str, object] = {
        "own": "lamp@x/1",
        "policy": None,
        "listed": False,
        "addressed": False,
        "occupant": False,
        **facts,
    }
    assert is_stranger(sender, **given) is expected  # type: ignore[arg-type]
