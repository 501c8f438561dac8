"""The ports of a queue service: each notification goes to the one of its receiver."""

from collections.abc import Collection, Sequence

from qos.core.queue.effects import Notification, NotifyUnlock
from qos.core.queue.item import Item
from qos.engine.gateway import GatewayPort, QueuePorts
from qos.engine.queue_outputs import Payloads, QueuePort

MINE = "bee@x/amqp-1"
XMPP = "bee@x/1"

ITEM = Item(
    seq=1, node="n", item_id="a", publisher="p", digest="d", size=1,
    published_at=1.0, available_at=1.0,
)  # fmt: skip


class Recorder(GatewayPort):
    """A port that notes what it is told."""

    def __init__(self, *own: str) -> None:
        self.own = own
        self.told: list[object] = []

    def attached(self) -> Collection[str]:
        return self.own

    def claims(self, jid: str) -> bool:
        return jid in self.own

    def restarted(self) -> None:
        self.told.append("restarted")

    def dropped(self, to: str, item: Item) -> None:
        self.told.append(("dropped", to, item.item_id))

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        self.told.append(("items", to, acknowledged))
        return [("event", items)]

    def notify(self, notification: Notification) -> None:
        self.told.append(notification)

    def probe(self, jid: str) -> None:
        self.told.append(("probe", jid))

    def new_id(self) -> str:
        return "id"


def tell(port: QueuePort, jid: str) -> list[object]:
    port.notify_items(jid, [(ITEM, "<x/>")], acknowledged=True)
    port.notify(NotifyUnlock(jid, "n", ("a",)))
    port.probe(jid)
    port.dropped(jid, ITEM)
    return [
        ("items", jid, True),
        NotifyUnlock(jid, "n", ("a",)),
        ("probe", jid),
        ("dropped", jid, "a"),
    ]


def test_each_full_jid_has_one_port() -> None:
    """Whatever resource an XMPP client chooses: only who is named is a gateway's."""
    xmpp, gateway = Recorder(), Recorder(MINE)
    ports = QueuePorts(xmpp)
    ports.add(Recorder())
    ports.add(gateway)
    assert tell(ports, MINE) == gateway.told
    assert not xmpp.told
    gateway.told.clear()
    for jid in (XMPP, "bee@x/amqp-2", "bee@x"):
        assert tell(ports, jid) == xmpp.told
        xmpp.told.clear()
    assert not gateway.told


def test_whom_nobody_claims_a_gateway_may_inherit() -> None:
    """A live consumer is its own gateway's, even if another one comes first."""

    class Heir(Recorder):
        def inherits(self, jid: str) -> bool:
            return jid.startswith("bee@x/amqp-")

    xmpp, heir, gateway = Recorder(), Heir(), Recorder(MINE)
    ports = QueuePorts(xmpp)
    ports.add(heir)
    ports.add(gateway)
    assert tell(ports, MINE) == gateway.told
    assert not heir.told
    assert tell(ports, "bee@x/amqp-2") == heir.told
    assert tell(ports, XMPP) == xmpp.told


def test_all_ports_are_told_that_the_engine_has_begun_again() -> None:
    xmpp, gateway = Recorder(), Recorder(MINE)
    ports = QueuePorts(xmpp)
    ports.add(gateway)
    ports.restarted()
    assert xmpp.told == gateway.told == ["restarted"]
    assert list(ports.attached()) == [MINE]
    assert ports.new_id() == "id"


def test_a_gateway_that_is_removed_is_told_nothing() -> None:
    xmpp, gateway = Recorder(), Recorder(MINE)
    ports = QueuePorts(xmpp)
    ports.add(gateway)
    ports.remove(gateway)
    assert tell(ports, MINE) == xmpp.told
    assert not gateway.told
