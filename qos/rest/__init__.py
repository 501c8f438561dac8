"""An HTTP gateway to the queues: REST-* messaging, for programs that have HTTP alone.

`Gateway` listens, and is a port of the queue engine. It needs aiohttp: the extra `[rest]`.
"""

from __future__ import annotations

from qos.rest.gateway import Gateway

__all__ = ["Gateway"]
