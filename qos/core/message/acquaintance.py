"""Who is known and who is a stranger: a pure decision about the sender of a presence.

A stranger may be anybody, and there may be any number of them. Nothing of theirs is kept
for long, and no question is sent to them unless we are about to send them a message.
"""

from __future__ import annotations

from qos.core.message.trust import TrustPolicy
from qos.core.strings import bare, own_servers

__all__ = ["is_stranger"]


def is_stranger(
    sender: str,
    *,
    own: str,
    policy: TrustPolicy | None,
    listed: bool,
    addressed: bool,
    occupant: bool,
) -> bool:
    """Whether a JID is that of a stranger.

    Args:
        sender: the JID, full or bare.
        own: our own JID.
        policy: the rule of trust; None: it is a function of the user. That everybody is
            trusted makes nobody known.
        listed: whether the roster has a subscription of the account, or one is asked for.
        addressed: whether we have sent presence or a message to the account.
        occupant: whether it is a room that we are in.
    """
    if listed or addressed or occupant or sender in own_servers(own):
        return False
    return bare(sender) != bare(own) and not (policy and policy.names(sender))
