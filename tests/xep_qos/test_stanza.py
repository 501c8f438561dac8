"""Reading from and writing to the wire, as pure functions.

The proto-XEP's own examples are not well-formed; `EXAMPLE_…` are well-formed versions.
"""

from dataclasses import replace
from typing import Literal
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qos.core.message.effects import Answer, Transmit
from qos.core.message.model import MARKS_NAMESPACE, NAMESPACES, Level, Outgoing, Route
from qos.core.message.receiver_table import Request
from qos.core.message.sender_table import Reply
from qos.core.strings import ID_CHARS_MAX
from qos.errors import ErrorType, LocalProtocolError, RemoteProtocolError
from xep_qos import stanza
from xep_qos.content import message_with_body

QOS = NAMESPACES[0]
CLIENT = "jabber:client"
COMPONENT = "jabber:component:accept"
STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"
SENDER, HOLD = f"{{{MARKS_NAMESPACE}}}sender", f"{{{MARKS_NAMESPACE}}}hold"
ENTRANCE, COUNTER = "entrance@example.org/34892374", "counter@example.org/938089023"
BODY = "<message xmlns='jabber:client'><body>b</body></message>"

# The proto-XEP, Assured service; with <log/> closed by its own name.
EXAMPLE_LOG = (
    "<log xmlns='urn:xmpp:eventlog' timestamp='2015-11-12T09:07:12Z' id='Entered'>"
    "<message>Entered.</message></log>"
)
EXAMPLE_ASSURED = f"""
    <iq id='123' type='set' xmlns='jabber:client'
        from='{ENTRANCE}'
        to='{COUNTER}'>
       <qos:assured xmlns:qos='urn:xmpp:qos' msgId='984232334'>
          <message>{EXAMPLE_LOG}</message>
       </qos:assured>
    </iq>"""
EXAMPLE_RECEIVED = f"""
    <iq id='123' type='result' xmlns='jabber:client'
        from='{COUNTER}'
        to='{ENTRANCE}'>
       <received msgId='984232334'/>
    </iq>"""
EXAMPLE_DELIVER = f"""
    <iq id='124' type='set' xmlns='jabber:client'
        from='{ENTRANCE}'
        to='{COUNTER}'>
       <qos:deliver xmlns:qos='urn:xmpp:qos' msgId='984232334'/>
    </iq>"""
EXAMPLE_RESULT = f"""
    <iq id='124' type='result' xmlns='jabber:client'
        from='{COUNTER}'
        to='{ENTRANCE}'/>"""
EXAMPLE_ACKNOWLEDGED = """
    <iq id='123' type='set' xmlns='jabber:client'
        from='controller@example.org/34892374'
        to='lightswitch@example.org/938089023'>
       <qos:acknowledged xmlns:qos='urn:xmpp:qos'>
          <message>
             <set xmlns='urn:xmpp:iot:control'>
                <int name='Light' value='80'/>
             </set>
          </message>
       </qos:acknowledged>
    </iq>"""

CHARACTERS = st.characters(
    exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"
)
HOSTILE = st.text(
    st.one_of(st.sampled_from("'\"<>&\t\n\r{}/@ ]\x7f"), CHARACTERS),
    min_size=1,
    max_size=20,
)
NAMESPACE = st.sampled_from(NAMESPACES)

At = Literal["offer", "deliver"]


def parse(xml: str) -> ET.Element:
    return ET.fromstring(xml)  # noqa: S314


def on_stream(iq: str, xmlns: str = CLIENT) -> ET.Element:
    """An iq of ours as the peer's parser sees it, inside a stream."""
    return parse(f"<stream xmlns='{xmlns}'>{iq}</stream>")[0]


def request_iq(content: str, *, xmlns: str = CLIENT, **attributes: str) -> ET.Element:
    wanted = {"id": "i1", "from": ENTRANCE, "to": COUNTER} | {
        key.rstrip("_"): value for key, value in attributes.items()
    }
    iq = parse(f"<iq xmlns='{xmlns}' type='set'>{content}</iq>")
    iq.attrib.update(wanted)
    return iq


def read(iq: ET.Element) -> Request:
    element = stanza.request_element(iq)
    assert element is not None
    return stanza.parse_request(iq, element)


def read_text(content: str, *, xmlns: str = CLIENT) -> Request:
    return read(request_iq(content, xmlns=xmlns))


def reply_iq(content: str, kind: str = "result", xmlns: str = CLIENT) -> Reply:
    return stanza.parse_reply(
        parse(
            f"<iq xmlns='{xmlns}' type='{kind}' id='i1' from='{COUNTER}'>{content}</iq>"
        )
    )


def outgoing(**changes: object) -> Outgoing:
    record = Outgoing(
        msg_id="m1",
        seq=1,
        to=COUNTER,
        level=Level.ASSURED,
        payload=BODY,
        size=len(BODY),
        created_at=0.0,
        offer_id="o1",
        deliver_id="d1",
    )
    return replace(record, **changes)  # type: ignore[arg-type]  # checked at run time


def write(
    record: Outgoing,
    step: At = "offer",
    *,
    namespace: str = QOS,
    store_id: str = "s1",
    sender: str = "",
) -> str:
    transmit = Transmit(step, record, Route(COUNTER, namespace))
    return stanza.render_request(transmit, store_id=store_id, sender=sender)


def answered(answer: Answer, *, msg_id: str = "m1", sender: str = "") -> str:
    request = replace(read_text(f"<assured xmlns='{QOS}' msgId='x'>{BODY}</assured>"))
    return stanza.render_answer(replace(request, msg_id=msg_id), answer, sender=sender)


def without_blanks(element: ET.Element) -> ET.Element:
    for node in element.iter():
        node.text = (node.text or "").strip() or None
        node.tail = None
    return element


def same(one: ET.Element, other: ET.Element) -> bool:
    """Whether two elements mean the same, as XML."""
    pair = [
        [(node.tag, node.attrib, node.text) for node in without_blanks(element).iter()]
        for element in (one, other)
    ]
    return pair[0] == pair[1]


# -- requests, well-formed -------------------------------------------------


def test_the_texts_assured_example_is_read() -> None:
    """The first stanza that every implementer of the proto-XEP will send."""
    request = read(parse(EXAMPLE_ASSURED))
    payload = f"<message xmlns='jabber:client'>{EXAMPLE_LOG}</message>"
    assert request == Request(
        kind="assured",
        iq_id="123",
        source=ENTRANCE,
        to=COUNTER,
        namespace=QOS,
        msg_id="984232334",
        payload=payload,
        size=len(payload),
    )


def test_the_texts_deliver_example_is_read() -> None:
    """The second step of the same."""
    assert read(parse(EXAMPLE_DELIVER)) == Request(
        kind="deliver",
        iq_id="124",
        source=ENTRANCE,
        to=COUNTER,
        namespace=QOS,
        msg_id="984232334",
    )


def test_the_texts_acknowledged_example_is_read() -> None:
    """It has no msgId: only the id of the iq identifies it."""
    request = read(parse(EXAMPLE_ACKNOWLEDGED))
    assert (request.kind, request.msg_id, request.iq_id) == ("acknowledged", "", "123")
    assert parse(request.payload)[0].tag == "{urn:xmpp:iot:control}set"


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("kind", ["acknowledged", "assured", "deliver"])
@pytest.mark.parametrize("xmlns", [CLIENT, COMPONENT])
@pytest.mark.parametrize(
    "form",
    [
        "<{kind} xmlns='{ns}' msgId='7'>{message}</{kind}>",
        "<qos:{kind} xmlns:qos='{ns}' msgId='7'>{message}</qos:{kind}>",
        "<{kind} xmlns='{ns}' msgId='7'>\n  {message}\n</{kind}>",
        "<z:{kind} msgId='7' xmlns:z='{ns}'><!-- c -->{message}<?p q?></z:{kind}>",
        "<{kind} xmlns='{ns}' msgId='7'><extra xmlns='urn:x'/>{message}</{kind}>",
    ],
)
def test_prefixes_and_neighbours_never_matter(
    namespace: str, kind: str, xmlns: str, form: str
) -> None:
    """docs/design/protocol.md §2.1: all three namespaces are served."""
    message = f"<message xmlns='{xmlns}'><body>b</body></message>"
    request = read_text(
        form.format(kind=kind, ns=namespace, message=message), xmlns=xmlns
    )
    assert (request.kind, request.namespace) == (kind, namespace)
    assert request.msg_id == ("" if kind == "acknowledged" else "7")
    assert request.payload == ("" if kind == "deliver" else BODY)
    assert request.size == len(request.payload)
    assert (request.mark, request.hold) == ("", "")


@pytest.mark.parametrize("xmlns", [CLIENT, COMPONENT])
@pytest.mark.parametrize(
    "assured",
    [
        # The message inherits the namespace of the request, as many clients will write
        # it.
        "<assured xmlns='urn:xmpp:qos' msgId='7'><message><body>b</body></message></assured>",
        # The message inherits the namespace of the stream, as in the proto-XEP's
        # examples.
        "<q:assured xmlns:q='urn:xmpp:qos' msgId='7'>"
        "<message><body>b</body></message></q:assured>",
        # The message is in jabber:client (by the schema), whatever the stream is.
        "<assured xmlns='urn:xmpp:qos' msgId='7'>"
        "<message xmlns='jabber:client'><body>b</body></message></assured>",
        "<q:assured xmlns:q='urn:xmpp:qos' msgId='7'>"
        "<q:message><q:body>b</q:body></q:message></q:assured>",
        "<assured xmlns='urn:xmpp:qos' msgId='7'>"
        "<message xmlns=''><body>b</body></message></assured>",
    ],
)
def test_the_embedded_message_means_jabber_client_whatever_it_inherits(
    xmlns: str, assured: str
) -> None:
    """Handlers look for jabber:client only.

    docs/design/protocol.md §2.2: it is matched by local name.
    """
    assert read_text(assured, xmlns=xmlns).payload == BODY


def test_other_namespaces_inside_the_message_stay_as_they_are() -> None:
    """The proto-XEP: any type of message, of any XEP."""
    inner = (
        "<body>b</body><set xmlns='urn:xmpp:iot:control'><int name='Light' value='80'/>"
        "</set><x xmlns=''><y xmlns='jabber:x:data' xml:lang='de'>t</y>tail</x>"
        "<forwarded xmlns='urn:xmpp:forward:0'><message xmlns='jabber:server'>"
        "<body>in</body></message></forwarded>"
    )
    request = read_text(
        f"<assured xmlns='{QOS}' msgId='7'>"
        f"<message xmlns='{CLIENT}' type='chat' id='8' xml:lang='en'>{inner}</message>"
        "</assured>"
    )
    assert request.payload == (
        "<message xmlns='jabber:client' type='chat' id='8' xml:lang='en'>"
        f"{inner}</message>"
    )


@pytest.mark.parametrize(
    "kind", ["", "normal", "chat", "groupchat", "headline", "error"]
)
def test_the_message_may_be_of_any_type(kind: str) -> None:
    """Its from is that of the iq, so no type can forge a sender.

    docs/design/protocol.md §2.6.
    """
    message = f"<message xmlns='{CLIENT}' type='{kind}'/>"
    request = read_text(f"<acknowledged xmlns='{QOS}'>{message}</acknowledged>")
    assert request.payload == message


def test_forged_to_and_from_go_and_those_of_what_is_inside_stay() -> None:
    """The proto-XEP, To and from attributes: they MUST be overwritten, against forgery.

    Those of inner elements belong to whatever XEP put them there.
    """
    inner = (
        "<forwarded xmlns='urn:xmpp:forward:0'>"
        "<message xmlns='jabber:client' from='a@x' to='b@x'><x from='c@x'/></message>"
        "</forwarded>"
    )
    request = read_text(
        f"<assured xmlns='{QOS}' msgId='7' from='boss@x' to='you@x'>"
        f"<message xmlns='{CLIENT}' from='boss@x/1' to='you@x/2'>{inner}</message>"
        "</assured>"
    )
    assert request.payload == f"<message xmlns='jabber:client'>{inner}</message>"
    assert (request.source, request.to) == (ENTRANCE, COUNTER)


def test_the_size_is_that_of_the_stored_message_in_bytes() -> None:
    """Quotas count bytes of UTF-8 (issue, Receiving), not characters."""
    request = read_text(
        f"<acknowledged xmlns='{QOS}'><message><body>ä€😀</body></message></acknowledged>"
    )
    assert request.size == len(BODY) - 1 + 2 + 3 + 4
    assert request.size == len(request.payload.encode())


def test_the_marks_are_read_by_their_namespace_alone() -> None:
    """Without the namespace `sender` and `hold` are not ours.

    docs/protocol.md#marks-xmpp-qosstore0.
    """
    marks = f"xmlns:m='{MARKS_NAMESPACE}' m:sender='s' m:hold='h'"
    plain = "sender='x' hold='y'"
    for extra, expected in ((marks, ("s", "h")), (plain, ("", ""))):
        request = read_text(
            f"<deliver xmlns='{QOS}' msgId='7' {extra} {plain}/>".replace(
                f"{plain} {plain}", plain
            )
        )
        assert (request.mark, request.hold) == expected
    assured = read_text(f"<assured xmlns='{QOS}' msgId='7' {marks}>{BODY}</assured>")
    assert (assured.mark, assured.hold) == ("s", "")
    acknowledged = read_text(
        f"<acknowledged xmlns='{QOS}' {marks}>{BODY}</acknowledged>"
    )
    assert (acknowledged.mark, acknowledged.hold) == ("s", "")


def test_what_is_no_request_of_ours_is_left_alone() -> None:
    """An iq with an unknown namespace or name is passed on like any other."""
    for content in (
        "",
        "<query xmlns='jabber:iq:version'/>",
        f"<assured xmlns='urn:xmpp:qos:99' msgId='7'>{BODY}</assured>",
        f"<assured xmlns='{CLIENT}' msgId='7'>{BODY}</assured>",
        f"<received xmlns='{QOS}' msgId='7'/>",
        f"<message xmlns='{QOS}'/>",
        f"<Assured xmlns='{QOS}' msgId='7'>{BODY}</Assured>",
        f"<x xmlns='urn:x'><assured xmlns='{QOS}' msgId='7'>{BODY}</assured></x>",
    ):
        assert stanza.request_element(request_iq(content)) is None


# -- requests, malformed ---------------------------------------------------

PRIVATE = "<message xmlns='jabber:client'><body>SECRET</body></message>"


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize(
    "content",
    [
        "<acknowledged xmlns='{ns}'/>",
        "<acknowledged xmlns='{ns}'>SECRET</acknowledged>",
        "<acknowledged xmlns='{ns}'>{message}{message}</acknowledged>",
        "<acknowledged xmlns='{ns}'><body xmlns='jabber:client'>SECRET</body></acknowledged>",
        "<acknowledged xmlns='{ns}'><x xmlns='urn:x'>{message}</x></acknowledged>",
        "<assured xmlns='{ns}' msgId='7'/>",
        "<assured xmlns='{ns}' msgId='7'>{message}{message}</assured>",
        "<assured xmlns='{ns}' msgId='7'>{message}<message/></assured>",
        "<assured xmlns='{ns}'>{message}</assured>",
        "<assured xmlns='{ns}' msgId=''>{message}</assured>",
        "<assured xmlns='{ns}' msgid='7'>{message}</assured>",
        "<assured xmlns='{ns}' msgId='{long}'>{message}</assured>",
        "<assured xmlns='{ns}' msgId='{over}'>{message}</assured>",
        "<assured xmlns='{ns}' msgId='7' xmlns:m='xmpp-qos:store:0' m:sender='{over}'>"
        "{message}</assured>",
        "<assured xmlns='{ns}' msgId='7'><message xmlns='jabber:client'>"
        "<assured xmlns='{ns}' msgId='8'>{message}</assured></message></assured>",
        "<acknowledged xmlns='{ns}'><message xmlns='jabber:client'>"
        "<acknowledged xmlns='{other}'>{message}</acknowledged></message></acknowledged>",
        "<assured xmlns='{ns}' msgId='7'><message><deliver msgId='7'/></message></assured>",
        "<deliver xmlns='{ns}'/>",
        "<deliver xmlns='{ns}' msgId=''/>",
        "<deliver xmlns='{ns}' msgId='{long}'/>",
        "<deliver xmlns='{ns}' msgId='7' xmlns:m='xmpp-qos:store:0' m:hold='{over}'/>",
        "<deliver xmlns='{ns}' msgId='7' xmlns:m='xmpp-qos:store:0' m:sender='{over}'/>",
    ],
)
def test_a_malformed_request_is_a_bad_request_without_an_echo(
    namespace: str, content: str
) -> None:
    """`bad-request`/modify, and no echo of the payload.

    docs/design/protocol.md §2.5.
    """
    over = "x" * (ID_CHARS_MAX + 1)
    iq = request_iq(
        content.format(
            ns=namespace,
            other=NAMESPACES[2],
            message=PRIVATE,
            long="x" * 2_000,
            over=over,
        )
    )
    with pytest.raises(RemoteProtocolError) as caught:
        read(iq)
    assert (caught.value.condition, caught.value.type) == ("bad-request", "modify")
    answer = stanza.render_error(iq, caught.value, sender="")
    for text in (str(caught.value), answer):
        assert "SECRET" not in text
        assert "xxxx" not in text
    assert answer == (
        f"<iq type='error' id='i1' to='{ENTRANCE}'><error type='modify'>"
        f"<bad-request xmlns='{STANZAS}'/></error></iq>"
    )


def test_an_iq_without_an_id_is_a_bad_request() -> None:
    """The proto-XEP: the iq must have an id; without it no answer is possible."""
    for change in ({"id": ""}, {}):
        iq = request_iq(f"<assured xmlns='{QOS}' msgId='7'>{BODY}</assured>")
        del iq.attrib["id"]
        iq.attrib.update(change)
        with pytest.raises(RemoteProtocolError) as caught:
            read(iq)
        assert caught.value.condition == "bad-request"


def test_ids_of_the_greatest_length_are_taken() -> None:
    """A msgId may be a hash of the content, with any prefix of the peer."""
    longest = "€" * ID_CHARS_MAX
    request = read_text(
        f"<deliver xmlns='{QOS}' msgId='{longest}' xmlns:m='{MARKS_NAMESPACE}' "
        f"m:hold='{longest}' m:sender='{longest}'/>"
    )
    assert request.msg_id == request.hold == request.mark == longest


def test_nesting_as_deep_as_a_stanza_allows_does_no_harm() -> None:
    """A peer chooses the depth; recursion would end our process."""
    depth = 50_000
    deep = f"<message xmlns='{CLIENT}'>" + "<a>" * depth + "</a>" * depth + "</message>"
    request = read_text(f"<assured xmlns='{QOS}' msgId='7'>{deep}</assured>")
    assert request.payload.startswith("<message xmlns='jabber:client'><a><a>")
    assert request.payload.count("<a>") == depth - 1


# -- replies ---------------------------------------------------------------


def test_the_texts_answers_are_read() -> None:
    """`received` has no namespace of its own there, so it has that of the stream."""
    assert stanza.parse_reply(parse(EXAMPLE_RECEIVED)) == Reply(
        iq_id="123", source=COUNTER, received="984232334", namespace=CLIENT
    )
    assert stanza.parse_reply(parse(EXAMPLE_RESULT)) == Reply(
        iq_id="124", source=COUNTER
    )


@pytest.mark.parametrize("xmlns", [CLIENT, COMPONENT])
@pytest.mark.parametrize("namespace", [*NAMESPACES, CLIENT, COMPONENT, ""])
@pytest.mark.parametrize(
    "form", ["<received xmlns='{ns}' {more}/>", "<p:received xmlns:p='{ns}' {more}/>"]
)
def test_received_is_matched_by_its_local_name(
    xmlns: str, namespace: str, form: str
) -> None:
    """docs/design/protocol.md §2.2: example and schema differ in its namespace."""
    if not namespace:
        form = form.replace("p:received xmlns:p", "received xmlns")
    hold = f"xmlns:m='{MARKS_NAMESPACE}' m:hold='h'"
    plain = reply_iq(form.format(ns=namespace, more="msgId='7'"), xmlns=xmlns)
    held = reply_iq(form.format(ns=namespace, more=f"msgId='7' {hold}"), xmlns=xmlns)
    for reply, expected in ((plain, None), (held, "h")):
        assert (reply.received, reply.hold, reply.error) == ("7", expected, None)
        assert (reply.namespace in NAMESPACES) == (namespace in NAMESPACES)


@pytest.mark.parametrize("content", ["", "\n  ", "<received/>", "<x xmlns='urn:x'/>"])
def test_a_result_without_a_msg_id_says_nothing_was_received(content: str) -> None:
    """Such an answer to `assured` is ignored and retried.

    docs/design/protocol.md §4.3.
    """
    reply = reply_iq(content)
    assert (reply.received, reply.hold, reply.error) == (None, None, None)


@pytest.mark.parametrize(
    "condition",
    [
        *("bad-request", "feature-not-implemented", "forbidden", "gone"),
        *("item-not-found", "jid-malformed", "not-allowed", "recipient-unavailable"),
        *("resource-constraint", "service-unavailable", "remote-server-timeout"),
    ],
)
@pytest.mark.parametrize("kind", ["auth", "cancel", "continue", "modify", "wait"])
@pytest.mark.parametrize("hold", ["", "h"])
def test_every_error_is_read_with_and_without_a_hold(
    condition: str, kind: str, hold: str
) -> None:
    """docs/design/protocol.md §4.8: the hold tells "not held here" from other errors."""
    mark = f"<hold xmlns='{MARKS_NAMESPACE}'>{hold}</hold>" if hold else ""
    error = (
        f"<error type='{kind}'><text xmlns='{STANZAS}'>why</text>"
        f"<{condition} xmlns='{STANZAS}'>x</{condition}><own xmlns='urn:x'/></error>"
    )
    inside = error.replace("</error>", f"{mark}</error>")
    for content in (mark + error, error + mark, inside):
        reply = reply_iq(content, "error")
        assert (reply.error, reply.error_type) == (condition, kind)
        assert (reply.hold, reply.received) == (hold or None, None)
        assert (reply.text, reply.rejected) == ("why", False)


@pytest.mark.parametrize("redelivered", [False, True])
def test_a_rejection_is_told_from_every_other_error(redelivered: bool) -> None:
    """Including item-not-found, whose `hold` says that the message is not there."""
    answer = Answer("rejected", "h", "item-not-found", "cancel", "no node", redelivered)
    again = " redelivered='true'" if redelivered else ""
    text = answered(answer)
    assert text == (
        f"<iq type='error' id='i1' to='{ENTRANCE}'><error type='cancel'>"
        f"<item-not-found xmlns='{STANZAS}'/><text xmlns='{STANZAS}'>no node</text>"
        f"<rejected xmlns='xmpp-qos:store:0'{again}>h</rejected></error></iq>"
    )
    reply = stanza.parse_reply(on_stream(text, CLIENT))
    assert (reply.error, reply.hold, reply.text) == ("item-not-found", "h", "no node")
    assert (reply.rejected, reply.redelivered) == (True, redelivered)


def test_what_an_error_says_for_people_is_one_short_line() -> None:
    """It goes to logs and terminals, and its text is chosen by a peer."""
    text = "one\ntwo\x85 \u202e" + 1000 * "x"
    error = f"<error type='cancel' by='a&#10;b'><gone xmlns='{STANZAS}'/>"
    error += f"<text xmlns='{STANZAS}'>{text}</text></error>"
    reply = reply_iq(error, "error")
    assert reply.text is not None
    assert reply.text.startswith("one two xxx")
    assert len(reply.text) == 500
    assert reply.by == "a b"


def test_an_error_may_echo_the_request_and_says_no_more_by_it() -> None:
    """RFC 6120 §8.3.1 allows it; our own `hold` in the echo is not the peer's."""
    error = f"<error type='cancel'><item-not-found xmlns='{STANZAS}'/></error>"
    echo = f"<deliver xmlns='{QOS}' msgId='7' xmlns:m='{MARKS_NAMESPACE}' m:hold='h'/>"
    assert reply_iq(echo + error, "error").hold is None
    assert reply_iq(echo + error, "error").error == "item-not-found"


@pytest.mark.parametrize(
    "content", ["", "<error/>", "<error type='wait'><not-ours xmlns='urn:x'/></error>"]
)
def test_an_error_without_a_condition_is_an_undefined_one(content: str) -> None:
    """An unreadable error is still an error, never a success."""
    assert reply_iq(content, "error").error == "undefined-condition"


def test_only_the_type_of_the_iq_makes_an_error_of_it() -> None:
    """An element named `error` may be part of a result."""
    assert reply_iq("<error xmlns='urn:x'/>", "result").error is None


# -- requests of ours ------------------------------------------------------


def test_assured_is_written_as_in_the_text_and_marked() -> None:
    """Readers match the proto-XEP's example; the mark is one more attribute."""
    payload = f"<message xmlns='jabber:client'>{EXAMPLE_LOG}</message>"
    record = outgoing(msg_id="984232334", offer_id="123", payload=payload)
    xml = write(record)
    assert xml == (
        f"<iq type='set' id='123' to='{COUNTER}'>"
        "<assured xmlns='urn:xmpp:qos' msgId='984232334' "
        "xmlns:q='xmpp-qos:store:0' q:sender='s1'>"
        f"<message xmlns='jabber:client'>{EXAMPLE_LOG}</message></assured></iq>"
    )
    iq = on_stream(xml)
    assert iq[0].attrib.pop(SENDER) == "s1"
    iq.set("from", ENTRANCE)
    assert same(iq, parse(EXAMPLE_ASSURED))


def test_deliver_is_written_as_in_the_text_and_echoes_the_hold() -> None:
    """With a hold the answer is unambiguous.

    Without it, it is that of the proto-XEP.
    """
    record = outgoing(msg_id="984232334", deliver_id="124")
    bare = (
        f"<iq type='set' id='124' to='{COUNTER}'>"
        "<deliver xmlns='urn:xmpp:qos' msgId='984232334' "
        "xmlns:q='xmpp-qos:store:0' q:sender='s1'"
    )
    assert write(record, "deliver") == bare + "/></iq>"
    assert write(replace(record, hold="h"), "deliver") == bare + " q:hold='h'/></iq>"
    iq = on_stream(write(record, "deliver"))
    del iq[0].attrib[SENDER]
    iq.set("from", ENTRANCE)
    assert same(iq, parse(EXAMPLE_DELIVER))


def test_acknowledged_is_written_as_in_the_text_with_our_mark() -> None:
    """So that our receiver knows a repeat while the application works on the message."""
    xml = write(outgoing(level=Level.ACKNOWLEDGED))
    assert xml == (
        f"<iq type='set' id='o1' to='{COUNTER}'>"
        "<acknowledged xmlns='urn:xmpp:qos' xmlns:q='xmpp-qos:store:0' q:sender='s1'>"
        f"{BODY}</acknowledged></iq>"
    )


def test_a_component_says_who_it_is() -> None:
    """XEP-0114: the server does not add a from to a component's stanzas."""
    for step in ("offer", "deliver"):
        xml = write(outgoing(), step, sender="comp.example/x")
        assert on_stream(xml, COMPONENT).get("from") == "comp.example/x"
        assert on_stream(xml, COMPONENT).tag == f"{{{COMPONENT}}}iq"


@pytest.mark.parametrize("step", ["offer", "deliver"])
@pytest.mark.parametrize("level", [Level.ASSURED, Level.ACKNOWLEDGED])
def test_a_retry_has_the_same_bytes(step: At, level: Level) -> None:
    """Whatever was counted since; a new step has a new id.

    docs/design/protocol.md §2.4.
    """
    record = outgoing(level=level, hold="h")
    later = replace(
        record,
        attempts=5,
        tries=3,
        delivers=4,
        due_at=9.0,
        condition="gone",
        addressed=frozenset({COUNTER}),
        unanswered=True,
        expires_at=7.0,
    )
    assert write(record, step) == write(later, step)
    if level is Level.ASSURED:
        assert write(record, "offer") != write(record, "deliver")


@settings(max_examples=200)
@given(
    msg_id=HOSTILE,
    iq_id=HOSTILE,
    store_id=HOSTILE,
    hold=st.none() | HOSTILE,
    jid=HOSTILE,
    sender=HOSTILE,
    namespace=NAMESPACE,
    body=HOSTILE,
    level=st.sampled_from([Level.ASSURED, Level.ACKNOWLEDGED]),
    xmlns=st.sampled_from([CLIENT, COMPONENT]),
)
def test_what_we_request_is_read_as_we_meant_it(
    *,
    msg_id: str,
    iq_id: str,
    store_id: str,
    hold: str | None,
    jid: str,
    sender: str,
    namespace: str,
    body: str,
    level: Level,
    xmlns: str,
) -> None:
    """Any text in ids, JIDs and the body stays in its place."""
    payload = message_with_body(body)
    record = outgoing(
        msg_id=msg_id,
        offer_id=iq_id,
        deliver_id=iq_id,
        payload=payload,
        hold=hold,
        level=level,
    )
    for step in ("offer", "deliver"):
        transmit = Transmit(step, record, Route(jid, namespace))
        xml = stanza.render_request(transmit, store_id=store_id, sender=sender)
        request = read(on_stream(xml, xmlns))
        assured = step == "deliver" or level is Level.ASSURED
        assert request == Request(
            kind="deliver" if step == "deliver" else level.value,  # type: ignore[arg-type]
            iq_id=iq_id,
            source=sender,
            to=jid,
            namespace=namespace,
            msg_id=msg_id if assured else "",
            payload=payload if step == "offer" else "",
            size=len(payload.encode()) if step == "offer" else 0,
            mark=store_id,
            hold=(hold or "") if step == "deliver" else "",
        )


def test_an_iq_adds_no_more_to_its_payload_than_is_reckoned() -> None:
    """Otherwise an accepted message could close the stream at each attempt."""
    ids = {"msg_id": "m" * 32, "offer_id": "o" * 32, "deliver_id": "d" * 32}
    for namespace in NAMESPACES:
        xml = write(
            outgoing(**ids),
            namespace=namespace,
            store_id="s" * 32,
            sender="x@component.example/y",
        )
        added = len(xml) - len(BODY) - len(COUNTER) - len("x@component.example/y")
        assert added + len(" from=''") < stanza.OVERHEAD_BYTES


# -- answers of ours -------------------------------------------------------


def test_received_is_written_exactly_as_in_the_text() -> None:
    """Without a namespace of its own; readers match by local name.

    docs/design/protocol.md §2.3.
    """
    xml = answered(Answer("received"), msg_id="984232334")
    assert xml == (
        f"<iq type='result' id='i1' to='{ENTRANCE}'><received msgId='984232334'/></iq>"
    )
    iq = on_stream(xml)
    iq.attrib.update({"id": "123", "from": COUNTER})
    assert same(iq, parse(EXAMPLE_RECEIVED))


def test_received_carries_the_hold_as_an_attribute() -> None:
    """docs/protocol.md#marks-xmpp-qosstore0."""
    assert answered(Answer("received", "h")) == (
        f"<iq type='result' id='i1' to='{ENTRANCE}'>"
        "<received msgId='m1' xmlns:q='xmpp-qos:store:0' q:hold='h'/></iq>"
    )


def test_received_grants_a_credit_to_a_sender_of_ours() -> None:
    """To any other sender it is exactly what the proto-XEP shows."""
    assert answered(Answer("received", "h", credit=30)) == (
        f"<iq type='result' id='i1' to='{ENTRANCE}'>"
        "<received msgId='m1' xmlns:q='xmpp-qos:store:0' q:hold='h' q:credit='30'/></iq>"
    )
    assert answered(Answer("received", credit=30)) == answered(Answer("received"))


@pytest.mark.parametrize(
    ("said", "credit"),
    [
        ("30", 30),
        ("0", 0),
        ("999999999", 999_999_999),
        ("1000000000", None),
        ("", None),
        ("-1", None),
        (" 1", None),
        ("1e3", None),
        ("\u0661", None),
        ("many", None),
    ],
)
def test_a_credit_that_is_no_number_is_ignored(said: str, credit: int | None) -> None:
    """A wrong hint must not make the answer invalid."""
    xml = (
        "<iq type='result' id='i1'><received msgId='m1' "
        f"xmlns:q='xmpp-qos:store:0' q:hold='h' q:credit='{said}'/></iq>"
    )
    reply = stanza.parse_reply(parse(xml))
    assert (reply.received, reply.hold, reply.credit) == ("m1", "h", credit)


def test_the_result_is_empty_and_with_a_hold_it_says_which() -> None:
    """To a `deliver` without a hold the answer is exactly that of the proto-XEP."""
    assert answered(Answer("result")) == f"<iq type='result' id='i1' to='{ENTRANCE}'/>"
    assert answered(Answer("result", "h")) == (
        f"<iq type='result' id='i1' to='{ENTRANCE}'>"
        "<hold xmlns='xmpp-qos:store:0'>h</hold></iq>"
    )


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("not-allowed", "cancel"),
        ("resource-constraint", "wait"),
        ("item-not-found", "cancel"),
    ],
)
def test_an_error_has_its_own_type_and_nothing_of_the_request(
    condition: str, kind: ErrorType
) -> None:
    """docs/design/protocol.md §2.5: the type explicit, no echo."""
    error = f"<error type='{kind}'><{condition} xmlns='{STANZAS}'/>"
    head = f"<iq type='error' id='i1' to='{ENTRANCE}'>"
    refused = answered(Answer("error", "", condition, kind))
    assert refused == f"{head}{error}</error></iq>"
    # RFC 6120 §8.3.4: extensions stand inside the error, and last.
    assert answered(Answer("error", "h", condition, kind)) == (
        f"{head}{error}<hold xmlns='xmpp-qos:store:0'>h</hold></error></iq>"
    )


HOLD_ELEMENT = "<hold xmlns='xmpp-qos:store:0'>h</hold>"


@pytest.mark.parametrize(
    ("before", "inside", "after"),
    [("", HOLD_ELEMENT, ""), (HOLD_ELEMENT, "", ""), ("", "", HOLD_ELEMENT)],
)
def test_a_hold_is_read_inside_the_error_and_beside_it(
    before: str, inside: str, after: str
) -> None:
    """docs/design/protocol.md §2.7: earlier versions wrote it beside the error."""
    error = f"<error type='cancel'><item-not-found xmlns='{STANZAS}'/>{inside}</error>"
    text = f"<iq xmlns='jabber:client' type='error' id='i1'>{before}{error}{after}</iq>"
    reply = stanza.parse_reply(ET.fromstring(text))  # noqa: S314 - our own text
    assert (reply.error, reply.error_type) == ("item-not-found", "cancel")
    assert reply.hold == "h"


def test_a_component_answers_as_whom_it_was_asked() -> None:
    """It may have many JIDs, and only an answer from the addressed one counts."""
    iq = request_iq("<x/>")
    problem = RemoteProtocolError("no", condition="bad-request", type="modify")
    for xml in (
        answered(Answer("received", "h"), sender="x@comp.example"),
        stanza.render_error(iq, problem, sender="x@comp.example"),
    ):
        answer = on_stream(xml, COMPONENT)
        assert (answer.get("from"), answer.get("to")) == ("x@comp.example", ENTRANCE)


@settings(max_examples=200)
@given(
    iq_id=HOSTILE,
    source=HOSTILE,
    msg_id=HOSTILE,
    hold=st.just("") | HOSTILE,
    kind=st.sampled_from(["received", "result", "error"]),
    sender=HOSTILE,
    xmlns=st.sampled_from([CLIENT, COMPONENT]),
)
def test_what_we_answer_is_read_as_we_meant_it(
    *,
    iq_id: str,
    source: str,
    msg_id: str,
    hold: str,
    kind: Literal["received", "result", "error"],
    sender: str,
    xmlns: str,
) -> None:
    """Hostile ids and JIDs of a peer return as values, never as markup."""
    request = Request(
        kind="assured",
        iq_id=iq_id,
        source=source,
        to="",
        namespace=QOS,
        msg_id=msg_id,
        payload=PRIVATE,
    )
    condition = "item-not-found" if kind == "error" else ""
    xml = stanza.render_answer(
        request, Answer(kind, hold, condition, "cancel"), sender=sender
    )
    assert "SECRET" not in xml
    iq = on_stream(xml, xmlns)
    assert iq.get("to") == source
    assert stanza.parse_reply(iq) == Reply(
        iq_id=iq_id,
        source=sender,
        error=condition or None,
        received=msg_id if kind == "received" else None,
        hold=hold or None,
        namespace=xmlns if kind == "received" else None,
    )


# -- payloads --------------------------------------------------------------


def test_a_stanza_object_with_what_xml_cannot_carry_is_the_callers_fault() -> None:
    """An application may put anything into an element."""
    message = parse(BODY)
    message[0].text = "\x01"
    with pytest.raises(LocalProtocolError, match="U\\+0001"):
        stanza.embedded(message)
