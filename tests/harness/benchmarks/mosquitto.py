"""MQTT with mosquitto and each of three libraries, as contenders of a benchmark."""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from typing import Any

from benchmarks.arrivals import Arrivals
from benchmarks.brokered import Brokered, PythonProgram
from qos.testing.processes import Process, find_program

__all__ = ["LIBRARIES", "Mqtt"]

#: The module to import for each library, by the name of its package.
LIBRARIES = {"paho-mqtt": "paho", "aiomqtt": "aiomqtt", "gmqtt": "gmqtt"}

# Only in memory, and without limits that hold a message back.
_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
log_type error
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
"""

_PUBLISHED = "the publisher learns only that the broker has it"
_IN_MEMORY = "in memory at both ends and the broker: a crash of one loses what it has"
_NO_DEDUPE = "it hands every PUBLISH of QoS 2 over: a resent one comes twice"
_EARLY = {
    "aiomqtt": "it acknowledges a message before anybody takes it from its queue",
    "gmqtt": "it acknowledges a message before it hands it over",
}


class Mqtt(Brokered):
    """One library at one QoS: see benchmarks.sample.Contender.

    Args:
        library: one of LIBRARIES.
        qos: the QoS of all messages.
        replies: whether a message ends with the receiver's reply, matched by its
            correlation data. Otherwise it ends when the library reports that it is
            published, or for QoS 0 when the receiver has counted it.
    """

    def __init__(self, library: str, qos: int, *, replies: bool = False) -> None:
        module = LIBRARIES[library]
        super().__init__(
            f"MQTT QoS {qos}{' + reply' if replies else ''}, {library}",
            _caveat(library, qos, replies=replies),
            program=PythonProgram(module=f"benchmarks.mqtt_{module}", needs=module),
        )
        self.library = library
        self.qos = qos
        self.replies = replies

    async def _start_server(self, folder: Path, port: int) -> Process:
        program = find_program("mosquitto", "mosquitto")
        config = folder / "mosquitto.conf"
        # Started by root, it would become a user who cannot read the folder.
        user = "user root\n" if os.getuid() == 0 else ""
        config.write_text(_CONFIG.format(port=port) + user, encoding="ascii")
        return await Process.start(program, "-c", str(config), folder=folder)

    def _options(self, folder: Path) -> dict[str, Any]:
        arrivals = None if self.qos else Arrivals.make(folder / "arrivals")
        return {"qos": self.qos, "replies": self.replies, "arrivals": arrivals}

    def _ended(self, sent: array[float], got: array[float]) -> array[float]:
        # One connection keeps the order of QoS 0.
        return sent if self.qos else got


def _caveat(library: str, qos: int, *, replies: bool) -> str:
    if qos == 0:
        return "nobody repeats what is lost, and the publisher learns nothing"
    caveats = [] if replies else [_PUBLISHED]
    caveats.append(_IN_MEMORY)
    if qos == 1:
        caveats.append("it may come twice")
    elif library == "gmqtt":
        caveats.append(_NO_DEDUPE)
    if library in _EARLY:
        caveats.append(_EARLY[library])
    return "; ".join(caveats)
