"""What the store keeps for the next start of an endpoint.

Our JID, with the resource to ask for again; the sizes of stanzas that our server takes; and
the capabilities of peers. The next start can do without each of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from slixmpp import ClientXMPP, ComponentXMPP

from qos.core.message.batch import BATCH_NAMESPACE
from qos.core.message.model import MARKS_NAMESPACE, NAMESPACES
from qos.core.message.session_resource import is_changed, resource_to_ask_for
from qos.core.strings import bare, resource_of
from qos.stores.base import Remember, Store
from qos.stream.stream_limits import StreamLimits
from xep_qos.capabilities import StoredCapabilities

__all__ = ["NextStart"]

log = logging.getLogger(__name__)

#: The names of the values in the store.
_OWN_JID = "own_jid"
_CAPABILITIES = "capabilities"
_STANZA_SIZES = "stanza_sizes"

#: What is kept of the features of peers.
_FEATURES = frozenset({*NAMESPACES, MARKS_NAMESPACE, BATCH_NAMESPACE})


class NextStart:
    """The values that are kept for the next start, and those that the last one has left.

    Attributes:
        capabilities: of peers; it keeps each new list.
    """

    def __init__(
        self,
        xmpp: ClientXMPP | ComponentXMPP,
        store: Store,
        limits: StreamLimits,
        remembered: Mapping[str, str],
    ) -> None:
        """Take up what was kept, before the stream connects.

        Args:
            xmpp: the stream; it is to ask for the resource of the last time.
            store: open.
            limits: of the stream; they get the sizes.
            remembered: the values in the store.
        """
        self._xmpp = xmpp
        self._store = store
        self._limits = limits
        #: What the store knows of the sizes that our server takes.
        self._kept_sizes = remembered.get(_STANZA_SIZES, "")
        #: Whether it was said that the server gives us another resource.
        self._resource_changed = False
        self._ask_for_resource(remembered.get(_OWN_JID, ""))
        if self._kept_sizes:
            limits.restore(self._kept_sizes)
        self.capabilities = StoredCapabilities(
            remembered.get(_CAPABILITIES, ""),
            lambda value: self._keep(Remember(_CAPABILITIES, value)),
            _FEATURES,
        )

    def _ask_for_resource(self, remembered: str) -> None:
        """Ask for the same resource: a foreign peer holds messages for our full JID."""
        jid = self._xmpp.requested_jid
        resource = resource_of(remembered)
        if resource and not jid.resource and bare(remembered) == jid.bare:
            jid.resource = resource

    def own_jid(self) -> Remember:
        """Our JID with the resource to ask for at the next start, to be written."""
        bound, jid = self._xmpp.boundjid, self._xmpp.requested_jid
        if not bound.full or self._xmpp.is_component:
            return Remember(_OWN_JID, bound.full or str(jid))
        resource = resource_to_ask_for(jid.resource, bound.resource)
        return Remember(_OWN_JID, f"{bound.bare}/{resource}")

    def session_started(self) -> None:
        """Keep the JID that the server has given us, and warn if it is another one."""
        self._keep(self.own_jid())
        bound, jid = self._xmpp.boundjid, self._xmpp.requested_jid
        if self._resource_changed or self._xmpp.is_component:
            return
        self._resource_changed = is_changed(jid.resource, bound.resource)
        if self._resource_changed:
            log.warning(
                "%s has given us the resource %r instead of %r: messages that others hold "
                "for %s cannot come here; it is asked for again at each login",
                *(bound.host, bound.resource, jid.resource, jid.full),
            )

    def keep_sizes(self) -> None:
        """Keep the sizes that our server takes, if more is known of them."""
        sizes = self._limits.sizes.to_text()
        if sizes != self._kept_sizes:
            self._kept_sizes = sizes
            self._keep(Remember(_STANZA_SIZES, sizes))

    def _keep(self, value: Remember) -> None:
        write = self._store.write((value,))
        if write is not None:
            # An error does not matter: the next start can do without the value.
            write.add_done_callback(lambda done: done.exception())
