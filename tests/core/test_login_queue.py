"""Logins wait in turns: of addresses, and in each of names."""

import pytest

from qos.core.login_queue import Full, LoginQueue


def all_of(queue: LoginQueue[str]) -> list[str]:
    found = []
    while queue:
        found.append(queue.take()[1])
    return found


def test_each_address_has_its_turn_and_in_it_each_name() -> None:
    """Whoever guesses much waits for itself."""
    queue: LoginQueue[str] = LoginQueue()
    for number in range(4):
        queue.add("a", "shop", f"guess {number}")
    queue.add("b", "till", "till")
    queue.add("b", "lamp", "lamp")
    queue.add("a", "boss", "boss")
    assert all_of(queue) == [
        *("guess 0", "till", "boss", "lamp", "guess 1", "guess 2", "guess 3"),
    ]


def test_a_newcomer_waits_for_one_entry_of_each_other_address_at_most() -> None:
    queue: LoginQueue[str] = LoginQueue()
    for number in range(100):
        queue.add("a", f"name {number}", f"guess {number}")
    queue.take()
    queue.add("b", "till", "till")
    assert [queue.take() for _ in range(2)] == [("a", "guess 1"), ("b", "till")]


def test_what_is_removed_does_not_wait() -> None:
    queue: LoginQueue[str] = LoginQueue()
    queue.add("a", "shop", "1")
    queue.add("a", "shop", "2")
    queue.add("a", "till", "3")
    queue.remove("a", "shop", "1")
    assert all_of(queue) == ["2", "3"]
    assert not queue


def test_an_address_has_a_bound_and_the_name_with_the_most_pays_for_it() -> None:
    queue: LoginQueue[str] = LoginQueue(address_max=4)
    for number in range(4):
        assert queue.add("a", "shop", f"guess {number}") is None
    assert queue.add("a", "till", "till") == "guess 3"
    assert queue.add("a", "lamp", "lamp") == "guess 2"
    assert queue.add("a", "boss", "boss") == "guess 1"
    for name in ("shop", "door"):
        with pytest.raises(Full):
            queue.add("a", name, "more")
    assert queue.add("b", "door", "door") is None
    assert all_of(queue) == ["guess 0", "door", "till", "lamp", "boss"]
