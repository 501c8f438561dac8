"""An HTTP gateway to the queues: REST-* messaging, for whoever has only HTTP.

`Gateway` listens, and is a port of the queue engine. It needs aiohttp: the extra `[rest]`.
"""

from __future__ import annotations

from qos.rest.gateway import Gateway

__all__ = ["Gateway"]
