"""A gateway: it speaks XMPP for lamps that know none. Each is an address of its domain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from slixmpp import ComponentXMPP
from slixmpp.stanza import Message

from xep_qos import XEP_QOS

Switch = Callable[[str, str], Awaitable[None]]


def set_up(gate: ComponentXMPP, switch: Switch, *, trust: str) -> None:
    """Switch lamps as told by those whom `trust` names; before the component connects."""
    gate.register_plugin(
        "xep_qos",
        {
            "store": "sqlite:gate.db",
            "trust": [trust],  # a component has no contacts
            "journal": "journal",
        },
    )

    qos = XEP_QOS.of(gate)

    async def received(message: Message) -> None:
        # The plugin leaves plain messages alone: those of strangers come here too.
        if qos.incoming(message) or await qos.admitted(message):
            # When this ends, the sender is told "delivered".
            await switch(message["to"].user, message["body"])

    gate.add_event_handler("message", received)


async def report(gate: ComponentXMPP, lamp: str, to: str, watts: float) -> None:
    """Send what a lamp takes, from its own address."""
    qos = XEP_QOS.of(gate)
    sender = f"{lamp}@{gate.boundjid.domain}/1"
    await qos.send(to, json={"watts": watts}, sender=sender)
