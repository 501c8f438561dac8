"""The forms of HornetQ's requests.

The rows are those of docs/rest-checklist.md.
"""

import pytest

from qos.core.queue.requests import Refusal
from qos.core.rest.hornetq.forms import (
    PullForm,
    SubscriptionForm,
    create_query,
    node_name,
    pull_form,
    subscription_form,
)

MAKES = "application/hornetq.jms.queue+xml"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"priority": "9", "ttl": "5"}, {"priority": "9", "ttl": "5"}),
        ({"priority": "10", "x": "y"}, {"x": "y"}),
        ({"priority": "٣"}, {}),
        ({"ttl": "0", "durable": "false"}, {"durable": "false"}),
    ],
)
def test_parameters_are_read_as_hornetq_means_them(
    given: dict[str, str], kept: dict[str, str]
) -> None:
    assert create_query(given) == kept


def test_durable_is_true_or_false() -> None:
    with pytest.raises(Refusal, match="durable is true or false, not 'yes'"):
        create_query({"durable": "yes"})


@pytest.mark.parametrize(
    ("form", "wishes"),
    [
        ("", PullForm(True, "")),
        ("autoAck=false", PullForm(False, "")),
        ("autoAck=true&selector=n+%3E+5", PullForm(True, "n > 5")),
        ("selector=", PullForm(True, "")),
    ],
)
def test_a_form_makes_a_consumer(form: str, wishes: PullForm) -> None:
    assert pull_form(form) == wishes


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("autoAck", "name=value is expected"),
        ("a=b", "each of autoAck, selector once"),
        ("autoAck=true&autoAck=true", "each of autoAck, selector once"),
        ("autoAck=1", "autoAck is true or false, not '1'"),
        ("selector=n+%3E", "queue#selector: "),
    ],
)
def test_a_form_that_is_none_is_refused(form: str, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        pull_form(form)


@pytest.mark.parametrize(
    "document",
    [
        b"<queue name='orders'/>",
        b"<queue name=' orders ' xmlns='urn:hornetq'><durable>true</durable></queue>",
    ],
)
def test_a_document_names_a_queue(document: bytes) -> None:
    assert node_name(document, f"{MAKES}; charset=utf-8", "queue") == "orders"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (b"<topic name='x'/>", "<queue name='NAME'/> is expected"),
        (b"<queue name=' '/>", "<queue name='NAME'/> is expected"),
        (b"<queue name='x'><selector string='a=1'/></queue>", "a selector belongs"),
        (b"<queue", "it is not well-formed"),
        (b"<!DOCTYPE queue><queue name='x'/>", "it has a DTD"),
        (b"<queue name='x'/>" + b" " * 16_384, "more than 16384 bytes"),
    ],
)
def test_a_document_that_names_none_is_refused(document: bytes, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        node_name(document, MAKES, "queue")


def test_a_document_of_another_kind_is_unsupported() -> None:
    with pytest.raises(Refusal, match="is expected") as refused:
        node_name(b"<queue name='x'/>", "", "queue")
    assert refused.value.condition == "unsupported-media-type"


@pytest.mark.parametrize(
    ("form", "wishes"),
    [
        ("", SubscriptionForm(True, "", False, "", None, True)),
        (
            "durable=true&autoAck=false&name=n&selector=a%3D1&idle-timeout=1500",
            SubscriptionForm(False, "a=1", True, "n", 1.5, False),
        ),
        (
            "durable=true&delete-when-idle=true",
            SubscriptionForm(True, "", True, "", None, True),
        ),
    ],
)
def test_a_form_makes_a_subscription(form: str, wishes: SubscriptionForm) -> None:
    """H13."""
    assert subscription_form(form) == wishes


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("idle-timeout=0", "idle-timeout: milliseconds are expected, not '0'"),
        ("idle-timeout=1.5", "idle-timeout: milliseconds"),
        ("name=" + "x" * 257, "name: at most 256"),
        # It is a part of the name of a queue, which XMPP clients are shown.
        ("name=a%00", "name: at most 256 printable"),
        ("durable=1", "durable is true or false"),
        ("x=y", "each of autoAck, delete-when-idle, durable"),
    ],
)
def test_a_form_that_makes_no_subscription_is_refused(form: str, says: str) -> None:
    """H13."""
    with pytest.raises(Refusal, match=says):
        subscription_form(form)
