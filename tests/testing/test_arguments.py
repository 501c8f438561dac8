"""A wrong value for any argument of the testing tools is refused at once, with its
name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest

import qos.testing
from qos.testing import (
    Link,
    LoopbackServer,
    ManualClock,
    friends,
    logged_in,
    queue_service,
)
from wrong_values import accepted

SERVER = LoopbackServer(accounts={"bob": "secret"})
PORTS = (-1, 65536)

Given = Mapping[str, object]
TABLE: dict[
    str, tuple[Callable[..., object], Given, Mapping[str, Sequence[object]]]
] = {
    "Link": (
        Link,
        {"seed": 1},
        {
            **dict.fromkeys(("loss", "duplicate", "cut"), (-0.1, 1.1)),
            "delay_s": ((1.0,), (2.0, 1.0), (-1.0, 1.0), (0.0, float("inf"))),
        },
    ),
    "LoopbackServer": (
        LoopbackServer,
        {"accounts": {"bob": "secret"}},
        {
            "accounts": ({"bob": None},),
            "rosters": ({"bob": "both"}, {"bob": {"a@b": 1}}),
            "components": ({"a.b": None},),
            "port": PORTS,
            "component_port": PORTS,
            "stanza_bytes_max": (0, -1),
        },
    ),
    "ManualClock": (ManualClock, {}, {}),
    "logged_in": (
        logged_in,
        {"server": SERVER, "name": "bob/1"},
        {"name": ("",), "plugins": ({"xep_qos": None},)},
    ),
    "queue_service": (
        queue_service,
        {"server": SERVER, "domain": "queue.localhost"},
        {
            "domain": ("", "a b"),
            "store": ("", "memory:"),
            "creators": ("bob @localhost", [""]),
            "journal": ("",),
        },
    ),
}


@pytest.mark.parametrize("name", TABLE)
async def test_every_argument_is_checked_and_nothing_is_left(name: str) -> None:
    """A test with a wrong argument should report it, and not time out."""
    tasks = asyncio.all_tasks()
    function, valid, wrong = TABLE[name]
    assert await accepted(function, valid, wrong) == []
    assert asyncio.all_tasks() == tasks


def test_every_public_name_is_in_the_table() -> None:
    """`friends` has its own test: its arguments have no names."""
    assert set(qos.testing.__all__) == {*TABLE, "friends"}


@pytest.mark.parametrize("user", ["", None, 5, b"bob"])
def test_the_users_of_friends_are_names(user: str) -> None:
    """A number among them would be a JID."""
    with pytest.raises(ValueError, match="users must be a string"):
        friends("alice", user)
