"""A bounded table in which strangers have a room of their own."""

from __future__ import annotations

from qos.core.two_rooms import TwoRooms


def test_strangers_fill_their_own_room_only() -> None:
    """The table of presences was the same for all, and a flood emptied it."""
    rooms: TwoRooms[str, int] = TwoRooms(2, 3)
    rooms.put("lamp", 1, stranger=False)
    for number in range(100):
        rooms.put(f"eve-{number}", number, stranger=True)
    assert rooms.get("lamp") == 1
    assert [rooms.get(f"eve-{number}") for number in (96, 97, 99)] == [None, 97, 99]
    assert len(rooms) == 4
    assert not rooms.crowded


def test_the_oldest_of_the_known_is_forgotten_and_that_is_noted() -> None:
    """The absence of an entry proves nothing any more."""
    rooms: TwoRooms[str, int] = TwoRooms(2, 3)
    for number, name in enumerate(("lamp", "bell", "lamp", "door")):
        rooms.put(name, number, stranger=False)
    assert (rooms.get("lamp"), rooms.get("bell"), rooms.get("door")) == (2, None, 3)
    assert rooms.crowded
    rooms.clear()
    assert not rooms.crowded
    assert len(rooms) == 0


def test_a_key_is_in_one_room_at_a_time() -> None:
    """A stranger may become a contact, and a contact a stranger."""
    rooms: TwoRooms[str, int] = TwoRooms(2, 3)
    rooms.put("lamp", 1, stranger=True)
    rooms.put("lamp", 2, stranger=False)
    assert "lamp" in rooms
    assert (rooms.pop("lamp"), rooms.pop("lamp")) == (2, None)
    rooms.put("lamp", 3, stranger=True)
    assert "lamp" in rooms
    assert rooms.pop("lamp") == 3
    assert "lamp" not in rooms
