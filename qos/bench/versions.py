"""Which versions of the peers are here: a figure is of one of them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import re
from pathlib import Path

from qos.bench.processes import find_program
from qos.bench.sample import NotHere

__all__ = ["versions"]

_LIBRARIES = ("paho-mqtt", "aiomqtt", "gmqtt", "aio-pika", "nats-py")

# How to ask each. RabbitMQ takes seconds to tell; the name of its folder has it.
_PROGRAMS = {"mosquitto": "-h", "nats-server": "--version"}
_RABBITMQ = Path("/usr/lib/rabbitmq/lib")


async def versions() -> dict[str, str]:
    """Return the versions of the libraries and brokers that are installed, by name."""
    found = {}
    for library in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[library] = importlib.metadata.version(library)
    for program, argument in _PROGRAMS.items():
        with contextlib.suppress(NotHere):
            found[program] = await _asked(find_program(program, program), argument)
    with contextlib.suppress(NotHere):
        find_program("rabbitmq-server", "rabbitmq-server")
        found["rabbitmq-server"] = _of_rabbitmq()
    return found


def _of_rabbitmq() -> str:
    names = (each.name for each in _RABBITMQ.glob("rabbitmq_server-*"))
    return _number(" ".join(names))


async def _asked(program: str, argument: str) -> str:
    asking = await asyncio.create_subprocess_exec(
        *(program, argument),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asking.communicate()
    return _number(output.decode())


def _number(text: str) -> str:
    match = re.search(r"\d+(\.\d+)+", text)
    return match[0] if match else "unknown"
