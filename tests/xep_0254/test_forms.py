"""Data forms (XEP-0004) of nodes and subscriptions, both ways."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.queue.node_options import (
    NODE_FIELDS,
    SUBSCRIBE_FIELDS,
    Field,
    node_options,
    subscribe_options,
)
from qos.core.queue.requests import Refusal
from xep_0254.forms import Form, fields_of, parse_form, render_form
from xep_0254.namespaces import NODE_CONFIG, SUBSCRIBE_OPTIONS

DATA = "{jabber:x:data}"
VALIDATE = "{http://jabber.org/protocol/xdata-validate}"

#: Any text that XML can carry; a parser turns an unescaped carriage return into a line
#: feed.
texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
    | st.sampled_from("\t\n\r<>&'\"")
)


def submitted(*fields: tuple[str, list[str]], form_type: str = "") -> Form:
    values = {var: tuple(values) for var, values in fields}
    return Form(type="submit", form_type=form_type, values=values)


def node_fields(*fields: tuple[str, list[str]], form_type: str = "") -> dict[str, str]:
    form = submitted(*fields, form_type=form_type)
    return fields_of(form, definitions=NODE_FIELDS, form_type=NODE_CONFIG)


def options(*fields: tuple[str, list[str]], form_type: str = "") -> dict[str, str]:
    form = submitted(*fields, form_type=form_type)
    return fields_of(form, definitions=SUBSCRIBE_FIELDS, form_type=SUBSCRIBE_OPTIONS)


def refuse(fields: list[tuple[str, list[str]]], form_type: str, *, node: bool) -> str:
    with pytest.raises(Refusal) as caught:
        (node_fields if node else options)(*fields, form_type=form_type)
    refusal = caught.value
    assert (refusal.condition, refusal.type) == ("bad-request", "modify")
    return refusal.pubsub


def test_a_form_is_read_whole() -> None:
    """Fields without a name are text for people; values of one name belong together."""
    form = parse_form(
        ET.XML(
            "<x xmlns='jabber:x:data' type='submit'><title>t</title>"
            "<field var='FORM_TYPE' type='hidden'><value> u\n</value></field>"
            "<field type='fixed'><value>read me</value></field>"
            "<field var='a'><value>1</value><value/></field><field var='b'/>"
            "<field var='a'><value>2</value></field></x>"
        )
    )
    assert form == Form("submit", "u", {"a": ("1", "", "2"), "b": ()})


def test_a_form_of_another_kind_is_no_form() -> None:
    """A hostile or broken form gives defaults, not an exception."""
    assert parse_form(ET.XML("<x/>")) == Form("", "", {})


@pytest.mark.parametrize("form_type", ["", SUBSCRIBE_OPTIONS])
@pytest.mark.parametrize("var", ["queue_requests", "pubsub#queue_requests"])
def test_queue_requests_is_read_with_and_without_its_prefix(
    form_type: str, var: str
) -> None:
    """docs/design/queue.md §1.5: the XEP has both forms."""
    assert options((var, ["5"]), form_type=form_type) == {"pubsub#queue_requests": "5"}


def test_unknown_options_of_a_subscription_do_not_count() -> None:
    """Clients send `pubsub#deliver` and the like; XEP-0060 §6.3.7."""
    given = options(
        ("pubsub#deliver", ["1", "0"]), ("what", []), ("queue#batch", ["2"])
    )
    assert given == {"queue#batch": "2"}


def test_standard_fields_of_a_node_that_we_do_not_have_are_left_out() -> None:
    """Clients send back whole forms made for other services."""
    given = node_fields(
        ("pubsub#persist_items", ["1"]),
        ("pubsub#children", ["a", "b"]),
        ("pubsub#access_model", ["open"]),
        ("queue#ttl", []),
        form_type=NODE_CONFIG,
    )
    assert given == {"pubsub#access_model": "open", "queue#ttl": ""}


@pytest.mark.parametrize("node", [True, False])
@pytest.mark.parametrize("form_type", ["urn:other", f"{NODE_CONFIG} {NODE_CONFIG}"])
def test_a_form_for_something_else_is_refused(node: bool, form_type: str) -> None:
    assert refuse([], form_type, node=node) == "invalid-options"


@pytest.mark.parametrize(
    "fields",
    [
        [("queue#what", ["1"])],
        [("queue#events", ["message"])],
        [("ttl", ["1"])],
        [("persist_items", ["1"])],
        [("queue_requests", ["1"])],
        [("queue#ttl", ["1", "1"])],
    ],
)
def test_a_field_of_a_node_that_there_is_not_is_refused(
    fields: list[tuple[str, list[str]]],
) -> None:
    """A misspelt limit would be no limit."""
    assert refuse(fields, "", node=True) == "invalid-options"


@pytest.mark.parametrize(
    "fields",
    [
        [("pubsub#queue_requests", ["1", "2"])],
        [("pubsub#queue_requests", ["1"]), ("queue_requests", ["1"])],
    ],
)
def test_two_values_of_an_option_are_refused(
    fields: list[tuple[str, list[str]]],
) -> None:
    """docs/design/queue.md X5."""
    assert refuse(fields, "", node=False) == "invalid-options"


def by_var(xml: str) -> dict[str, ET.Element]:
    form = ET.XML(xml)
    assert form.tag == f"{DATA}x"
    return {each.get("var", ""): each for each in form}


def test_a_form_to_be_filled_in_says_what_its_fields_may_be() -> None:
    """A client shows it to people: labels, kinds, choices, ranges, required fields."""
    fields = by_var(render_form("form", SUBSCRIBE_OPTIONS, SUBSCRIBE_FIELDS, {}))
    assert list(fields) == ["FORM_TYPE", *(field.var for field in SUBSCRIBE_FIELDS)]
    hidden = fields["FORM_TYPE"]
    assert (hidden.get("type"), hidden.findtext(f"{DATA}value")) == (
        "hidden",
        SUBSCRIBE_OPTIONS,
    )
    requests = fields["pubsub#queue_requests"]
    assert requests.get("type") == "text-single"
    assert requests.get("label")
    assert requests.find(f"{DATA}required") is not None
    assert requests.find(f"{DATA}value") is None
    validate = requests.find(f"{VALIDATE}validate")
    assert validate is not None
    assert validate.get("datatype") == "xs:integer"
    limits = validate.find(f"{VALIDATE}range")
    assert limits is not None
    assert (limits.get("min"), limits.get("max")) == ("1", "1000")
    assert fields["queue#durable_locks"].get("type") == "boolean"
    events = fields["queue#events"]
    assert events.get("type") == "list-single"
    assert [each.findtext(f"{DATA}value") for each in events.iter(f"{DATA}option")] == [
        "message",
        "acknowledged",
    ]
    assert events.findtext(f"{DATA}value") == "message"
    assert events.find(f"{DATA}required") is None


def test_a_number_without_a_most_has_only_a_least() -> None:
    fields = by_var(
        render_form("form", "u", [Field("a", "A", "1.5", least=0.5, whole=False)], {})
    )
    validate = fields["a"][0]
    assert validate.get("datatype") == "xs:decimal"
    assert validate[0].attrib == {"min": "0.5"}


def test_a_submitted_form_is_short() -> None:
    """Only values that the service does not know already are sent."""
    xml = render_form("submit", NODE_CONFIG, NODE_FIELDS, {"x": "1", "queue#ttl": "5"})
    assert "label" not in xml
    assert "option" not in xml
    form = parse_form(ET.XML(xml))
    assert form == Form("submit", NODE_CONFIG, {"queue#ttl": ("5",), "x": ("1",)})


@pytest.mark.parametrize("kind", ["form", "result"])
def test_a_rendered_form_is_one_that_can_be_sent_back(kind: str) -> None:
    """Clients ask for the form, change a field and send all of it."""
    config = {"queue#ttl": "5", "pubsub#access_model": "whitelist"}
    assert kind in ("form", "result")
    xml = render_form(
        "form" if kind == "form" else "result", NODE_CONFIG, NODE_FIELDS, config
    )
    form = parse_form(ET.XML(xml))
    assert form.type == kind
    given = fields_of(form, definitions=NODE_FIELDS, form_type=NODE_CONFIG)
    assert node_options(given) == node_options(config)


def test_the_options_form_at_its_defaults_still_asks_for_queue_requests() -> None:
    """docs/design/queue.md X6: never a silent default."""
    xml = render_form("form", SUBSCRIBE_OPTIONS, SUBSCRIBE_FIELDS, {})
    form = parse_form(ET.XML(xml))
    given = fields_of(form, definitions=SUBSCRIBE_FIELDS, form_type=SUBSCRIBE_OPTIONS)
    assert given.pop("pubsub#queue_requests") == ""
    assert subscribe_options(given) is None


@given(st.dictionaries(texts.filter(bool), texts))
def test_any_values_come_back_as_they_were(values: dict[str, str]) -> None:
    """The owner of a dead-letter node chooses its name."""
    values.pop("FORM_TYPE", None)
    form = parse_form(ET.XML(render_form("submit", "u", (), values)))
    assert form.values == {var: (value,) for var, value in values.items()}
