"""The delay that a publisher asks for by message annotations.

`x-opt-delivery-delay` is a length, and `x-opt-delivery-time` a moment: both in
milliseconds, as the JMS mapping has them (delivery delay, Jakarta Messaging §7.9) and
ActiveMQ, Artemis and Qpid read them. Both are optional, so that a value that is no number
is carried and not read.
"""

from __future__ import annotations

from qos.core.amqp.values import decode_carried, elements

__all__ = ["DELAY_S_MAX", "delay_of"]

#: A longer delay is this one: ten years, as by the other doors.
DELAY_S_MAX = 10 * 365 * 24 * 3600.0

_DELAY, _TIME = "x-opt-delivery-delay", "x-opt-delivery-time"

_NUMBERS = frozenset({"unsigned", "ulong", "signed", "timestamp"})


def delay_of(annotations: bytes | None, now: float) -> float:
    """Seconds before the message is delivered; the later one counts, if there are both.

    Args:
        annotations: the message annotations, an encoded map; None: there are none.
        now: the time.
    """
    pairs = [] if annotations is None else elements(annotations)
    delays = [0.0]
    for key, packed in zip(pairs[::2], pairs[1::2], strict=True):
        name = decode_carried(key)
        if name not in {("symbol", _DELAY), ("symbol", _TIME)}:
            continue
        kind, value = decode_carried(packed)
        if kind in _NUMBERS:
            assert isinstance(value, int)
            # As whole numbers: a float may have no room for them.
            ms = min(value, 2**53)
            delays.append(ms / 1000 - (now if name[1] == _TIME else 0.0))
    return min(max(delays), DELAY_S_MAX)
