"""`POST /send/JID` at a real server: whom a message is from, and that it arrives."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from slixmpp import ClientXMPP, ComponentXMPP

from clients import connected_client, connected_component
from devices import device
from qos.core.strings import domain_of
from qos.rest.gateway import Gateway
from qos.rest.targets import Targets
from qos.testing.prosody import Prosody
from qos.users import Users, hashed
from rest_bench import Web, client
from waiting import until
from xep_0254.service import QueueService

LAMP = "/send/bob@localhost%2Flamp"
ADDRESS = "{http://jabber.org/protocol/address}address"


@contextlib.asynccontextmanager
async def gateway(xmpp: ClientXMPP | ComponentXMPP, folder: Path) -> AsyncIterator[Web]:
    """A service of this stream, with a user `shop`."""
    users, targets = folder / "users", folder / "targets"
    users.write_text(f"shop:{hashed('secret')}\n")
    users.chmod(0o600)
    targets.write_text("*: bob@localhost\n")
    domain = domain_of(xmpp.boundjid.bare)
    service = QueueService(xmpp, f"sqlite:{folder / 'q.sqlite'}", relays=True)
    rest = Gateway(
        service.engine,
        users=Users(users, domain),
        relay=service.relay(),
        targets=Targets(targets, domain),
    )
    service.add_gateway(rest)
    web = Web()
    web.web = await rest.listen("127.0.0.1", 0)
    try:
        async with client() as web.session:
            yield web
    finally:
        await rest.aclose()
        await service.aclose()


async def deliver(web: Web, body: bytes) -> None:
    """Send a text once, and wait until its outcome is that it was delivered."""
    link = (await web.post(LAMP, user="shop")).link("create-next")
    headers = {"user": "shop", "Content_Type": "text/plain"}
    for status in (202, 405):
        answer = await web.post(link, body, **headers)
        assert answer.status == status, answer
        if status == 202:
            where = answer.headers["Content-Location"]

    async def delivered() -> bool:
        answer = await web.get(where, user="shop", Prefer="wait=20")
        return '"outcome": "delivered"' in answer.text

    await until(delivered)


@pytest.mark.parametrize("as_component", [True, False])
async def test_a_user_sends_from_its_own_address_or_is_named(
    prosody: Prosody, tmp_path: Path, as_component: bool
) -> None:
    """A server lets a component send from any address of its domain, and nobody else."""
    service = (
        connected_component(prosody, "comp.localhost")
        if as_component
        else connected_client(prosody, "alice/queue")
    )
    account = "shop@comp.localhost" if as_component else "alice@localhost"
    async with (
        device(prosody, "bob/lamp", trust=account) as bob,
        service as xmpp,
        gateway(xmpp, tmp_path) as web,
    ):
        await deliver(web, b"on")
        (arrival,) = await bob.arrivals.take(1)
        got = arrival.message
        assert got["body"] == "on"
        addresses = [each.attrib for each in got.xml.iter(ADDRESS)]
        if as_component:
            assert str(got["from"]) == "shop@comp.localhost/http"
            assert addresses == []
        else:
            assert str(got["from"]) == "alice@localhost/queue"
            assert addresses == [{"type": "ofrom", "jid": "shop@localhost"}]
