"""The URL by which clients reach the service, and requests that a page of another site makes.

A proxy with TLS speaks plain HTTP to the service, and may give it one path of a site that
has others. So what clients call the service has to be said (`queue serve --http-base`). A
proxy may leave the path out of the requests or not: both are understood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

__all__ = [
    "OWN_PATHS",
    "base_of",
    "is_cross_site",
    "prefix_of",
    "read_base",
    "without_prefix",
]

#: The authorities that a link can have, as in the header Host of a request.
_AUTHORITY = re.compile(r"[A-Za-z0-9._~-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")

_PORTS = {"http": 80, "https": 443}

#: The path of the service below its host: the same bytes, however a proxy writes them.
_PREFIX = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)*")

#: The beginnings of the paths of the service itself: a prefix that is one of them could not
#: be told from it.
OWN_PATHS = frozenset({"queues", "topics", "send", "hornetq", "openapi.json"})


def read_base(text: str) -> str:
    """A URL that links begin with, without a slash at its end.

    Raises:
        ValueError: it is none; the error says what is expected.
    """
    wrong = (
        f"{text!r} is not SCHEME://HOST or SCHEME://HOST:PORT, maybe with a path of "
    )
    wrong += "letters, digits and . _ ~ -, such as https://queue.example.org or "
    wrong += "https://example.org/mq"
    try:
        split = urlsplit(text)
        port = split.port
    except ValueError:
        raise ValueError(wrong) from None
    path = split.path.removesuffix("/")
    base = f"{split.scheme}://{split.netloc}{path}"
    is_base = (
        split.scheme in _PORTS
        and port != 0
        and _AUTHORITY.fullmatch(split.netloc) is not None
        and _PREFIX.fullmatch(path) is not None
        and text.removesuffix("/").lower() == base.lower()
    )
    if not is_base:
        raise ValueError(wrong)
    if path.split("/")[1:2] and path.split("/")[1] in OWN_PATHS:
        raise ValueError(f"{text!r}: the service has paths of its own below {path!r}")
    return base


def prefix_of(base: str) -> str:
    """The path of a URL that links begin with; '': it has none."""
    return urlsplit(base).path


def without_prefix(path: str, prefix: str) -> str:
    """The path of a request as the service has it.

    Args:
        path: as it came: a proxy may have left the prefix out of it.
        prefix: the path of the service below its host; ''.
    """
    if not prefix or not f"{path}/".startswith(f"{prefix}/"):
        return path
    return path[len(prefix) :] or "/"


def base_of(scheme: str, host: str) -> str:
    """The scheme and authority of a request; '': none that can stand in a link.

    Args:
        scheme: of the connection.
        host: the header Host.
    """
    return f"{scheme}://{host}" if _AUTHORITY.fullmatch(host) else ""


def is_cross_site(headers: Mapping[str, str], *bases: str) -> bool:
    """Whether a browser sends this for a page of another site, with a password it has stored.

    A browser that says nothing of the site says of which origin the page is (RFC 6454
    §7.3): `null` is none that can be trusted.

    Args:
        headers: by their names in lower case.
        bases: the URLs by which the service is reached.
    """
    if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        page = urlsplit(origin)
        return not any(_is_same(page, urlsplit(base)) for base in bases if base)
    except ValueError:
        return True


def _is_same(page: SplitResult, base: SplitResult) -> bool:
    if page.hostname != base.hostname:
        return False
    if (page.scheme, base.scheme) == ("https", "http"):
        # A proxy with TLS is between, or else no such page could be there.
        return page.port == base.port
    return page.scheme == base.scheme and _port(page) == _port(base)


def _port(split: SplitResult) -> int | None:
    return _PORTS.get(split.scheme) if split.port is None else split.port
