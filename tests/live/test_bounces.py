"""Errors of a server as proof about messages at level acknowledged.

A receiver with stream management (XEP-0198) gets a request and loses its connection
before it has acknowledged the request. Its server returns the request to the sender, as
if it had not arrived: ejabberd with the same condition as for an absent device.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devices import NO_RETRY, device, error, outcome_of
from passing_time import let_pass
from qos.core.message.model import Level, OutgoingState
from qos.testing.ejabberd import Ejabberd
from qos.testing.prosody import Prosody, mutual
from qos.testing.xmpp_server import XmppServer
from raw_client import Predicate, RawClient, stanza

ACCOUNTS = {"alice": "secret of alice", "bob": "secret of bob"}
ROSTERS = mutual(("alice", "bob"))
BOB_B = "bob@localhost/b"

#: Of a message; the test lets the time pass when it wants to see the end.
DEADLINE_S = 500.0

#: Each server's condition for a request that a lost connection had received.
BOUNCED = {Ejabberd: "service-unavailable", Prosody: "recipient-unavailable"}


@contextlib.asynccontextmanager
async def managed_peer(server: XmppServer) -> AsyncIterator[RawClient]:
    """A receiver with stream management that will not resume."""
    bob = RawClient(BOB_B, ACCOUNTS["bob"], port=server.c2s_port)
    await bob.connect()
    try:
        await bob.send_presence()
        await bob.send("<enable xmlns='urn:xmpp:sm:3'/>")
        await bob.expect(stanza("enabled"))
        yield bob
    finally:
        await bob.cut()


def has(tag: str) -> Predicate:
    """Match a stanza by a child of it."""
    return lambda xml: xml.find(tag) is not None


@pytest.mark.parametrize("kind", BOUNCED)
async def test_what_a_lost_connection_had_got_is_never_said_to_be_not_delivered(
    kind: type[Ejabberd | Prosody], tmp_path: Path
) -> None:
    """The receiver has it: *not delivered* would be false."""
    async with (
        kind(tmp_path, accounts=ACCOUNTS, rosters=ROSTERS) as server,
        device(server, "alice/a", **NO_RETRY) as alice,
    ):
        message = alice.message(BOB_B, "taken")
        async with managed_peer(server) as bob:
            acknowledged = await alice.qos.submit(
                message, level=Level.ACKNOWLEDGED, deadline_s=DEADLINE_S
            )
            question = await bob.expect(
                has("{http://jabber.org/protocol/disco#info}query")
            )
            await bob.send(
                f"<iq type='result' id='{question.get('id')}' to='{alice.jid}'/>"
            )
            await bob.expect(has("{urn:xmpp:qos}acknowledged"))
        await alice.tap.wait_seen(error(BOUNCED[kind]))
        await let_pass(DEADLINE_S)
        outcome = await outcome_of(acknowledged)
        assert outcome.status is OutgoingState.IN_DOUBT
        assert outcome.condition == BOUNCED[kind]
        # Nobody has been there under this name, as presence proves.
        gone = "bob@localhost/gone"
        message = alice.message(gone, "returned")
        returned = await alice.qos.submit(
            message, level=Level.ACKNOWLEDGED, deadline_s=DEADLINE_S
        )
        # The question what it supports, and the message.
        await alice.tap.wait_seen(lambda xml: xml.get("from") == gone, 2)
        await let_pass(DEADLINE_S)
        outcome = await outcome_of(returned)
        assert outcome.status is OutgoingState.NOT_DELIVERED
        assert outcome.condition == "service-unavailable"
