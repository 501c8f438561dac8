"""SSRF: what may be pushed to. Every row is a form that has fooled somebody's filter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.rest.push_targets import URL_CHARS_MAX, BadTarget, PushRules, Target

NONE = PushRules()


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("https://example.org", "https://example.org/"),
        ("HTTPS://Example.ORG./a/b?c=d", "https://example.org/a/b?c=d"),
        ("https://example.org:443/", "https://example.org/"),
        ("https://example.org:8443/a;b=c", "https://example.org:8443/a;b=c"),
        ("https://bücher.example/x", "https://xn--bcher-kva.example/x"),
        ("https://93.184.215.14/", "https://93.184.215.14/"),
        ("https://\uff19\uff13.184.215.14/", "https://93.184.215.14/"),
        ("https://[2606:2800:0:0::1]:9000", "https://[2606:2800::1]:9000/"),
        ("https://a_b.example.org?x", "https://a_b.example.org/?x"),
        ("https://example.org:80/", "https://example.org:80/"),
    ],
)
def test_a_public_url_is_a_target_in_its_normal_form(url: str, normal: str) -> None:
    target = NONE.target(url)
    assert target.url == normal
    assert NONE.target(normal) == target


def test_a_target_has_the_parts_to_connect_by() -> None:
    target = NONE.target("https://[2606:2800::1]:9000/a")
    url = "https://[2606:2800::1]:9000/a"
    assert target == Target(url, "https", "2606:2800::1", 9000)
    assert NONE.target("https://example.org").port == 443


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "//example.org/",
        "ftp://example.org/",
        "file:///etc/passwd",
        "gopher://example.org/",
        "https:/example.org",
        "https:///a",
        "https://example.org/#a",
        "https://user@example.org/",
        "https://user:password@example.org/",
        "https://example.org@127.0.0.1/",
        "https://127.0.0.1\\@example.org/",
        "https://example.org\\a/",
        "https://example.org/a\\b",
        "https://example.org/a b",
        "https://example.org/a\r\nHost: b",
        "https://example.org/ü",
        "https://exa mple.org/",
        "https://example.org\t/",
        "https://%31%32%37.0.0.1/",
        "https://-a.example/",
        "https://a..example/",
        "https://.example/",
        "https://" + "a" * 64 + ".example/",
        "https://" + "a." * 127 + "example/",
        "https://" + "ü." * 60 + "example/",
        "https://example.org:0/",
        "https://example.org:65536/",
        "https://example.org:0443/",
        "https://example.org:99999999999999999999/",
        "https://example.org:/",
        "https://example.org:a/",
        "https://[::1/",
        "https://[fe80::1%25eth0]/",
        "https://[1:2]/",
        "https://::1/",
        "https://example.org/" + "a" * URL_CHARS_MAX,
    ],
)
def test_what_is_no_plain_url_is_no_target(url: str) -> None:
    with pytest.raises(BadTarget):
        NONE.target(url)


@pytest.mark.parametrize(
    "host",
    [
        *("127.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1"),
        *("127.0.0.1.1", "127.0.0.0x1", "a.1", "1.2.3", "0x", "256.1.1.1"),
        *("127\u30021", "\uff11\uff12\uff17.1"),
    ],
)
def test_odd_numeric_hosts_are_refused_even_if_listed(host: str) -> None:
    """Some resolvers take them for addresses, and others for names."""
    with pytest.raises(BadTarget, match="four decimal numbers"):
        NONE.target(f"https://{host}/")
    with pytest.raises(ValueError, match="four decimal numbers"):
        PushRules.of([host])


SPECIAL = {
    "0.0.0.0": "unspecified",  # noqa: S104 - an address to refuse
    "0.1.2.3": "unspecified",
    "10.0.0.1": "private",
    "100.64.0.1": "private",
    "100.127.255.255": "private",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "169.254.169.254": "link-local",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.192": "reserved",
    "192.0.2.1": "reserved",
    "192.88.99.1": "reserved",
    "192.168.1.1": "private",
    "198.18.0.1": "reserved",
    "198.51.100.1": "reserved",
    "203.0.113.1": "reserved",
    "224.0.0.1": "multicast",
    "239.255.255.250": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::": "unspecified",
    "::1": "loopback",
    "::2": "reserved",
    "::7f00:1": "reserved",
    "::ffff:127.0.0.1": "IPv4-mapped",
    "::ffff:93.184.215.14": "IPv4-mapped",
    "64:ff9b::a9fe:a9fe": "NAT64",
    "64:ff9b::5db8:d70e": "NAT64",
    "64:ff9b:1::1": "NAT64",
    "100::1": "reserved",
    "2001::1": "Teredo",
    "2001:10::1": "reserved",
    "2001:db8::1": "reserved",
    "2002:7f00:1::": "6to4",
    "3fff::1": "reserved",
    "5f00::1": "reserved",
    "fc00::1": "private",
    "fd00:ec2::254": "private",
    "fe80::1": "link-local",
    "fec0::1": "private",
    "ff02::1": "multicast",
}
PUBLIC: tuple[str, ...] = (
    "93.184.215.14",
    "100.63.255.255",
    "100.128.0.1",
    "172.32.0.1",
)
PUBLIC += ("198.20.0.1", "223.255.255.255", "2606:2800::1", "2a00:1450::1")


@pytest.mark.parametrize(("address", "kind"), SPECIAL.items())
def test_special_addresses_are_refused_as_a_host_and_after_dns(
    address: str, kind: str
) -> None:
    shown = f"[{address}]" if ":" in address else address
    with pytest.raises(BadTarget, match=f"has an address that is {kind}"):
        NONE.target(f"https://{shown}/")
    why = NONE.why_not("example.org", 443, address)
    assert why == f"example.org has an address that is {kind}"


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_internet_are_allowed(address: str) -> None:
    shown = f"[{address}]" if ":" in address else address
    assert NONE.target(f"https://{shown}/").host == address
    assert NONE.why_not("example.org", 443, address) == ""


def test_an_address_with_a_zone_is_link_local_and_nonsense_is_refused() -> None:
    assert "link-local" in NONE.why_not("example.org", 443, "fe80::1%eth0")
    assert "that is none" in NONE.why_not("example.org", 443, "127.1")


@given(st.ip_addresses(v=6) | st.ip_addresses(v=4))
def test_nothing_is_allowed_that_python_knows_as_special(address: object) -> None:
    """Our table is not narrower than the one of the standard library."""
    special = any(
        getattr(address, name)
        for name in (
            *("is_loopback", "is_link_local", "is_multicast", "is_private"),
            *("is_reserved", "is_unspecified"),
        )
    )
    assert not special or NONE.why_not("example.org", 443, str(address))


@pytest.mark.parametrize("port", [22, 25, 444, 993])
def test_low_ports_need_a_listed_host(port: int) -> None:
    url = f"https://example.org:{port}/"
    with pytest.raises(BadTarget, match="port cannot be"):
        NONE.target(url)
    assert PushRules.of(["example.org"]).target(url).port == port


def test_http_needs_a_listed_host() -> None:
    with pytest.raises(BadTarget, match="has to be https"):
        NONE.target("http://example.org/")
    assert PushRules.of(["Example.org."]).target("http://example.org/").port == 80


def test_a_listed_host_is_allowed_with_its_port_and_any_address() -> None:
    rules = PushRules.of(["hook.local:8080", " [::1]:9000 ", "127.0.0.1"])
    assert rules.target("http://hook.local:8080/a").host == "hook.local"
    assert rules.why_not("hook.local", 8080, "10.0.0.1") == ""
    assert "private" in rules.why_not("hook.local", 8081, "10.0.0.1")
    with pytest.raises(BadTarget):
        rules.target("http://hook.local/")
    assert rules.target("http://[0::1]:9000/").host == "::1"
    assert rules.target("http://127.0.0.1:7/").port == 7
    # An address that is listed as a host is no permission for names that resolve to it.
    assert "loopback" in rules.why_not("example.org", 443, "127.0.0.1")


def test_a_listed_network_is_allowed_for_names_and_as_a_host() -> None:
    rules = PushRules.of(["10.1.0.0/16", "fd00::/8"])
    assert rules.why_not("example.org", 443, "10.1.2.3") == ""
    assert rules.why_not("example.org", 443, "fd00::1") == ""
    assert rules.why_not("example.org", 443, "10.2.0.1") != ""
    assert rules.target("http://10.1.2.3:8080/").port == 8080
    with pytest.raises(BadTarget):
        rules.target("http://example.org/")


def test_an_embedded_address_has_to_be_allowed_too() -> None:
    """With NAT64 every IPv4 host has such an address, and so have private ones."""
    rules = PushRules.of(["64:ff9b::/96", "2002::/16", "::ffff:0:0/96"])
    for prefix in ("64:ff9b::", "::ffff:"):
        assert rules.why_not("example.org", 443, f"{prefix}93.184.215.14") == ""
        assert "loopback" in rules.why_not("example.org", 443, f"{prefix}127.0.0.1")
    assert "private" in rules.why_not("example.org", 443, "2002:a00:1::1")
    both = PushRules.of(["64:ff9b::/96", "10.0.0.0/8"])
    assert both.why_not("example.org", 443, "64:ff9b::10.0.0.1") == ""


@pytest.mark.parametrize("entry", ["", "a b", "10.0.0.1/8", "x/8", "a:b", "u@a", "::1"])
def test_an_entry_that_is_no_exception_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match="is not HOST, HOST:PORT or NETWORK/BITS"):
        PushRules.of([entry])
