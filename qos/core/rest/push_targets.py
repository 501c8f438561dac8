"""The URLs and addresses that messages may be pushed to, and all others (SSRF).

Whoever may subscribe can name a URL, and the service then sends requests there. Such a
URL must not reach what only the service can reach: itself, its neighbours, the metadata
service of its cloud. So a URL has to be https to an ordinary port of a public host. The
operator lists the exceptions.

A URL is checked when it is registered and whenever it is used, as `PushRules.target`;
and each address that its host has, when a connection is made, as `PushRules.why_not`.
Both are needed: a name says nothing about its addresses, and an address nothing about
its port.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TypeAlias

from qos.core.record import record

__all__ = ["URL_CHARS_MAX", "BadTarget", "PushRules", "Target"]

#: The most characters of a URL.
URL_CHARS_MAX = 2048

_Address: TypeAlias = IPv4Address | IPv6Address
_Network: TypeAlias = IPv4Network | IPv6Network

_PORTS = {"http": 80, "https": 443}

#: Below this, ports other than 443 belong to services that speak no HTTPS, and some of
#: them obey a line in the middle of other data.
_PORT_MIN = 1024
_PORT_NUMBERS = range(1, 65_536)

#: What is not for everybody, by RFC 6890 and the registries that it began. Not by
#: `ipaddress.is_global`: its answers have changed between releases of Python.
_SPECIAL_4: Mapping[IPv4Network, str] = {
    IPv4Network(network): kind
    for network, kind in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "private"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
}

#: Likewise; more special networks before those that they are in.
_SPECIAL_6: Mapping[IPv6Network, str] = {
    IPv6Network(network): kind
    for network, kind in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("64:ff9b::/96", "NAT64"),
        ("64:ff9b:1::/48", "NAT64"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "reserved"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "reserved"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
    )
}

#: All unicast addresses of the internet (RFC 4291 §2.4).
_PUBLIC_6 = IPv6Network("2000::/3")

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)"
    r"(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?"
)
_AUTHORITY = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]@]+)(?::(?P<port>[0-9]+))?"
)
_PRINTABLE = re.compile(r"[\x21-\x7e]*")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_HOST_CHARS_MAX = 253


class BadTarget(ValueError):
    """A URL that messages are not pushed to; the message says why."""


@record(frozen=True, slots=True)
class Target:
    """A URL that was checked.

    Attributes:
        url: in normal form; connect by this one only.
        scheme: `http` or `https`.
        host: a name in ASCII and lower case, or an address without brackets.
        port: of the host.
    """

    url: str
    scheme: str
    host: str
    port: int


@record(frozen=True, slots=True)
class PushRules:
    """The rules for the URLs and addresses that may be pushed to.

    Attributes:
        hosts: listed hosts, each with a port; None: any port. They may be reached by
            http, and at any address.
        networks: listed networks: addresses in them are allowed.
    """

    hosts: frozenset[tuple[str, int | None]] = frozenset()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> PushRules:
        """The rules with these exceptions.

        Args:
            entries: each is `HOST`, `HOST:PORT`, or `NETWORK/BITS`.

        Raises:
            ValueError: an entry is none of these.
        """
        hosts: set[tuple[str, int | None]] = set()
        networks: list[_Network] = []
        for entry in entries:
            try:
                if "/" in entry:
                    networks.append(ip_network(entry.strip()))
                else:
                    hosts.add(_host_and_port(entry.strip()))
            except ValueError as error:
                raise ValueError(
                    f"{entry[:100]!r} is not HOST, HOST:PORT or NETWORK/BITS: {error}"
                ) from None
        return cls(frozenset(hosts), tuple(networks))

    def target(self, url: str) -> Target:
        """Check a URL, and bring it to normal form.

        If its host is an address, this checks the address too.

        Raises:
            BadTarget: nothing is pushed there.
        """
        if len(url) > URL_CHARS_MAX:
            raise BadTarget(f"a URL has at most {URL_CHARS_MAX} characters")
        match = _URL.fullmatch(url)
        if match is None or match["scheme"].lower() not in _PORTS:
            raise BadTarget("a URL begins with https://, or http:// for listed hosts")
        scheme = match["scheme"].lower()
        host, explicit_port = _host_and_port(match["authority"])
        rest = f"{match['path'] or '/'}{match['query'] or ''}"
        if not _PRINTABLE.fullmatch(rest) or "\\" in rest:
            raise BadTarget("after its host a URL is visible ASCII without backslash")
        port = _PORTS[scheme] if explicit_port is None else explicit_port
        self._check(scheme, host, port)
        host_text = f"[{host}]" if ":" in host else host
        at = "" if port == _PORTS[scheme] else f":{port}"
        return Target(f"{scheme}://{host_text}{at}{rest}", scheme, host, port)

    def _check(self, scheme: str, host: str, port: int) -> None:
        if self._lists(host, port):
            return
        address = _address(host)
        listed = address is not None and self._in_network(address)
        if scheme != "https" and not listed:
            raise BadTarget(f"{host}:{port} is not listed, so it has to be https")
        if port < _PORT_MIN and port not in _PORTS.values():
            raise BadTarget(f"{host} is not listed, so its port cannot be {port}")
        why = "" if address is None else self.why_not(host, port, host)
        if why:
            raise BadTarget(why)

    def why_not(self, host: str, port: int, address: str) -> str:
        """The reason not to connect to an address of a host; '': connect.

        Args:
            host: of a Target.
            port: of it.
            address: as a resolver returns it.
        """
        if self._lists(host, port):
            return ""
        ip = _address(address)
        if ip is None:
            return f"{host} has an address that is none"
        kind = self._refused(ip)
        # Not which one: users would find out names and addresses of our network.
        return f"{host} has an address that is {kind}" if kind else ""

    def _lists(self, host: str, port: int) -> bool:
        return not self.hosts.isdisjoint({(host, None), (host, port)})

    def _in_network(self, address: _Address) -> bool:
        return any(address in network for network in self.networks)

    def _refused(self, address: _Address) -> str:
        """The kind of a refused address; ''."""
        if not self._in_network(address):
            return _kind(address)
        # The network that embeds it is listed, and perhaps not the one it belongs to.
        inner = _embedded(address)
        return "" if inner is None else self._refused(inner)


def _host_and_port(authority: str) -> tuple[str, int | None]:
    """Raises BadTarget."""
    if "@" in authority:
        raise BadTarget("a URL has no user and no password")
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise BadTarget("a host is a name, an IPv4 address, or an IPv6 address in []")
    host = _host(match["host"])
    if match["port"] is None:
        return host, None
    port = int(match["port"][:6])
    if port not in _PORT_NUMBERS or match["port"].startswith("0"):
        raise BadTarget(f"a port is 1 to 65535, not {match['port'][:20]}")
    return host, port


def _host(text: str) -> str:
    """A host in normal form; raises BadTarget."""
    if text.startswith("["):
        try:
            return str(IPv6Address(text[1:-1]))
        except ValueError:
            raise BadTarget(f"{text[:60]} is not an IPv6 address") from None
    if len(text) > _HOST_CHARS_MAX:
        raise BadTarget(f"a host has at most {_HOST_CHARS_MAX} characters")
    try:
        # Nameprep (RFC 3491): it turns full-width digits and dots into ASCII too, so
        # everything else is checked afterwards.
        host = text.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError:
        raise BadTarget(f"{text[:60]!r} is not the name of a host") from None
    labels = host.split(".")
    if not all(map(_LABEL.fullmatch, labels)) or len(host) > _HOST_CHARS_MAX:
        raise BadTarget(f"{text[:60]!r} is not the name of a host")
    if _NUMERIC.fullmatch(labels[-1]) and not isinstance(_address(host), IPv4Address):
        # 127.1, 0x7f000001, 2130706433, 0177.0.0.1: libraries disagree about them.
        raise BadTarget(f"{text[:60]!r} is not an IPv4 address of four decimal numbers")
    return host


def _address(text: str) -> _Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _kind(address: _Address) -> str:
    """The kind of a special address; '': an ordinary address of the internet."""
    if isinstance(address, IPv4Address):
        for network, kind in _SPECIAL_4.items():
            if address in network:
                return kind
        return ""
    for network_6, kind in _SPECIAL_6.items():
        if address in network_6:
            return kind
    return "" if address in _PUBLIC_6 else "reserved"


def _embedded(address: _Address) -> IPv4Address | None:
    """The IPv4 address that packets to this address go to in the end; None: none."""
    if isinstance(address, IPv4Address):
        return None
    if _kind(address) in {"IPv4-mapped", "NAT64"}:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.sixtofour
