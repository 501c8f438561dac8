"""Loads the roster once for each session, and keeps odd items away from slixmpp."""

from __future__ import annotations

import logging
from collections.abc import Callable
from xml.etree import ElementTree as ET

from slixmpp import JID, ClientXMPP, InvalidJID
from slixmpp.basexmpp import BaseXMPP
from slixmpp.stanza import Iq

from qos.core.roster_wait import LOOK_S, Next, RosterWait, odd_items
from qos.core.strings import bare, own_servers
from qos.engine.clock import Clock, Timers
from qos.ids import new_id
from qos.stream.turns import Turns
from qos.xml_text import render_iq

__all__ = ["ROSTER_QUERY", "RosterLoader", "subscription_of", "why_none_is_online"]

log = logging.getLogger(__name__)

_NAMESPACE = "jabber:iq:roster"

#: The element of a result, and of a push.
ROSTER_QUERY = f"{{{_NAMESPACE}}}query"

_ITEM = f"{{{_NAMESPACE}}}item"

#: So many odd items are told of, each once.
_ODD_MAX = 1_000

#: The names of odd items that are written into the log.
_NAMED_MAX = 10

#: Accounts of which it was said that no resource can be found, each once.
_UNFOUND_MAX = 1_000

#: The timers: to look whether the roster is on its way, and to ask again.
_LOOK, _ASK = "look", "ask"


class RosterLoader:
    """The roster of an account, as slixmpp has it; a component has none.

    slixmpp's own get_roster asks only for changes (RFC 6121 §2.6), which does not show
    the removed contacts; it cannot read each item; and it drops a late answer. From the
    result on, slixmpp follows the server's pushes.

    Attributes:
        awaited: the ids of the requests that may still be answered.
        is_loaded: whether the roster of this session is known.
    """

    def __init__(
        self,
        xmpp: BaseXMPP,
        *,
        clock: Clock,
        send: Callable[[str], bool],
        loaded: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            xmpp: the stream.
            clock: the clock.
            send: sends a stanza; False: there is no connection.
            loaded: called when the roster is known.
        """
        self._xmpp = xmpp
        self._send = send
        self._loaded = loaded
        self._clock = clock
        self._turns = Turns.of(xmpp)
        self._timers: Timers[str] = Timers(clock, self._due)
        self._wait: RosterWait | None = None
        self.awaited: dict[str, None] = {}
        self.is_loaded = False
        #: Whether it was said that the server gives no roster, and the odd items named.
        self._said = False
        self._odd: set[str] = set()
        #: The accounts of which it was said that no resource can be found.
        self._unfound: set[str] = set()

    def none_is_online(self, account: str, sender: str) -> None:
        """Say once of an account that a message waits until a resource can be found.

        Nothing is said of a contact that is offline: it shows its presence when it comes.

        Args:
            account: the receiver.
            sender: the JID of ours that sends, or ''.
        """
        is_new = account not in self._unfound and len(self._unfound) < _UNFOUND_MAX
        own = bare(sender) or self._xmpp.boundjid.bare
        if is_new and self.is_loaded and not _is_shown(self._xmpp, account, own):
            self._unfound.add(account)
            why = why_none_is_online(self._xmpp, account, own)
            log.warning("a message waits for %s: %s", account, why)

    def session_started(self, *, resumed: bool) -> None:
        """Ask for the roster, except if it is known, in a resumed session.

        A server reports changes only to clients that have asked for the roster (RFC 6121
        §2.1.6), and there may have been changes meanwhile.
        """
        if resumed and self.is_loaded:
            return
        self.is_loaded = not isinstance(self._xmpp, ClientXMPP)
        if self.is_loaded:
            self._loaded()
            return
        self._wait = RosterWait(self._turns.came_at)
        self._ask()

    def session_lost(self) -> None:
        """Wait for nothing until there is a session."""
        self._wait = None
        self.awaited.clear()
        self._timers.clear(_LOOK)
        self._timers.clear(_ASK)

    def stop(self) -> None:
        """Wait for nothing, for good."""
        self.session_lost()
        self._timers.stop()

    def _ask(self) -> None:
        iq_id = new_id()
        self.awaited[iq_id] = None
        self._send(render_iq("get", iq_id, f"<query xmlns='{_NAMESPACE}'/>"))
        self._timers.set(_LOOK, self._clock.now() + LOOK_S)

    def _due(self, timer: str) -> None:
        wait = self._wait
        if wait is None:
            return
        if timer == _ASK:
            self._ask()
            return
        step = wait.looked(self._turns.came_at, is_held=self._turns.is_held)
        if step is Next.WAIT:
            self._timers.set(_LOOK, self._clock.now() + LOOK_S)
        elif step is Next.ASK:
            self._ask()
        else:
            self._have_none("no answer")

    def take_answer(self, xml: ET.Element) -> bool:
        """Take the answer to a request of ours, unless it is from somebody else."""
        if xml.get("from", "") not in own_servers(self._xmpp.boundjid.full):
            return False
        del self.awaited[xml.get("id", "")]
        if xml.get("type") == "result":
            self._take(xml)
            return True
        error = xml.find("{*}error")
        kind = "" if error is None else error.get("type", "")
        delay_s = None if self._wait is None else self._wait.refused(kind)
        reasons = [] if error is None else [child.tag for child in error]
        reason = reasons[0].rpartition("}")[2] if reasons else "undefined-condition"
        if self.is_loaded:
            return True
        if delay_s is None:
            self._have_none(reason)
        else:
            self._say(f"gives no roster for now: {reason}")
            self._timers.clear(_LOOK)
            self._timers.set(_ASK, self._clock.now() + delay_s)
        return True

    def _have_none(self, reason: str) -> None:
        self._say(f"gives no roster ({reason}): nobody counts as a contact")
        self._end()

    def _say(self, text: str) -> None:
        if not self._said:
            self._said = True
            log.warning("%s %s", self._xmpp.boundjid.host, text)

    def _end(self) -> None:
        self.is_loaded, self._wait = True, None
        self._timers.clear(_LOOK)
        self._timers.clear(_ASK)
        self._loaded()

    def _take(self, xml: ET.Element) -> None:
        """Make slixmpp's roster agree with the server's."""
        self.clean(xml)
        listed = {
            item.get("jid", "")
            for item in xml.iterfind(f"{ROSTER_QUERY}/{_ITEM}")
            if item.get("subscription") in {"to", "from", "both"}
        }
        assert isinstance(self._xmpp, ClientXMPP)
        roster = self._xmpp.client_roster
        accounts = {JID(jid).bare for jid in listed}
        for account in list(roster):
            if account not in accounts:
                roster[account]["to"] = roster[account]["from"] = False
        answer = Iq(self._xmpp, xml=xml)  # type: ignore[no-untyped-call]
        self._xmpp.event("roster_update", answer)
        self._end()

    def clean(self, xml: ET.Element) -> None:
        """Drop the items that slixmpp cannot read from a roster, or from a push."""
        query = xml.find(ROSTER_QUERY)
        if query is None:
            return
        items = query.findall(_ITEM)
        odd = odd_items([item.get("jid", "") for item in items], _is_readable)
        for place in odd:
            query.remove(items[place])
        new = {items[place].get("jid", "") for place in odd} - self._odd
        if new and len(self._odd) < _ODD_MAX:
            self._odd |= new
            log.warning(
                "left out of the roster, as no JIDs: %s%s",
                ", ".join(ascii(jid)[:100] for jid in sorted(new)[:_NAMED_MAX]),
                ", …" if len(new) > _NAMED_MAX else "",
            )


def subscription_of(xmpp: BaseXMPP, account: str, own: str) -> str:
    """The subscription of an account in the roster of an account of ours.

    Does not make a roster entry, as slixmpp would.
    """
    rosters = xmpp.roster
    if own not in rosters.keys() or not rosters[own].has_jid(account):  # noqa: SIM118
        return "none"
    return str(rosters[own][account]["subscription"])


def why_none_is_online(xmpp: BaseXMPP, account: str, own: str) -> str:
    """Why a message to a bare JID has no receiver yet, and what helps; for people.

    Args:
        xmpp: a stream whose roster is known.
        account: the receiver.
        own: the account of ours that sends.
    """
    why = "no resource of it that supports QoS is known to be online"
    if not _is_shown(xmpp, account, own):
        why += (
            "; its presence is not subscribed to, so none can be found: give a full "
            "JID, or make the two accounts contacts"
        )
    return why


def _is_shown(xmpp: BaseXMPP, account: str, own: str) -> bool:
    """Whether an account shows its presence to an account of ours."""
    # A server shows an account all of its own resources (RFC 6121 §4.2.2).
    return account == own or subscription_of(xmpp, account, own) in {"to", "both"}


def _is_readable(jid: str) -> bool:
    try:
        return bool(JID(jid).bare)
    except InvalidJID:
        return False
