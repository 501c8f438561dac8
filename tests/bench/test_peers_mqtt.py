"""MQTT as a peer.

Every library at every QoS, with a real broker, and the packets on the wire.
"""

import asyncio
import re
import sys
import threading
from pathlib import Path

import pytest
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.mosquitto import LIBRARIES, Mqtt
from benchmarks.sample import Work
from measuring import check, processes_in
from qos.testing import processes
from qos.testing.processes import NotInstalled
from waiting import LIMIT_S

QOS = [(qos, False) for qos in (0, 1, 2)] + [(qos, True) for qos in (1, 2)]

#: What the gate runs of them: each library with QoS 0, whose end is counted in another
#: way, each with replies, and each QoS with and without replies.
IN_GATE = {
    *((library, 0, False) for library in LIBRARIES),
    *(("paho-mqtt", 1, True), ("aiomqtt", 1, False), ("aiomqtt", 2, True)),
    *(("gmqtt", 1, True), ("gmqtt", 2, False)),
}

ROWS = [
    pytest.param(
        *(library, qos, replies),
        marks=() if (library, qos, replies) in IN_GATE else pytest.mark.long,
    )
    for library in LIBRARIES
    for qos, replies in QOS
]


class Observer:
    """A subscriber of the test's own, to all topics."""

    def __init__(self, folder: Path) -> None:
        found = re.search(r"listener (\d+)", (folder / "mosquitto.conf").read_text())
        assert found is not None
        self.seen: dict[str, list[tuple[int, int]]] = {}
        self._subscribed = threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = lambda _client, _data, message: self.see(message)
        self._client.connect("127.0.0.1", int(found[1]))
        self._client.loop_start()
        self._client.subscribe("#", 2)
        assert self._subscribed.wait(LIMIT_S)

    def see(self, message: mqtt.MQTTMessage) -> None:
        here = self.seen.setdefault(message.topic, [])
        here.append((message.qos, len(message.payload)))

    def until_told(self) -> None:
        """Wait until it has got all messages that were published before."""
        told = threading.Event()
        self._client.message_callback_add("told", lambda *_: told.set())
        self._client.publish("told", qos=2)
        assert told.wait(LIMIT_S)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.mark.parametrize(("library", "qos", "replies"), ROWS)
async def test_every_message_counted_was_published_at_that_qos(
    library: str, qos: int, replies: bool, tmp_path: Path
) -> None:
    """The figures are those of the row's name, and only of messages that were sent."""
    contender = Mqtt(library, qos, replies=replies)
    try:
        await contender.start(tmp_path)
        work = Work(window=4, payload_bytes=200, seconds=0.15)
        sample = await contender.measure(work)
        check(sample, work)
        observer = Observer(tmp_path)
        again = await contender.measure(Work(window=1, payload_bytes=3, seconds=0.02))
        observer.until_told()
        observer.close()
        expected = {"bench/messages": [(qos, 3)] * again.messages}
        if replies:
            expected["bench/replies"] = [(qos, 0)] * again.messages
        assert observer.seen == expected
        assert len(processes_in(tmp_path)) == 3
    finally:
        await contender.stop()
    assert not processes_in(tmp_path)


async def test_a_measurement_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    """Control-C is the usual end of a long benchmark."""
    contender = Mqtt("gmqtt", 2, replies=True)
    try:
        await contender.start(tmp_path)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await contender.measure(Work(window=4, payload_bytes=3, seconds=60))
    finally:
        await contender.stop()
    assert not processes_in(tmp_path)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_library_that_is_not_there_is_said_in_one_line(
    library: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The benchmark leaves the row out, and names the package to install."""
    monkeypatch.setitem(sys.modules, LIBRARIES[library], None)
    contender = Mqtt(library, 1)
    with pytest.raises(
        NotInstalled,
        match=r"^there is no .*--group benchmarks in the folder of xmpp-qos$",
    ):
        await contender.start(tmp_path)
    await contender.stop()


async def test_a_broker_that_is_not_there_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Likewise; the package to install is named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(processes, "SBIN", ())
    contender = Mqtt("gmqtt", 1)
    with pytest.raises(
        NotInstalled, match=r"^mosquitto .*\(Debian package: mosquitto\)$"
    ):
        await contender.start(tmp_path)
    await contender.stop()


def test_no_row_claims_more_than_it_has() -> None:
    """A faster row with a weaker promise must tell so beside its figure."""
    caveats = {
        (library, qos, replies): Mqtt(library, qos, replies=replies).caveat
        for library in LIBRARIES
        for qos, replies in QOS
    }
    for (library, qos, replies), caveat in caveats.items():
        assert ("the broker has it" in caveat) == (qos > 0 and not replies)
        assert ("crash" in caveat) == (qos > 0)
        assert ("a resent one" in caveat) == (qos == 2 and library == "gmqtt")
