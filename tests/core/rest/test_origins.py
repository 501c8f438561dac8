"""The URL of the service, and pages of other sites."""

import pytest

from qos.core.rest.origins import base_of, is_cross_site, read_base


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("https://queue.example.org", "https://queue.example.org"),
        ("https://queue.example.org/", "https://queue.example.org"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("HTTPS://[::1]:8443", "https://[::1]:8443"),
    ],
)
def test_a_base_is_a_scheme_and_an_authority(text: str, base: str) -> None:
    assert read_base(text) == base


@pytest.mark.parametrize(
    "text",
    [
        "",
        "queue.example.org",
        "ftp://a",
        "https://",
        "https://a/b",
        "https://a?b",
        "https://a:0",
        "https://a:99999",
        "https://[a",
        "https://user@a",
        "https://a b",
    ],
)
def test_what_is_no_base_is_refused_with_what_to_give(text: str) -> None:
    with pytest.raises(ValueError, match="such as https://queue"):
        read_base(text)


def test_a_host_that_cannot_be_in_a_link_is_none() -> None:
    assert base_of("http", "a:1") == "http://a:1"
    assert base_of("http", 'a"') == ""


@pytest.mark.parametrize(
    ("origin", "bases", "cross"),
    [
        ("http://a", ("http://a",), False),
        ("http://A", ("http://a:80",), False),
        ("https://a:443", ("https://a",), False),
        ("http://a", ("https://a",), True),
        ("http://a:81", ("http://a",), True),
        ("https://b", ("http://a", "https://b"), False),
        # A proxy with TLS.
        ("https://a", ("http://a",), False),
        ("https://a:8443", ("http://a:8443",), False),
        ("https://a:8443", ("http://a",), True),
        ("https://evil", ("http://a", ""), True),
        ("null", ("http://a",), True),
        ("null", ("",), True),
        ("", ("http://a",), True),
        ("http://a:x", ("http://a",), True),
        ("http://[a", ("http://a",), True),
        ("http://a, http://evil", ("http://a",), True),
    ],
)
def test_a_page_is_of_this_site_if_its_origin_is(
    origin: str, bases: tuple[str, ...], cross: bool
) -> None:
    assert is_cross_site({"origin": origin}, *bases) is cross


def test_what_a_browser_says_of_the_site_counts_first() -> None:
    assert is_cross_site(
        {"sec-fetch-site": "same-site", "origin": "http://a"}, "http://a"
    )
    assert not is_cross_site({"sec-fetch-site": "same-origin"}, "http://a")
    assert not is_cross_site({}, "http://a")
