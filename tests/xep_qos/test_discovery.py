"""Discovery by presence: a JID's availability, and the features that it supports."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP

from qos.core.capabilities import DiscoInfo, verification
from qos.core.message.model import NAMESPACES, Level, Outgoing, OutgoingState, Route
from qos.core.record import replace
from xep_qos.capabilities import StoredCapabilities
from xep_qos.discovery import Discovery
from xep_qos.features import Version, _Known

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


class TurnedClock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self._calls: list[tuple[float, Callable[[], object]]] = []

    def now(self) -> float:
        return self.time

    def call_at(self, when: float, callback: Callable[[], object]) -> TurnedClock:
        self._calls.append((when, callback))
        return self

    def cancel(self) -> None:
        self._calls.clear()

    def turn(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds
        due = [call for when, call in self._calls if when <= self.time]
        self._calls = [(when, call) for when, call in self._calls if when > self.time]
        for call in due:
            call()


class Watched(Discovery):
    """A discovery whose questions the test answers."""

    def __init__(self) -> None:
        self.client = xmpp = ClientXMPP(OWN, "secret")
        self.contacts = {"lamp@localhost"}
        self.turned = TurnedClock()
        self.asked: list[str] = []
        self.news: list[str] = []
        self.waited_for: list[str] = []
        self.trips: list[float] = []
        self.stored = [""]
        super().__init__(
            xmpp,
            namespaces=NAMESPACES,
            timeout_s=2.0,
            clock=self.turned,
            ask=self.ask,
            capabilities=StoredCapabilities(
                "", self.stored.append, frozenset(NAMESPACES)
            ),
            on_features=self.found,
            answered=lambda account, took_s: self.trips.append(took_s),
            shows_presence=lambda account: account in self.contacts,
            none_is_online=lambda account, _sender: self.waited_for.append(account),
        )

    def ask(self, jid: str, _sender: str) -> str:
        self.asked.append(jid)
        return f"question-{len(self.asked)}"

    def found(self, account: str) -> None:
        self.news.append(account)

    def answer(
        self,
        *features: str,
        number: int | None = None,
        source: str | None = None,
        kind: str = "result",
    ) -> bool:
        """Answer a question, by default the last one."""
        number = number or len(self.asked)
        source = self.asked[number - 1] if source is None else source
        listed = "".join(f"<feature var='{name}'/>" for name in features)
        return self.take_answer(
            ET.fromstring(  # noqa: S314
                f"<iq type='{kind}' id='question-{number}' from='{source}'>"
                f"<query xmlns='http://jabber.org/protocol/disco#info'>{listed}</query>"
                "</iq>"
            )
        )

    def knows(self, jid: str, features: frozenset[str]) -> None:
        """This JID has been asked."""
        self._features._known[jid] = _Known(features)

    def thinks_absent(self, jid: str = LAMP) -> bool:
        """The absence of this JID by the route to it."""
        self.knows(jid, frozenset(NAMESPACES))
        route = self.route(record(jid))
        assert route is not None
        return route.absent

    def shows(
        self, jid: str, version: Version | None = None, *, stranger: bool = False
    ) -> None:
        """Presence says that this JID is available."""
        self.arrived(jid, "door@localhost", 0, version, stranger=stranger)


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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one to be addressed may be among those that were forgotten."""
    monkeypatch.setattr("xep_qos.discovery._PRESENT_MAX", 2)
    discovery = Watched()
    discovery.shows(OWN)
    for jid in (LAMP, "eve@localhost/1", "eve@localhost/2"):
        discovery.shows(jid)
    for jid in ("eve@localhost/1", "eve@localhost/2"):
        discovery.departed(jid, "door@localhost")
    discovery.shows(OWN)
    assert not discovery.thinks_absent()


async def test_strangers_fill_no_room_of_the_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A flood of presences had everybody else forgotten."""
    monkeypatch.setattr("xep_qos.discovery._PRESENT_MAX", 3)
    monkeypatch.setattr("xep_qos.discovery._STRANGERS_MAX", 5)
    discovery = Watched()
    version = Version("sha-1", "of the lamp")
    for jid in (OWN, LAMP):
        discovery.shows(jid, version)
    for number in range(200):
        discovery.shows(f"eve-{number}@far/1", version, stranger=True)
        discovery.shows(f"eve@far/{number}", version, stranger=True)
    assert discovery._available("lamp@localhost", "") == {LAMP: 0}
    assert discovery._versions.get(LAMP) == version
    assert discovery.thinks_absent("lamp@localhost/2"), "nothing was forgotten"
    assert len(discovery._present) <= 2 + 5
    assert len(discovery._available("eve@far", "")) <= 20
    assert not discovery.asked


async def test_a_resource_that_comes_back_is_asked_anew_unless_it_says_its_version(
    discovery: Watched,
) -> None:
    """Another program may be there now.

    The version of the old one says nothing about it.
    """
    features = tuple(NAMESPACES)
    text = verification(DiscoInfo((), features), "sha-1")
    assert text is not None
    version = Version("sha-1", text)
    discovery.shows(LAMP, version)
    assert discovery.route(record(LAMP)) is None
    assert discovery.answer(*features)
    assert discovery.supports(LAMP, set(NAMESPACES))
    discovery.departed(LAMP, "door@localhost")
    discovery.shows(LAMP, version)
    assert discovery.route(record(LAMP)) is not None
    discovery.departed(LAMP, "door@localhost")
    discovery.shows(LAMP)
    assert discovery.route(record(LAMP)) is None
    assert discovery.answer()
    assert not discovery.supports(LAMP, {NAMESPACES[0]})
    assert discovery.asked == [LAMP, LAMP]


async def test_the_version_of_a_peer_says_nothing_of_another_account(
    discovery: Watched,
) -> None:
    """A list can be made to have the hash of another one: its features as a form."""
    features = tuple(NAMESPACES)
    text = verification(DiscoInfo((), features), "sha-1")
    assert text is not None
    version = Version("sha-1", text)
    bell = "bell@localhost/1"
    for jid in (bell, LAMP):
        discovery.shows(jid, version)
    discovery.route(record(bell))
    assert discovery.answer(*features)
    assert discovery.route(record(LAMP)) is None
    assert discovery.asked == [bell, LAMP]
    # The next resource of the same account is not asked.
    discovery.shows("bell@localhost/2", version)
    assert discovery.route(record("bell@localhost/2")) is not None
    assert len(discovery.asked) == 2


async def test_a_list_that_is_not_that_of_its_version_is_not_kept(
    discovery: Watched,
) -> None:
    """Its hash has to be checked (XEP-0115 §5.4)."""
    discovery.shows(LAMP, Version("sha-1", "of another list"))
    discovery.route(record(LAMP))
    assert discovery.answer(*NAMESPACES)
    assert discovery.supports(LAMP, set(NAMESPACES))
    assert discovery.stored == [""]


async def test_a_late_answer_is_taken(discovery: Watched) -> None:
    """At a round trip of 3 s nothing ever left for a component."""
    component = record("queue.localhost")
    assert discovery.route(component) is None
    discovery.turned.turn(2.0)
    assert discovery.news == ["queue.localhost"]
    assert discovery.route(component) is None
    discovery.turned.turn(1.0)
    assert discovery.answer(NAMESPACES[0])
    assert discovery.news == ["queue.localhost"] * 2
    assert discovery.route(component) == Route("queue.localhost", NAMESPACES[0])
    assert discovery.asked == ["queue.localhost"]


async def test_the_time_for_an_answer_follows_the_round_trips(
    discovery: Watched,
) -> None:
    """On a slow link each peer was asked twice and more."""
    for number in range(20):
        discovery.route(record(f"lamp-{number}@localhost/1"))
        discovery.turned.turn(1.9 + number / 10)
        assert discovery.answer(NAMESPACES[0])
    assert discovery.trips[-1] == pytest.approx(3.8)
    assert len(discovery.news) == 20, "one answer each, and none was given up before"


async def test_nobody_else_answers_for_a_peer(discovery: Watched) -> None:
    """Our server does, where a peer cannot be reached."""
    discovery.route(record(LAMP))
    assert not discovery.answer(*NAMESPACES, source="eve@localhost/1")
    assert not discovery.answer(*NAMESPACES, source="localhost")
    assert not discovery.news
    assert discovery.answer(kind="error", source="localhost")
    assert discovery.news == ["lamp@localhost"]
    discovery.route(record("door@localhost"))
    assert discovery.answer(NAMESPACES[0], source="")
    assert discovery.supports("door@localhost", {NAMESPACES[0]})


async def test_a_resource_that_is_silent_is_left_for_one_that_answers(
    discovery: Watched,
) -> None:
    """A session whose end the server has not noticed was asked for ever."""
    phone, laptop = "lamp@localhost/phone", "lamp@localhost/laptop"
    for jid in (phone, laptop):
        discovery.shows(jid)
        discovery.knows(jid, frozenset(NAMESPACES))
    new = record("lamp@localhost")
    repeated = replace(new, unanswered=True, addressed=frozenset({phone}))

    def chosen(message: Outgoing = new) -> str:
        route = discovery.route(message)
        assert route is not None
        return route.jid

    assert chosen() == phone
    discovery.turned.turn(1_000.0)
    assert chosen() == phone, "a slow link is no silence"
    assert chosen(repeated) == phone, "one stanza may be lost"
    discovery.turned.turn(2.0)
    assert chosen(repeated) == laptop
    assert chosen() == laptop
    discovery.answers[laptop] = 1
    assert chosen() == laptop
    # It is there again, but the other one has answered last.
    discovery.shows(phone)
    discovery.knows(phone, frozenset(NAMESPACES))
    assert chosen() == laptop
    discovery.departed(laptop, "door@localhost")
    assert chosen() == phone


@pytest.mark.parametrize("anew", [False, True], ids=["end of the old", "lost"])
async def test_a_resource_that_answers_is_found_though_its_presence_is_not(
    discovery: Watched, anew: bool
) -> None:
    """Messages to a bare JID waited for ever.

    A server may send the end of an old session behind the presence of the new one that
    has its JID; and between two servers the presence may be lost.
    """
    account = record("lamp@localhost")
    discovery.shows(LAMP)
    discovery.knows(LAMP, frozenset(NAMESPACES))
    discovery.answers[LAMP] = 1
    assert discovery.route(account) == Route(LAMP, NAMESPACES[0])
    if anew:
        discovery.session_started()
    else:
        discovery.departed(LAMP, "door@localhost")
    assert discovery.route(account) is None
    assert discovery.asked == [LAMP]
    # It may be slow, too.
    discovery.turned.turn(2.0)
    assert discovery.route(account) is None
    assert discovery.asked == [LAMP, "lamp@localhost"]
    discovery.turned.turn(2.0)
    assert discovery.route(account) is None
    assert discovery.answer(*NAMESPACES, number=3)
    assert discovery.asked[2] == LAMP
    assert discovery.route(account) == Route(LAMP, NAMESPACES[0])
    # What somebody is does not depend on who was there before.
    discovery.shows("lamp@localhost/2")
    assert discovery.route(account) is None
    assert discovery.asked[-1] == "lamp@localhost/2"


async def test_a_resource_that_is_not_there_is_not_asked_again(
    discovery: Watched,
) -> None:
    """It shows its presence when it comes back."""
    account = record("lamp@localhost")
    discovery.shows(LAMP)
    discovery.answers[LAMP] = 1
    discovery.departed(LAMP, "door@localhost")
    assert discovery.route(account) is None
    assert discovery.answer(kind="error")
    for _ in range(3):
        discovery.turned.turn(2.0)
        assert discovery.route(account) is None
        discovery.answer(kind="error")
    assert discovery.asked == [LAMP, *["lamp@localhost"] * 3]
    # A resource that never answered is not asked.
    discovery.shows("bell@localhost/1")
    discovery.departed("bell@localhost/1", "door@localhost")
    assert discovery.route(record("bell@localhost")) is None
    assert discovery.asked[-1] == "bell@localhost"


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
        discovery.knows("lamp@localhost", frozenset())
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
    """Such as a store that cannot be written."""

    def fail(_account: str) -> None:
        raise MemoryError

    monkeypatch.setattr(discovery._features, "_found", fail)
    assert discovery.route(record(LAMP)) is None
    assert discovery.answer(*NAMESPACES)
    assert "cannot go on for now" in caplog.text
    assert discovery.supports(LAMP, frozenset(NAMESPACES))


async def test_of_many_peers_some_are_asked_at_a_time(
    discovery: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30,000 messages that had waited for a session asked all of their peers at once."""
    monkeypatch.setattr("xep_qos.features._ASKED_AT_ONCE", 3)
    peers = [f"lamp-{number}@localhost/1" for number in range(10)]
    for jid in (*peers, *peers):
        assert discovery.route(record(jid)) is None
    assert discovery.asked == peers[:3]
    for number in range(1, 11):
        assert discovery.answer(*NAMESPACES, number=number)
        assert discovery.asked == peers[: number + 3]
    assert all(discovery.supports(jid, set(NAMESPACES)) for jid in peers)
    # With the session those end who wait for that.
    others = [f"bell-{number}@localhost/1" for number in range(10)]
    for jid in others:
        discovery.route(record(jid))
    discovery.session_lost()
    discovery.turned.turn(100.0)
    assert discovery.asked == [*peers, *others[:3]]
    assert not discovery.awaited
    # One that is asked anew has a new question.
    discovery.route(record(others[0]))
    assert discovery.asked[-1] == others[0]
    assert len(discovery.awaited) == 1


async def test_without_a_connection_nobody_is_asked(
    discovery: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next session begins anew."""
    monkeypatch.setattr(discovery._features, "_ask", lambda jid, sender: "")
    assert discovery.route(record(LAMP)) is None
    assert not discovery.awaited


async def test_questions_to_which_a_late_answer_is_taken_are_bounded(
    discovery: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer may never answer."""
    monkeypatch.setattr("xep_qos.features._QUESTIONS_MAX", 5)
    for _ in range(20):
        discovery.route(record(LAMP))
        for _ in range(2):
            discovery.turned.turn(100.0)
    assert len(discovery.asked) == 20
    assert len(discovery.awaited) <= 5


async def test_a_message_to_nobody_is_told_of_when_its_account_has_answered(
    discovery: Watched,
) -> None:
    """Not before: an account without resources, such as a component, answers for itself."""
    account = "cat@localhost"
    assert discovery.route(record(account)) is None
    assert discovery.waited_for == []
    discovery.answer(kind="error")
    assert discovery.route(record(account)) is None
    assert discovery.waited_for == [account]
    discovery.knows(account, frozenset(NAMESPACES))
    assert discovery.route(record(account)) is not None
    assert discovery.waited_for == [account]
