"""The full JIDs of consumers of gateways."""

import pytest

from qos.core.queue.consumer_jids import Door, consumer_jid, is_consumer_jid
from qos.ids import new_id

ACCOUNT = "erin@example.org"


@pytest.mark.parametrize("door", ["amqp", "http", "http-push"])
def test_the_jid_of_a_consumer_is_known_by_its_form(door: Door) -> None:
    jid = consumer_jid(ACCOUNT, door, new_id())
    assert jid.startswith(f"{ACCOUNT}/{door}-")
    assert is_consumer_jid(jid)


@pytest.mark.parametrize(
    "resource", ["http-1", "http-push", f"ws-{'0' * 32}", f"http-{'0' * 33}", ""]
)
def test_an_xmpp_client_has_that_form_on_purpose_only(resource: str) -> None:
    assert not is_consumer_jid(f"{ACCOUNT}/{resource}")
    assert not is_consumer_jid(ACCOUNT)
