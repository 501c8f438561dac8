"""HornetQ's names: of queues, and of headers as properties.

docs/rest-checklist.md H15 and H16.
"""

import pytest

from qos.core.queue.properties import Properties
from qos.core.queue.requests import Refusal
from qos.core.rest.hornetq.names import (
    check_header,
    headers_of,
    plain_name,
    properties_of,
)


def test_a_queue_of_jms_is_the_queue() -> None:
    assert plain_name("jms.queue.orders", "queue") == "orders"
    assert plain_name("jms.topic.orders", "queue") == "jms.topic.orders"
    assert plain_name("jms.queue.", "queue") == "jms.queue."
    assert plain_name("orders", "queue") == "orders"


def test_a_header_is_a_property() -> None:
    given = {"foo-bar": " x", "content-type": "a/b", "link": "</y>", "empty": ""}
    assert properties_of(given, {"foo-bar", "empty"}) == {
        "http_foo$bar": "x",
        "http_content$type": "a/b",
        "http_link": "</y>",
    }


@pytest.mark.parametrize(
    "name",
    [
        *("authorization", "cookie", "host", "accept-language", "sec-fetch-site"),
        *("x-forwarded-for", "content-length", "content-security-policy"),
        *("content-location", "content-range"),
        *("msg-properties", "session-token", "x-api-key", "x.secret", "foo!bar"),
        "x" * 256,
    ],
)
def test_what_is_not_of_the_message_is_not_kept(name: str) -> None:
    """A secret of the sender would be read by all consumers, so no option allows it."""
    assert properties_of({name: "x"}) == {}
    with pytest.raises(ValueError, match=r"header|consumers|answer"):
        check_header(name)


@pytest.mark.parametrize(
    "name",
    [
        *("x-authorization", "x-passwd", "x-user", "cf-connecting-ip", "foo-bar"),
        *("x-amzn-trace-id", "ocp-apim-subscription-key", "x-client-cert", "n"),
        *("content-disposition", "content-md5", "content-n"),
    ],
)
def test_a_header_that_nobody_has_named_is_not_kept(name: str) -> None:
    """No list of what is secret would ever be complete."""
    assert properties_of({name: "x"}) == {}
    assert properties_of({name: "x"}, {check_header(name.title())}) != {}


@pytest.mark.parametrize("value", ["x" * 1025, "ü", "a\nb"])
def test_a_value_that_cannot_be_kept_is_refused(value: str) -> None:
    with pytest.raises(Refusal, match="foo-bar: at most 1024"):
        properties_of({"foo-bar": value}, {"foo-bar"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content-type", '</evil>; rel="acknowledgement"'),
        ("content-encoding", "http://evil/"),
        ("content-language", "<x>"),
        ("content-disposition", '</evil>; rel="acknowledgement"'),
        ("content-disposition", 'inline; x="</evil>; rel=acknowledgement"'),
        ("content-disposition", "http://evil/"),
        ("content-disposition", "/evil"),
        ("content-disposition", "inline; x=//evil"),
        ("content-disposition", 'inline; x="\\""'),
    ],
)
def test_a_header_about_the_content_is_no_link_and_no_url(
    name: str, value: str
) -> None:
    """A client could send its password there."""
    with pytest.raises(Refusal, match=f"{name}: .* expected"):
        properties_of({name: value}, {"content-disposition"})
    published_by_xmpp: Properties = {f"http_{name.replace('-', '$')}": value}
    assert headers_of(published_by_xmpp, {"content-disposition", name}) == {}


@pytest.mark.parametrize(
    "value",
    [
        *("inline", "attachment; filename=a.txt", 'attachment; filename="a b.txt"'),
        "attachment; filename*=UTF-8''%e2%82%ac; x=y",
    ],
)
def test_a_header_about_the_content_that_is_named_comes_back(value: str) -> None:
    """Nobody has to name those that are always kept, and another does not come back."""
    allowed = {"content-disposition", "foo-bar"}
    given = {"content-disposition": value, "foo-bar": "x", "content-n": "x"}
    kept = properties_of(given, allowed)
    assert kept == {"http_content$disposition": value, "http_foo$bar": "x"}
    assert headers_of(kept, allowed) == {"content-disposition": value}
    assert headers_of(kept, {"foo-bar"}) == {}


def test_a_property_that_is_no_text_does_not_come_back() -> None:
    """By XMPP it may be a number."""
    assert headers_of({"http_content$n": 5}, {"content-n"}) == {}
