"""The resource to ask for at each login."""

from __future__ import annotations

from qos.core.message.session_resource import is_changed, resource_to_ask_for


def test_a_server_that_lengthens_a_resource_does_not_make_it_grow() -> None:
    """From 12 characters it grew to 1,002, a few at each login."""
    asked = given = "lamp"
    for _ in range(100):
        given = f"{asked}.1a2b3c4d"
        assert is_changed(asked, given)
        asked = resource_to_ask_for(asked, given)
    assert asked == "lamp"


def test_the_resource_of_a_server_is_asked_for_again() -> None:
    """Peers hold messages for our full JID."""
    assert not is_changed("", "qrs7")
    assert resource_to_ask_for("", "qrs7") == "qrs7"
    assert not is_changed("qrs7", "qrs7")
    assert resource_to_ask_for("qrs7", "qrs7") == "qrs7"
