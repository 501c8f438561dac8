"""Ports of loopback, for servers that are started for a while."""

from __future__ import annotations

import contextlib
import random
import socket

__all__ = ["ADDRESS", "free_ports"]

ADDRESS = "127.0.0.1"

# Below the kernel's range for outgoing connections, so that no client takes a port
# before its server has it, or while that restarts.
_PORTS = range(10_000, 32_768)


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on, each another one."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.choice(_PORTS)  # noqa: S311 - it keeps no secret
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((ADDRESS, port))
            ports.add(port)
    return list(ports)
