"""Refusals of a service: XEP-0254's listings, and errors that stay small."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.queue.node_options import SUBSCRIBE_FIELDS
from qos.core.queue.requests import (
    Refusal,
)
from qos.errors import ErrorType
from xep_0254.elements import bad_request, unsupported
from xep_0254.forms import parse_form
from xep_0254.service_stanza import render_refusal

PUBSUB = "http://jabber.org/protocol/pubsub"
OWNER, ERRORS = f"{PUBSUB}#owner", f"{PUBSUB}#errors"
STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"
QUEUEING, QUEUEING_OLD = "urn:xmpp:pubsub:queueing:0", "urn:xmpp:queueing:0"
DATA = "{jabber:x:data}"
NODE, ID = "a290fjsl29j19kjb", "ae890ac52d0df67ed7cfd51b644e901"
BEE, SERVICE = "workerbee237@shakespeare.lit", "workflows.shakespeare.lit"


def request(
    content: str, iq_id: str = "delete1", kind: str = "set", of: str = PUBSUB
) -> ET.Element:
    return ET.XML(
        f"<iq xmlns='jabber:client' from='{BEE}/foo' id='{iq_id}' to='{SERVICE}' type='{kind}'>"
        f"<pubsub xmlns='{of}' xmlns:q='xmpp-qos:queue:0'>{content}</pubsub></iq>"
    )


def read(text: str, stream: str = "jabber:client") -> ET.Element:
    """The stanza as the receiver's parser sees it, in the namespace of the stream."""
    iq = ET.XML(f"<stream xmlns='{stream}'>{text}</stream>")[0]
    assert iq.tag == f"{{{stream}}}iq"
    return iq


def infoset(element: ET.Element) -> object:
    """The XML without the listings' white space and without the texts of errors."""
    children = [infoset(each) for each in element if each.tag != f"{{{STANZAS}}}text"]
    return element.tag, element.attrib, (element.text or "").strip(), children


def same(text: str, listing: str) -> bool:
    return infoset(read(text)) == infoset(read(listing))


def refusal(condition: str, type_: ErrorType) -> Refusal:
    return Refusal("because", condition=condition, type=type_)


# -- refusals: the listings ------------------------------------------------


def test_a_subscription_without_options_is_answered_with_the_form() -> None:
    """Listing 1: MUST, with the field `pubsub#queue_requests`, required."""
    asked = request(f"<subscribe jid='{BEE}' node='{NODE}'/>", "sub1")
    error = Refusal(
        "options are needed",
        condition="not-acceptable",
        type="modify",
        pubsub="configuration-required",
        form=True,
    )
    iq = read(render_refusal(asked, error, sender=SERVICE))
    x = iq.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}options/{DATA}x")
    assert x is not None
    form = parse_form(x)
    assert (form.type, form.form_type) == ("form", f"{PUBSUB}#subscribe_options")
    assert list(form.values) == [field.var for field in SUBSCRIBE_FIELDS]
    (field,) = (each for each in x if each.get("var") == "pubsub#queue_requests")
    assert field.get("type") == "text-single"
    assert field.find(f"{DATA}required") is not None
    # Without its other fields the form equals the listing, except label and limits.
    for each in list(x):
        if each.get("var") not in ("FORM_TYPE", "pubsub#queue_requests"):
            x.remove(each)
    field.attrib.pop("label")
    field.remove(field[0])
    assert infoset(iq) == infoset(
        read(
            f"""
<iq from='{SERVICE}' id='sub1' to='{BEE}/foo' type='error'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <subscribe jid='{BEE}' node='{NODE}'/>
    <options jid='{BEE}' node='{NODE}'>
      <x xmlns='jabber:x:data' type='form'>
        <field var='FORM_TYPE' type='hidden'>
          <value>http://jabber.org/protocol/pubsub#subscribe_options</value>
        </field>
        <field type='text-single' var='pubsub#queue_requests'>
          <required/>
        </field>
      </x>
    </options>
  </pubsub>
  <error type='modify'>
    <not-acceptable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>
    <configuration-required xmlns='http://jabber.org/protocol/pubsub#errors'/>
  </error>
</iq>"""
        )
    )


RETRACT = f"<retract node='{NODE}'><item id='{ID}'/></retract>"
UNLOCK = f"<unlock xmlns='{QUEUEING}' node='{NODE}'><item id='{ID}'/></unlock>"


@pytest.mark.parametrize("kind", ["get", "set"])
@pytest.mark.parametrize(
    "asked", [RETRACT, UNLOCK, UNLOCK.replace(QUEUEING, QUEUEING_OLD)]
)
@pytest.mark.parametrize(
    ("type_", "condition"),
    [
        ("cancel", "item-not-found"),
        ("auth", "forbidden"),
        ("cancel", "conflict"),
        ("wait", "unexpected-request"),
    ],
)
def test_a_settlement_is_refused_as_in_the_text(
    kind: str, asked: str, type_: ErrorType, condition: str
) -> None:
    """Listings 8, 9 and 12 to 15, but all of type error: docs/design/queue.md §1.2."""
    text = render_refusal(
        request(asked, kind=kind), refusal(condition, type_), sender=SERVICE
    )
    assert same(
        text,
        f"""
<iq from='{SERVICE}' id='delete1' to='{BEE}/foo' type='error'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>{asked}</pubsub>
  <error type='{type_}'><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>
</iq>""",
    )


def test_an_error_says_what_it_is_about_without_what_was_in_it() -> None:
    """It has ids and tokens, so that a worker finds the item, but no outcomes or
    payloads.
    """
    asked = (
        f"<unlock xmlns='{QUEUEING}' node='{NODE}' x='y'><what/>"
        f"<item xmlns='{PUBSUB}' id='{ID}' q:token='t'><q:rejected>r</q:rejected></item></unlock>"
    )
    text = render_refusal(request(asked), refusal("conflict", "cancel"))
    assert same(
        text,
        f"""
<iq id='delete1' to='{BEE}/foo' type='error'>
  <pubsub xmlns='{PUBSUB}'>
    <unlock xmlns='{QUEUEING}' node='{NODE}'>
      <item xmlns:q='xmpp-qos:queue:0' id='{ID}' q:token='t'/>
    </unlock>
  </pubsub>
  <error type='cancel'><conflict xmlns='{STANZAS}'/></error>
</iq>""",
    )


def test_options_are_echoed_without_their_form() -> None:
    asked = f"<options node='{NODE}' jid='{BEE}' subid='s'><x xmlns='jabber:x:data'/></options>"
    text = render_refusal(request(asked), bad_request("no", "invalid-options"))
    assert same(
        text,
        f"""
<iq id='delete1' to='{BEE}/foo' type='error'>
  <pubsub xmlns='{PUBSUB}'><options node='{NODE}' jid='{BEE}' subid='s'/></pubsub>
  <error type='modify'><bad-request xmlns='{STANZAS}'/><invalid-options xmlns='{ERRORS}'/></error>
</iq>""",
    )


@pytest.mark.parametrize(
    "asked",
    [
        f"<publish node='{NODE}'><item><secret xmlns='u'/></item></publish>",
        "<unknown/>",
        "",
        f"<retract node='{'n' * 5000}'><item id='{ID}'/></retract>",
        f"<retract node='{NODE}'>{f'<item id={chr(34)}{chr(39) * 1000}{chr(34)}/>' * 5}</retract>",
        f"<retract node='{NODE}'>{'<item/>' * 3000}</retract>",
    ],
)
def test_what_is_large_or_no_settlement_is_not_echoed(asked: str) -> None:
    """The answer to a small request must not exceed the server's limit."""
    text = render_refusal(request(asked), unsupported("x<'"))
    assert same(
        text,
        f"""
<iq id='delete1' to='{BEE}/foo' type='error'>
  <error type='cancel'>
    <feature-not-implemented xmlns='{STANZAS}'/>
    <unsupported xmlns='{ERRORS}' feature='x&lt;&apos;'/>
  </error>
</iq>""",
    )


def test_an_error_of_an_owner_is_answered_without_an_echo() -> None:
    text = render_refusal(
        request("<purge node='n'/>", of=OWNER), refusal("forbidden", "auth")
    )
    assert len(read(text)) == 1


def test_an_error_names_who_says_it() -> None:
    """RFC 6120 §8.3.1: a server that answers for an absent service does not."""
    error = refusal("forbidden", "auth")
    asked = request("<purge node='n'/>", of=OWNER)
    (said,) = read(render_refusal(asked, error, sender=SERVICE, by="q'"))
    assert said.get("by") == "q'"
    (said,) = read(render_refusal(asked, error, sender=SERVICE))
    assert said.get("by") is None


def test_the_form_is_there_even_if_the_request_is_not() -> None:
    """The form is a MUST, whatever the reason of the error."""
    error = refusal("not-acceptable", "modify")
    error.form = True
    iq = read(render_refusal(request("<options/>"), error))
    assert iq.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}options/{DATA}x") is not None


@given(st.text())
def test_the_text_of_an_error_is_said_whatever_is_in_it(problem: str) -> None:
    """It may quote a stranger's text, and must not break the stream."""
    iq = read(render_refusal(request(""), Refusal(problem, condition="c", type="wait")))
    said = iq.findtext(f"{{jabber:client}}error/{{{STANZAS}}}text")
    assert said is not None
    assert len(said) <= 10 * 1000 + 2
    if problem.isprintable():
        assert said == problem[:1000]
