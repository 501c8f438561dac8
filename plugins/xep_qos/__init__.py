"""Quality of Service for XMPP messages, as a slixmpp plugin.

Importing this package makes the plugin known to slixmpp::

    from xep_qos import XEP_QOS

    client.register_plugin("xep_qos", {"store": "sqlite:controller.db"})
    qos = XEP_QOS.of(client)
    receipt = await qos.send("lamp@example.org/1", body="on")
"""

from slixmpp.plugins.base import register_plugin

from xep_qos.content import Json, SendOptions, json_of
from xep_qos.feed import IncomingInfo
from xep_qos.plugin import XEP_QOS
from xep_qos.settings import Options, Settings

register_plugin(XEP_QOS)

__all__ = [
    "XEP_QOS",
    "IncomingInfo",
    "Json",
    "Options",
    "SendOptions",
    "Settings",
    "json_of",
]
