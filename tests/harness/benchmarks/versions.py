"""The installed versions of the measured software: a figure is only valid for one."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import re
from pathlib import Path

from benchmarks.amqp_clients import rhea_version
from qos._version import __version__
from qos.testing.processes import NotInstalled, completed, find_program

__all__ = ["versions"]

_LIBRARIES = (
    "paho-mqtt",
    "aiomqtt",
    "gmqtt",
    "aio-pika",
    "nats-py",
    "python-qpid-proton",
    "aiohttp",
)

# The option that prints the version of each. RabbitMQ takes seconds for this; the name
# of its folder has it.
_PROGRAMS = {"mosquitto": "-h", "nats-server": "--version"}
_RABBITMQ = Path("/usr/lib/rabbitmq/lib")


async def versions(*, peers: bool) -> dict[str, str]:
    """Return versions by name.

    Args:
        peers: besides Python, slixmpp and this library, also those of the libraries and
            brokers of peers, as far as they are installed.
    """
    found = {
        "python": platform.python_version(),
        "slixmpp": importlib.metadata.version("slixmpp"),
        "xmpp-qos": __version__,
    }
    return found | (await _of_peers() if peers else {})


async def _of_peers() -> dict[str, str]:
    found = {}
    for library in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[library] = importlib.metadata.version(library)
    rhea = rhea_version()
    if rhea is not None:
        found["rhea"] = rhea
    for program, argument in _PROGRAMS.items():
        with contextlib.suppress(NotInstalled):
            found[program] = await _asked(find_program(program, program), argument)
    with contextlib.suppress(NotInstalled):
        find_program("rabbitmq-server", "rabbitmq-server")
        found["rabbitmq-server"] = _of_rabbitmq()
    return found


def _of_rabbitmq() -> str:
    names = (each.name for each in _RABBITMQ.glob("rabbitmq_server-*"))
    return _number(" ".join(names))


async def _asked(program: str, argument: str) -> str:
    asked = await completed(program, argument)
    return _number(asked.out + asked.err)


def _number(text: str) -> str:
    match = re.search(r"\d+(\.\d+)+", text)
    return match[0] if match else "unknown"
