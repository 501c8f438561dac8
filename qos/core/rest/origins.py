"""The URL by which clients reach the service, and requests that a page of another site makes.

A proxy with TLS speaks plain HTTP to the service, so what clients call the service has to
be said (`queue serve --http-base`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

__all__ = ["base_of", "is_cross_site", "read_base"]

#: The authorities that a link can have, as in the header Host of a request.
_AUTHORITY = re.compile(r"[A-Za-z0-9._~-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")

_PORTS = {"http": 80, "https": 443}


def read_base(text: str) -> str:
    """A URL that links begin with, without a slash at its end.

    Raises:
        ValueError: it is none; the error says what is expected.
    """
    wrong = f"{text!r} is not SCHEME://HOST or SCHEME://HOST:PORT, such as "
    wrong += "https://queue.example.org, without a path"
    try:
        split = urlsplit(text)
        port = split.port
    except ValueError:
        raise ValueError(wrong) from None
    base = f"{split.scheme}://{split.netloc}"
    is_base = (
        split.scheme in _PORTS
        and port != 0
        and _AUTHORITY.fullmatch(split.netloc) is not None
        and text.removesuffix("/").lower() == base.lower()
    )
    if not is_base:
        raise ValueError(wrong)
    return base


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
