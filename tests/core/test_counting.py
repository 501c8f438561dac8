"""Counters that forget what they count none of."""

from collections import Counter

from qos.core.counting import uncount


def test_what_is_counted_no_more_is_forgotten() -> None:
    counter = Counter({"a": 3, "b": 1})
    uncount(counter, "a", 2)
    uncount(counter, "b")
    assert counter == {"a": 1}
    assert "b" not in counter
