"""The time that a client is willing to wait: `Prefer: wait` (RFC 7240) and its forerunners."""

from __future__ import annotations

import re
from collections.abc import Mapping

from qos.core.queue.requests import Refusal
from qos.core.record import record

__all__ = ["WAIT_S_MAX", "Wait", "wait_of"]

#: The longest wait. A proxy answers with 504 in place of a service that is silent for
#: longer: nginx after 60 s, haproxy as Debian installs it after 50 s.
WAIT_S_MAX = 45

#: In this order; REST-* has invented `X-RS-Wait`, and HornetQ has `Accept-Wait`.
_HEADERS = ("accept-wait", "x-rs-wait")

_DIGITS_MAX = 9

_PREFERENCE = re.compile(
    r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)"
    r"(?:\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;,\"]*)))?"
    r"(?:\"(?:[^\"\\]|\\.)*\"?|[^,\"])*,?"
)


@record(frozen=True, slots=True)
class Wait:
    """A wait.

    Attributes:
        seconds: at most WAIT_S_MAX; 0: none.
        applied: the value of `Preference-Applied`; '': there was no such preference.
    """

    seconds: int
    applied: str = ""

    def after(self, seconds: float) -> Wait:
        """The wait that is left, when a part of it is over."""
        return Wait(max(0, self.seconds - int(seconds)), self.applied)


def wait_of(headers: Mapping[str, str]) -> Wait:
    """The wait that a request asks for.

    Args:
        headers: by their names in lower case.

    Raises:
        Refusal: it is no whole number of seconds.
    """
    preferred = _preferred(headers.get("prefer", ""))
    if preferred is not None:
        seconds = _seconds("Prefer: wait", preferred)
        return Wait(seconds, f"wait={seconds}")
    for name in _HEADERS:
        if name in headers:
            return Wait(_seconds(name, headers[name].strip()))
    return Wait(0)


def _preferred(value: str) -> str | None:
    """The value of the preference `wait`: the first one counts (RFC 7240 §2)."""
    for match in _PREFERENCE.finditer(value):
        name, quoted, plain = match.groups()
        if name.lower() == "wait":
            return quoted if quoted is not None else plain or ""
    return None


def _seconds(name: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX):
        raise Refusal(
            f"{name}: whole seconds are expected, not {value[:20]!r}",
            condition="bad-request",
            type="modify",
        )
    return min(int(value), WAIT_S_MAX)
