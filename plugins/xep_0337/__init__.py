"""XEP-0337: Event Logging over XMPP, as a slixmpp plugin.

Importing this package makes the plugin known to slixmpp; `client.register_plugin`
then enables it:

    import xep_0337

    client.register_plugin("xep_0337")
    events = xep_0337.XEP_0337.of(client)
"""

from slixmpp.plugins.base import register_plugin

from xep_0337.event_logging import XEP_0337, EventLogHandler
from xep_0337.stanza import (
    NS,
    EventLevel,
    EventTag,
    EventType,
    Log,
    LogEvent,
    MalformedEvent,
    Tag,
)

register_plugin(XEP_0337)

__all__ = [
    "NS",
    "XEP_0337",
    "EventLevel",
    "EventLogHandler",
    "EventTag",
    "EventType",
    "Log",
    "LogEvent",
    "MalformedEvent",
    "Tag",
]
