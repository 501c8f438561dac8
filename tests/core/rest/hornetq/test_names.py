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
        *("msg-properties", "session-token", "x-api-key", "x.secret", "foo!bar"),
        "x" * 256,
    ],
)
def test_what_is_not_of_the_message_is_not_kept(name: str) -> None:
    """A secret of the sender would be read by all consumers, so no option allows it."""
    assert properties_of({name: "x"}) == {}
    with pytest.raises(ValueError, match=r"header|consumers"):
        check_header(name)


@pytest.mark.parametrize(
    "name",
    [
        *("x-authorization", "x-passwd", "x-user", "cf-connecting-ip", "foo-bar"),
        *("x-amzn-trace-id", "ocp-apim-subscription-key", "x-client-cert", "n"),
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


def test_a_name_that_is_too_long_is_not_kept() -> None:
    assert properties_of({f"content-{'x' * 256}": "x"}) == {}


def test_headers_about_the_content_travel() -> None:
    given: Properties = {
        "http_content$disposition": "inline",
        "http_foo$bar": "x",
        "http_content$length": "9",
        "http_content$security$policy": "default-src *",
        "http_content$a b": "x",
        "http_content$n": 5,
        "http_content$umlaut": "ü",
    }
    assert headers_of(given) == {"content-disposition": "inline"}
