"""Ports of loopback for servers that run for a while.

Each process has a block of ports of its own. So a port stays reserved while a server
starts or restarts, although nothing listens on it then.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import socket
from collections.abc import Iterator

__all__ = ["ADDRESS", "free_ports"]

ADDRESS = "127.0.0.1"

# Below the kernel's range for outgoing connections, so that no client takes a port
# before its server has it, or during a restart.
_PORTS = range(10_000, 32_768)
_BLOCK = 128


def free_ports(count: int) -> list[int]:
    """Return different free ports of loopback.

    A port is returned again after some hundred others.

    Raises:
        OSError: There is none left.
    """
    block = _block()
    ports: list[int] = []
    for port in itertools.islice(block, _BLOCK - 1):
        if len(ports) == count:
            break
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((ADDRESS, port))
            ports.append(port)
    if len(ports) < count:
        raise OSError(f"no {count} ports of {ADDRESS} are free")
    return ports


@functools.cache
def _block() -> Iterator[int]:
    """Find a block that no process has, and hold its first port to our end."""
    starts = list(_PORTS[:-_BLOCK:_BLOCK])
    random.shuffle(starts)
    for start in starts:
        with socket.socket() as guard, contextlib.suppress(OSError):
            guard.bind((ADDRESS, start))
            guard.detach()
            return itertools.cycle(range(start + 1, start + _BLOCK))
    raise OSError(f"no block of {_BLOCK} ports of {ADDRESS} is free")
