"""Discovery by presence: a JID's availability, and the features that it supports."""

import asyncio
from unittest import mock

import pytest
from slixmpp import ClientXMPP

from qos.core.message.model import NAMESPACES, Level, Outgoing, OutgoingState, Route
from qos.core.record import replace
from waiting import limit, until
from xep_qos.discovery import Discovery, _Known

OWN = "door@localhost/a"
LAMP = "lamp@localhost/1"


def record(to: str) -> Outgoing:
    return Outgoing(
        msg_id="m",
        seq=1,
        to=to,
        level=Level.ACKNOWLEDGED,
        payload="",
        size=0,
        created_at=0.0,
        offer_id="m",
        deliver_id="d",
    )


class Watched(Discovery):
    """A discovery that has already asked everybody, unless a test says otherwise."""

    def __init__(self) -> None:
        self.client = xmpp = ClientXMPP(OWN, "secret")
        self.contacts = {"lamp@localhost"}
        self.answered = asyncio.Event()
        super().__init__(
            xmpp,
            namespaces=NAMESPACES,
            timeout_s=1.0,
            now=lambda: 0.0,
            answered=lambda account, took_s: None,
            found=self.found,
            shows_presence=lambda account: account in self.contacts,
        )

    def found(self, _account: str) -> None:
        self.answered.set()

    def thinks_absent(self, jid: str = LAMP) -> bool:
        """The absence of this JID by the route to it."""
        self._known[jid] = _Known(frozenset(NAMESPACES))
        route = self.route(record(jid))
        assert route is not None
        return route.absent

    async def learns(self) -> set[str]:
        """The QoS namespaces that the lamp is found to support."""
        self.answered.clear()
        assert self.route(record(LAMP)) is None
        async with limit():
            await self.answered.wait()
        return {each for each in NAMESPACES if self.supports(LAMP, {each})}

    def shows(self, jid: str) -> None:
        """Presence says that this JID is available."""
        self.arrived(jid, "door@localhost", 0, None)


@pytest.fixture
async def discovery() -> Watched:
    """We have shown our presence, and the server has returned it."""
    watched = Watched()
    watched.shows(OWN)
    return watched


async def test_a_contact_whose_presence_does_not_come_has_no_session(
    discovery: Watched,
) -> None:
    """Our server has asked for it, and would have passed it on before any error."""
    assert discovery.thinks_absent()
    discovery.shows(LAMP)
    assert not discovery.thinks_absent()
    discovery.departed(LAMP, "door@localhost")
    assert discovery.thinks_absent()


async def test_presence_proves_nothing_before_ours_was_returned(
    discovery: Watched,
) -> None:
    """Until then the server may not have asked for the presence of others."""
    discovery.session_started()
    assert not discovery.thinks_absent()


async def test_presence_proves_nothing_of_who_does_not_show_it_to_us(
    discovery: Watched,
) -> None:
    """Without a subscription there is no presence, session or not."""
    discovery.contacts.clear()
    assert not discovery.thinks_absent()


async def test_presence_proves_nothing_when_more_are_there_than_are_remembered(
    discovery: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one to be addressed may be among those that were forgotten."""
    monkeypatch.setattr("xep_qos.discovery._PRESENT_MAX", 2)
    for jid in (LAMP, "eve@localhost/1", "eve@localhost/2"):
        discovery.shows(jid)
    for jid in ("eve@localhost/1", "eve@localhost/2"):
        discovery.departed(jid, "door@localhost")
    assert not discovery.thinks_absent()


async def test_a_resource_that_comes_back_is_asked_anew_unless_it_says_its_version(
    discovery: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may be there now.

    The version of the old one says nothing about it.
    """
    xmpp = discovery.client
    xmpp.register_plugin("xep_0030")
    xmpp.register_plugin("xep_0115")
    with_qos = mock.AsyncMock(return_value={"features": set(NAMESPACES)})
    without = mock.AsyncMock(return_value={"disco_info": {"features": set()}})
    monkeypatch.setattr(xmpp.plugin["xep_0115"], "get_caps", with_qos)
    monkeypatch.setattr(xmpp.plugin["xep_0030"], "get_info", without)
    discovery.arrived(LAMP, "door@localhost", 0, "version of the old one")
    assert await discovery.learns() == set(NAMESPACES)
    discovery.departed(LAMP, "door@localhost")
    discovery.shows(LAMP)
    assert await discovery.learns() == set()
    without.assert_awaited_once()


@pytest.mark.parametrize("own", [False, True], ids=["no answer", "no QoS"])
async def test_a_message_that_is_held_is_released_to_its_holder_without_presence(
    discovery: Watched, own: bool
) -> None:
    """The roster entry had gone, and the message was pending for ever."""
    held = replace(
        record("lamp@localhost"),
        level=Level.ASSURED,
        state=OutgoingState.RELEASING,
        peer=LAMP,
        hold="hold",
        namespace=NAMESPACES[0],
        delivers=1,
    )
    if own:
        discovery._known["lamp@localhost"] = _Known(frozenset())
    assert discovery.route(held) is None, "its presence will come"
    discovery.contacts.clear()
    assert discovery.route(held) == Route(LAMP, NAMESPACES[0], marked=True)
    assert discovery.route(replace(held, hold=None)) == Route(LAMP, NAMESPACES[0])
    # One that nobody holds has nowhere to go.
    assert discovery.route(replace(held, peer=None, delivers=0)) is None
    discovery.session_lost()


async def test_an_error_in_what_follows_from_an_answer_is_logged(
    discovery: Watched,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such as a store that cannot be written; it was an exception that nobody retrieved."""
    discovery.client.register_plugin("xep_0030")
    discovery.client.register_plugin("xep_0115")
    answer = mock.AsyncMock(return_value={"disco_info": {"features": set(NAMESPACES)}})
    monkeypatch.setattr(discovery.client.plugin["xep_0030"], "get_info", answer)

    def fail(_account: str) -> None:
        discovery.answered.set()
        raise MemoryError

    monkeypatch.setattr(discovery, "_found", fail)
    assert discovery.route(record(LAMP)) is None
    (task,) = discovery._asking.values()
    async with limit():
        await discovery.answered.wait()
        await task
    assert "cannot go on for now" in caplog.text
    assert discovery.supports(LAMP, frozenset(NAMESPACES))


async def test_of_many_peers_some_are_asked_at_a_time(
    discovery: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30,000 messages that had waited for a session asked all of their peers at once."""
    monkeypatch.setattr("xep_qos.discovery._ASKED_AT_ONCE", 3)
    asked: list[str] = []
    goes_on = asyncio.Event()

    async def info(jid: str, *_args: object) -> tuple[dict[str, set[str]], bool]:
        asked.append(jid)
        await goes_on.wait()
        return {"features": set(NAMESPACES)}, True

    monkeypatch.setattr(discovery, "_info", info)
    peers = [f"lamp-{number}@localhost/1" for number in range(10)]
    for jid in (*peers, *peers):
        assert discovery.route(record(jid)) is None
    await asyncio.sleep(0)
    assert asked == peers[:3]
    goes_on.set()
    await until(lambda: all(discovery.supports(jid, set(NAMESPACES)) for jid in peers))
    assert asked == peers
    # With the session those end who wait for that.
    goes_on.clear()
    others = [f"bell-{number}@localhost/1" for number in range(10)]
    for jid in others:
        discovery.route(record(jid))
    await asyncio.sleep(0)
    discovery.session_lost()
    goes_on.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asked == [*peers, *others[:3]]
    # One that is asked anew is not forgotten by the end of the first question.
    goes_on.clear()
    discovery.route(record(others[0]))
    discovery.session_lost()
    discovery.route(record(others[0]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert list(discovery._asking) == [others[0]]
    discovery.session_lost()
