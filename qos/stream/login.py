"""Sessions of an account, with TLS and a password, and of a component.

slixmpp logs in wherever it can. These sessions also decide where it must not.
"""

from __future__ import annotations

import logging
import ssl

from slixmpp import JID, ClientXMPP, ComponentXMPP
from slixmpp.stanza import Iq, StreamFeatures
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.core.message.session_resource import is_changed
from qos.stream import internals
from qos.stream.gate import Gate
from qos.stream.per_stream import passes_iqs
from qos.stream.server import Component, Login
from qos.stream.session import Session
from qos.tls_files import TlsFiles

__all__ = ["AccountSession", "ComponentSession"]

log = logging.getLogger(__name__)

#: The condition by which a server says that it cannot check a login just now (RFC 6120
#: §6.5).
_PASSING_AUTH_FAILURE = "temporary-auth-failure"


class AccountSession(Session):
    """A session as an account (RFC 6120).

    Attributes:
        client: the slixmpp client.
    """

    #: Two clients under one JID would disconnect each other for ever.
    lasting = Session.lasting | {"conflict"}

    def __init__(self, login: Login, *, quiet: bool = False) -> None:
        """Prepare.

        Args:
            login: the account.
            quiet: do not log lost and new connections.

        Raises:
            ValueError: the password or the CA file cannot be used.
        """
        self._context = TlsFiles(login.tls_context, login.ca_file)
        self.client = _new_client(login, self._context())
        self._tls = login.tls
        #: The server's answer to the password in the present attempt.
        self._refusal = ""
        #: The server has once given another resource than the one asked for.
        self._is_changed = False
        name = f"{login.host}:{login.port}" if login.host else login.domain
        super().__init__(self.client, login, name=name, quiet=quiet)
        for event, handler in (
            ("session_bind", self._bound),
            ("ssl_invalid_chain", self._failed_tls),
            ("failed_auth", self._refused),
            ("failed_all_auth", self._refused_all),
        ):
            self.client.add_event_handler(event, handler)

    @passes_iqs
    def _guard(self, stanza: StanzaBase) -> StanzaBase | None:
        """Keep slixmpp from logging in without TLS, as far as mechanisms permit.

        slixmpp does so where the server offers no TLS, or where an attacker removed the
        offer.
        """
        if isinstance(stanza, StreamFeatures):
            transport = self.client.transport
            encrypted = transport and transport.get_extra_info("ssl_object")
            features = stanza["features"]
            if self._tls != "off":
                if not encrypted and "starttls" not in features:
                    self._give_up(f"{self._name} offers no TLS", lasting=True)
                    return None
            elif "starttls" in features and len(features) == 1:
                self._give_up(f"{self._name} insists on TLS", lasting=True)
                return None
        return super()._guard(stanza)

    def _session_started(self, event: object) -> None:
        bound, requested = self.client.boundjid, self.client.requested_jid
        if bound.bare != requested.bare or not bound.resource:
            # For instance, an anonymous login counts as a success.
            problem = f"{self._name} gave us {bound.full!r} instead of {requested.bare}"
            self._give_up(problem, lasting=bool(bound.full))
            return
        # With xep_qos it is xep_qos that warns, of what this means for messages.
        if is_changed(requested.resource, bound.resource) and not self._is_changed:
            self._is_changed = True
            if "xep_qos" not in self.client.plugin:
                log.warning(
                    "%s has given us the resource %r instead of %r: what others keep for "
                    "%s, such as locks of its items, cannot come here; it is asked for "
                    "again at each login",
                    *(bound.host, bound.resource, requested.resource, requested.full),
                )
        super()._session_started(event)

    def _bound(self, jid: JID) -> None:
        """Look whether a resource is bound: slixmpp takes an error for an empty JID."""
        refused = Gate.of(self.client).refused
        if not jid.full and refused is not None:
            error = Iq(self.client, xml=refused)["error"]  # type: ignore[no-untyped-call]
            condition = error["condition"] or "undefined-condition"
            resource = self.client.requested_jid.resource
            problem = f"{self._name} refused the resource {resource!r}: {condition}"
            # Such as too many sessions: those of a device that has crashed will end.
            self._give_up(problem, lasting=error["type"] != "wait")

    def _failed_tls(self, error: object) -> None:
        """Take a failure of STARTTLS; the handler of this event has to disconnect."""
        self._failed(error)
        self._over.set()

    def _refused(self, failure: StanzaBase) -> None:
        self._refusal = failure["condition"]

    def _refused_all(self, _event: object) -> None:
        if self._refusal:
            # It came over TLS: before, the gate drops everything of SASL.
            self._problem = f"{self._name} refused the login: {self._refusal}"
            self._refused_login = self._refusal != _PASSING_AUTH_FAILURE
            self._lasting = self._refused_login
        else:
            problem = f"{self._name} offers no way to log in that we know"
            self._set_problem(problem, lasting=True)

    async def _connected(self) -> bool:
        self._refusal = ""
        self.client.ssl_context = self._context()
        return await super()._connected()

    async def _hang_up(self) -> None:
        if self._refusal and not self._problem and not self._started.is_set():
            self._refused_all(None)
        await super()._hang_up()


class ComponentSession(Session):
    """A session as a component of a server (XEP-0114)."""

    #: The secret is wrong. (A conflict passes: an old connection is not closed yet.)
    lasting = Session.lasting | {"not-authorized"}

    def __init__(self, component: Component) -> None:
        """Prepare."""
        stream = ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp's lack
            component.jid, component.secret, component.host, component.port
        )
        # slixmpp tries TLS first, but XEP-0114 has no TLS.
        stream.enable_direct_tls = False
        super().__init__(stream, component, name=f"{component.host}:{component.port}")


def _new_client(login: Login, context: ssl.SSLContext) -> ClientXMPP:
    login.check()
    internals.quicken_scram()
    plain = login.tls == "off"
    client = ClientXMPP(
        login.jid,
        login.password,
        ssl_context=context,
        plugin_config={
            "feature_mechanisms": {
                "unencrypted_plain": plain,
                "unencrypted_scram": plain,
            }
        },
    )
    client.enable_plaintext = plain
    client.enable_starttls = login.tls == "starttls"
    client.enable_direct_tls = login.tls == "direct"
    client.default_port = login.port
    # slixmpp itself accepts every subscription request, and contacts in the roster are
    # trusted. Here nobody is let in without the user's decision.
    client.auto_authorize = None
    return client
