"""The URL of the service, and pages of other sites."""

import pytest

from qos.core.rest.origins import (
    OWN_PATHS,
    base_of,
    is_cross_site,
    prefix_of,
    read_base,
    without_prefix,
)


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("https://queue.example.org", "https://queue.example.org"),
        ("https://queue.example.org/", "https://queue.example.org"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("HTTPS://[::1]:8443", "https://[::1]:8443"),
        ("https://a/mq", "https://a/mq"),
        ("https://a/mq/", "https://a/mq"),
        ("https://a/Team-1/m.q~/_", "https://a/Team-1/m.q~/_"),
    ],
)
def test_a_base_is_a_scheme_an_authority_and_maybe_a_path(text: str, base: str) -> None:
    assert read_base(text) == base


@pytest.mark.parametrize("first", sorted(OWN_PATHS))
def test_a_base_with_a_path_of_the_service_itself_is_refused(first: str) -> None:
    for path in (first, f"{first}/x"):
        with pytest.raises(ValueError, match="the service has paths of its own"):
            read_base(f"https://a/{path}")
    assert read_base(f"https://a/x/{first}")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/mq/queues/a", "/queues/a"),
        ("/mq/", "/"),
        ("/mq", "/"),
        # Some proxies leave the prefix out.
        ("/queues/a", "/queues/a"),
        ("/", "/"),
        ("/mqx/queues/a", "/mqx/queues/a"),
        ("/queues/mq/messages", "/queues/mq/messages"),
    ],
)
def test_a_request_may_have_the_prefix_or_not(path: str, found: str) -> None:
    assert without_prefix(path, "/mq") == found
    assert without_prefix(path, "") == path


def test_the_prefix_is_the_path_of_the_base() -> None:
    assert prefix_of("https://a/m/q") == "/m/q"
    assert prefix_of("https://a") == prefix_of("") == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "queue.example.org",
        "ftp://a",
        "https://",
        "https://a//",
        "https://a/b//c",
        "https://a/./b",
        "https://a/b/..",
        "https://a/b%2fc",
        "https://a/b c",
        "https://a/b?c",
        "https://a/b#c",
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
