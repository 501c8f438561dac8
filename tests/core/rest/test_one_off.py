"""One-off links: genuine for one use, node and account, whatever process made them."""

import pytest

from qos.core.rest.one_off import OneOff, OneOffLinks

ID = "0123456789abcdef" * 2
OF = ("message", "orders", "shop@x")


def test_a_link_is_read_by_whoever_has_the_key() -> None:
    """Nothing is stored: it survives a restart."""
    token = OneOffLinks("key", 0.0).new(*OF, item_id=ID, now=1234.5678)
    assert OneOffLinks("key", 0.0).read(token, *OF) == OneOff(ID, 1234.568)
    assert OneOffLinks("other", 0.0).read(token, *OF) is None


@pytest.mark.parametrize("moved_s", [-3600.0, 1e9])
def test_a_link_grows_no_older_by_a_clock_that_was_set(moved_s: float) -> None:
    """Its time moves with the times in the store."""
    token = OneOffLinks("key", 7.0).new(*OF, item_id=ID, now=1e9)
    link = OneOffLinks("key", 7.0 + moved_s).read(token, *OF)
    assert link == OneOff(ID, 1e9 + moved_s)


@pytest.mark.parametrize("place", range(3))
def test_a_link_is_for_one_use_one_node_and_one_account(place: int) -> None:
    links = OneOffLinks("key", 0.0)
    token = links.new(*OF, item_id=ID, now=1.0)
    others = [*OF]
    others[place] = "other"
    assert links.read(token, *others) is None


def test_parts_of_a_link_cannot_be_moved_between_its_fields() -> None:
    links = OneOffLinks("key", 0.0)
    token = links.new("a", "b\0c", "d", item_id=ID, now=1.0)
    assert links.read(token, "a", "b", "c\0d") is None


@pytest.mark.parametrize("at", range(32 + 1 + 3 + 1 + 32))
def test_a_link_with_another_character_is_no_link(at: int) -> None:
    links = OneOffLinks("key", 0.0)
    token = links.new(*OF, item_id=ID, now=1.0)
    changed = "0" if token[at] != "0" else "1"
    assert links.read(token[:at] + changed + token[at + 1 :], *OF) is None


@pytest.mark.parametrize("token", ["", "x", f"{ID}.1.", f"{ID}.1.{'é' * 32}", ID * 9])
def test_what_has_another_form_is_no_link(token: str) -> None:
    assert OneOffLinks("key", 0.0).read(token, *OF) is None
