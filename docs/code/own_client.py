"""The plugin on a slixmpp client that the program keeps up itself."""

from slixmpp import ClientXMPP
from slixmpp.stanza import Message

from xep_qos import XEP_QOS


def set_up(client: ClientXMPP) -> XEP_QOS:
    """Before the client connects."""
    client.auto_authorize = None  # else everybody who asks becomes a contact
    client.register_plugin("xep_qos", {"store": "sqlite:lamp.db"})
    qos = XEP_QOS.of(client)

    def received(message: Message) -> None:
        came = qos.incoming(message)
        level = came.level.value if came else "a plain message"
        print(f"{message['body']}: {level}")

    client.add_event_handler("message", received)
    return qos
