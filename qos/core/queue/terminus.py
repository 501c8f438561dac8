"""The terminus of a link of a gateway, which may outlive its link (AMQP 1.0 messaging §3.5).

A terminus is known by account, container-id and link name. While it has no link, it keeps
its full JID, and with that its subscription and its locks; or, if it only shows items,
its place among them.
"""

from __future__ import annotations

from typing import TypeAlias

from qos.core.quick_enum import QuickEnum
from qos.core.record import record
from qos.core.strings import bare

__all__ = ["DURABILITIES", "ExpiryPolicy", "Terminus", "TerminusName", "kept_for"]

#: The account, the container-id and the link name of a terminus.
TerminusName: TypeAlias = tuple[str, str, str]

#: The values of `Terminus.durability` (messaging §3.5.5).
DURABILITIES = ("none", "configuration", "unsettled-state")


class ExpiryPolicy(QuickEnum):
    """The event that starts the timer of a terminus (messaging §3.5.6); values are stored.

    The order is that in which they end.
    """

    LINK_DETACH = "link-detach"
    SESSION_END = "session-end"
    CONNECTION_CLOSE = "connection-close"
    NEVER = "never"


_ORDER = {policy: at for at, policy in enumerate(ExpiryPolicy)}


def kept_for(policy: ExpiryPolicy, timeout_s: int, event: ExpiryPolicy) -> float | None:
    """Seconds for which a terminus is kept after this; None: its timer does not run.

    Args:
        policy: its policy.
        timeout_s: how long its timer runs.
        event: the policy that names what has ended: link, session or connection.
    """
    return timeout_s if _ORDER[policy] <= _ORDER[event] else None


@record(frozen=True, slots=True, kw_only=True)
class Terminus:
    """A terminus; see the module.

    Attributes:
        jid: the full JID of its links, and of nobody else.
        container: the container-id of the peer.
        link: the name of the link.
        node: the name of its node.
        address: the address that the peer gave.
        selector: of the items that it wants; '': of all.
        copies: it only shows items (distribution mode `copy`).
        durability: what outlives the process, as an index into DURABILITIES.
        policy: what starts its timer.
        timeout_s: how long its timer runs.
        cursor: the seq up to which items have been shown, if it copies.
        until: when it ends; None: its timer does not run.
    """

    jid: str
    container: str
    link: str
    node: str
    address: str
    selector: str = ""
    copies: bool = False
    durability: int = 0
    policy: ExpiryPolicy = ExpiryPolicy.SESSION_END
    timeout_s: int = 0
    cursor: int = 0
    until: float | None = None

    @property
    def name(self) -> TerminusName:
        """By which its next link finds it."""
        return bare(self.jid), self.container, self.link
