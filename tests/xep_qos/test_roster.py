"""The roster may be odd, slow or absent: the session becomes ready all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP

from qos.stream.turns import Turns
from qos.testing import friends, logged_in
from qos.testing.clients import close
from waiting import until
from xep_qos import XEP_QOS
from xep_qos.roster import RosterLoader

ROSTER = "jabber:iq:roster"
ERRORS = "urn:ietf:params:xml:ns:xmpp-stanzas"

#: Items that any client of an account can set, and that nobody can read.
ODD = ("🐎@localhost", "@localhost", "a b@localhost", "", "x@" + "y" * 1100, "a@b@c/")


class TurnedClock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self._due: tuple[float, Callable[[], object]] | None = None

    def now(self) -> float:
        return self.time

    def call_at(self, when: float, callback: Callable[[], object]) -> TurnedClock:
        self._due = when, callback
        return self

    def cancel(self) -> None:
        self._due = None

    def turn(self, seconds: float) -> None:
        """Let time pass, to the next moment and the next."""
        end = self.time + seconds
        while self._due is not None and self._due[0] <= end:
            (self.time, callback), self._due = self._due, None
            callback()
        self.time = end


class Loading:
    """A loader whose requests the test answers."""

    def __init__(self, client: ClientXMPP) -> None:
        self.client = client
        self.clock = TurnedClock()
        self.turns = Turns.of(client)
        self.asked: list[str] = []
        self._news: list[str] = []
        self.loader = RosterLoader(
            client, clock=self.clock, send=self.send, loaded=self.loaded
        )

    def send(self, text: str) -> bool:
        self.asked.append(ET.fromstring(text).get("id", ""))  # noqa: S314
        return True

    def loaded(self) -> None:
        self._news.append("ready")

    def ready(self) -> int:
        """How often the roster was known."""
        return len(self._news)

    def bytes_come(self) -> None:
        self.turns.came_at = self.clock.time

    def answer(self, *items: str, number: int = -1, source: str = "") -> bool:
        """Answer a request, by default the last one."""
        content = "".join(f"<item jid='{jid}' subscription='both'/>" for jid in items)
        named = f" from='{source}'" if source else ""
        return self.loader.take_answer(
            ET.fromstring(  # noqa: S314
                f"<iq xmlns='jabber:client' type='result' id='{self.asked[number]}'"
                f"{named}><query xmlns='{ROSTER}'>{content}</query></iq>"
            )
        )

    def refuse(self, kind: str, condition: str = "service-unavailable") -> None:
        error = f"<error type='{kind}'><{condition} xmlns='{ERRORS}'/></error>"
        self.loader.take_answer(
            ET.fromstring(  # noqa: S314
                f"<iq xmlns='jabber:client' type='error' id='{self.asked[-1]}'>"
                f"{error}</iq>"
            )
        )

    def contacts(self) -> set[str]:
        roster = self.client.client_roster
        return {jid for jid in roster if roster[jid]["subscription"] == "both"}


@pytest.fixture
async def loading() -> AsyncIterator[Loading]:
    client = ClientXMPP("bob@localhost/b", "secret")
    client.event("session_bind", client.boundjid)
    loading = Loading(client)
    loading.loader.session_started(resumed=False)
    yield loading
    loading.loader.stop()
    await close(client)


async def test_odd_items_are_left_out_and_named_once(
    loading: Loading, caplog: pytest.LogCaptureFixture
) -> None:
    """One of them, and the session was never ready, without a line in the log."""
    for _ in range(2):
        assert loading.answer("lamp@localhost", *ODD, "door@localhost")
        assert loading.contacts() == {"lamp@localhost", "door@localhost"}
        loading.loader.session_lost()
        loading.loader.session_started(resumed=False)
    assert loading.ready() == 2
    assert caplog.text.count("left out of the roster") == 1
    assert r"\U0001f40e@localhost" in caplog.text


async def test_an_odd_push_is_left_out_as_well(loading: Loading) -> None:
    """slixmpp would fail at it, and not answer."""
    push = ET.fromstring(  # noqa: S314
        f"<iq xmlns='jabber:client' type='set' id='p'><query xmlns='{ROSTER}'>"
        "<item jid='🐎@localhost' subscription='both'/></query></iq>"
    )
    loading.loader.clean(push)
    assert len(push[0]) == 0


async def test_a_contact_that_was_removed_meanwhile_is_none(loading: Loading) -> None:
    """slixmpp itself asks only for changes."""
    loading.answer("lamp@localhost", "door@localhost")
    loading.loader.session_started(resumed=False)
    loading.answer("door@localhost")
    assert loading.contacts() == {"door@localhost"}


async def test_a_slow_roster_is_waited_for_and_asked_for_once(
    loading: Loading,
) -> None:
    """3,000 contacts at 10 kB/s: 19 requests, and not ready after 240 s."""
    for _ in range(24):
        loading.clock.turn(10.0)
        loading.bytes_come()
    assert len(loading.asked) == 1
    assert not loading.ready()
    assert loading.answer("lamp@localhost")
    assert loading.ready() == 1
    loading.clock.turn(1_000.0)
    assert (len(loading.asked), loading.ready()) == (1, 1)


async def test_a_late_answer_is_taken(loading: Loading) -> None:
    """That to the first request, after the second one was sent."""
    loading.clock.turn(20.0)
    assert len(loading.asked) == 2
    assert loading.answer("lamp@localhost", number=0)
    assert loading.contacts() == {"lamp@localhost"}
    loading.clock.turn(1_000.0)
    assert (len(loading.asked), loading.ready()) == (2, 1)
    assert loading.answer("lamp@localhost", number=1)


async def test_a_pause_of_ours_is_not_the_servers_silence(loading: Loading) -> None:
    """A program that does not read cannot see an answer."""
    loading.turns.hold()
    loading.clock.turn(300.0)
    assert len(loading.asked) == 1
    assert not loading.ready()


async def test_a_roster_that_is_refused_is_an_empty_one(
    loading: Loading, caplog: pytest.LogCaptureFixture
) -> None:
    """A server without rosters was asked each second, and the session never ready."""
    for _ in range(3):
        loading.refuse("cancel")
        loading.clock.turn(1_000.0)
        loading.loader.session_lost()
        loading.loader.session_started(resumed=False)
    assert loading.ready() == 3
    assert len(loading.asked) == 4
    assert caplog.text.count("gives no roster (service-unavailable)") == 1


async def test_a_server_that_says_wait_is_asked_again_later_and_later(
    loading: Loading,
) -> None:
    """It has a roster, and contacts would be refused without it."""
    moments = []
    for _ in range(5):
        loading.refuse("wait", "resource-constraint")
        before = loading.clock.time
        count = len(loading.asked)
        while len(loading.asked) == count:
            loading.clock.turn(1.0)
        moments.append(loading.clock.time - before)
    assert moments == [1, 2, 4, 8, 16]
    assert not loading.ready()
    loading.answer("lamp@localhost")
    assert loading.ready() == 1


async def test_a_server_that_never_answers_has_no_roster(
    loading: Loading, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked some times, and the session goes on."""
    loading.clock.turn(44.0)
    assert not loading.ready()
    loading.clock.turn(1.0)
    assert (len(loading.asked), loading.ready()) == (3, 1)
    assert "gives no roster (no answer)" in caplog.text
    assert loading.answer("lamp@localhost"), "however late"
    assert loading.contacts() == {"lamp@localhost"}


async def test_nobody_else_gives_us_a_roster(loading: Loading) -> None:
    """Whoever is in it is trusted."""
    assert not loading.answer("eve@far", source="eve@far/1")
    assert not loading.ready()
    assert loading.answer("lamp@localhost", source="bob@localhost")
    assert loading.contacts() == {"lamp@localhost"}


async def test_a_resumed_session_has_the_roster_that_it_had(loading: Loading) -> None:
    """The server goes on with its pushes."""
    loading.answer("lamp@localhost")
    loading.loader.session_lost()
    loading.loader.session_started(resumed=True)
    assert len(loading.asked) == 1
    loading.loader.session_started(resumed=False)
    loading.loader.session_lost()
    loading.loader.session_started(resumed=True)
    assert len(loading.asked) == 3, "it was not known yet"


# -- receivers that cannot be found ------------------------------------------


async def test_an_account_that_shows_no_presence_is_named_once(
    loading: Loading, caplog: pytest.LogCaptureFixture
) -> None:
    """A message to its bare JID may wait for ever, and there is no other sign of it."""

    def say(*accounts: str) -> list[str]:
        caplog.clear()
        for account in accounts:
            loading.loader.none_is_online(account, "")
        return caplog.messages

    assert say("cat@localhost") == []  # the roster is not known yet
    loading.answer("lamp@localhost")
    assert say("lamp@localhost", "bob@localhost") == []
    assert say("cat@localhost", "cat@localhost") == [
        "a message waits for cat@localhost: no resource of it that supports QoS is known "
        "to be online; its presence is not subscribed to, so none can be found: give a "
        "full JID, or make the two accounts contacts"
    ]
    assert loading.contacts() == {"lamp@localhost"}


async def test_accounts_that_are_named_are_bounded(
    loading: Loading,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log is for people."""
    monkeypatch.setattr("xep_qos.roster._UNFOUND_MAX", 3)
    loading.answer()
    for number in range(10):
        loading.loader.none_is_online(f"cat{number}@localhost", "")
    assert len(caplog.messages) == 3


async def test_a_message_to_a_stranger_waits_with_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line for all messages to it; none for a contact that is offline."""
    async with friends("alice", "bob") as server, logged_in(server, "alice") as alice:
        qos = XEP_QOS.of(alice)
        for to in ("bob@localhost", "cat@localhost", "cat@localhost"):
            await qos.submit(to, "hello")
        await until(lambda: "waits for cat@localhost: " in caplog.text)
        await qos.submit("cat@localhost", "again")
        await qos.submit("dog@localhost", "hello")
        await until(lambda: "waits for dog@localhost: " in caplog.text)
    assert caplog.text.count("waits for") == 2
