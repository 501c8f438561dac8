"""The namespaces of queueing, and the names built from them.

Constants only.
"""

from __future__ import annotations

from qos.core.queue.item import EXTENSIONS_NAMESPACE

__all__ = [
    "COMMANDS",
    "DATA_FORM",
    "DISCO_INFO",
    "DISCO_ITEMS",
    "ERRORS",
    "EVENT",
    "EXTENSIONS",
    "FEATURES",
    "FORM_VALIDATION",
    "HINTS",
    "META_DATA",
    "NODE_CONFIG",
    "OWNER",
    "PUBSUB",
    "QUEUEING",
    "QUEUEING_OLD",
    "RSM",
    "SHIM",
    "STANZAS",
    "SUBSCRIBE_OPTIONS",
    "UNLOCKS",
]

STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"

PUBSUB = "http://jabber.org/protocol/pubsub"
OWNER = f"{PUBSUB}#owner"
EVENT = f"{PUBSUB}#event"
ERRORS = f"{PUBSUB}#errors"
NODE_CONFIG = f"{PUBSUB}#node_config"
SUBSCRIBE_OPTIONS = f"{PUBSUB}#subscribe_options"
META_DATA = f"{PUBSUB}#meta-data"

#: The namespace of XEP-0254 §7.1. Its listing 11 has the other one, which is only read.
QUEUEING = "urn:xmpp:pubsub:queueing:0"
QUEUEING_OLD = "urn:xmpp:queueing:0"

#: The names of `<unlock/>`: the one that is sent, then the one that is only read.
UNLOCKS = (f"{{{QUEUEING}}}unlock", f"{{{QUEUEING_OLD}}}unlock")

EXTENSIONS = EXTENSIONS_NAMESPACE

COMMANDS = "http://jabber.org/protocol/commands"
DATA_FORM = "jabber:x:data"
FORM_VALIDATION = "http://jabber.org/protocol/xdata-validate"
DISCO_INFO = "http://jabber.org/protocol/disco#info"
DISCO_ITEMS = "http://jabber.org/protocol/disco#items"
HINTS = "urn:xmpp:hints"
RSM = "http://jabber.org/protocol/rsm"
SHIM = "http://jabber.org/protocol/shim"

#: The extensions that a service offers, each as a disco feature.
FEATURES = tuple(
    f"{EXTENSIONS}#{name}"
    for name in (
        "token",
        "priority",
        "ttl",
        "delay",
        "modified",
        "rejected",
        "extend",
        "requeue",
        "batch",
        "durable-locks",
        "resumable-locks",
        "acknowledged-events",
        "stats",
        "properties",
        "selector",
    )
)
