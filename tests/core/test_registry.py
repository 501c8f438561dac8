"""A registry keeps its living entries."""

import pytest

from qos.core.registry import register


def test_a_living_entry_is_not_written_over() -> None:
    entries: dict[str, int] = {}
    register(entries, "a", 1)
    with pytest.raises(AssertionError, match="'a' has a living entry"):
        register(entries, "a", 2)
    assert entries == {"a": 1}
