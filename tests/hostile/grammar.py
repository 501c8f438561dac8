"""Stanzas of a hostile peer: our vocabulary, combined well and badly, as bytes.

A grammar gives the attributes and children of each element; chance then leaves out,
repeats, exchanges and adds. The result is well-formed XML (a server would not pass on
anything else), spelled in any way that XML permits. It knows no stanza handler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from xml.sax.saxutils import escape

from qos.core.message.batch import BATCH_NAMESPACE as BATCH
from qos.core.message.model import MARKS_NAMESPACE as MARKS
from qos.core.message.model import NAMESPACES
from qos.core.queue.item import EXTENSIONS_NAMESPACE as QUEUE
from xep_0254.namespaces import (
    DATA_FORM,
    DISCO_INFO,
    DISCO_ITEMS,
    EVENT,
    NODE_CONFIG,
    OWNER,
    PUBSUB,
    QUEUEING,
    QUEUEING_OLD,
    RSM,
    SHIM,
    STANZAS,
    SUBSCRIBE_OPTIONS,
)
from xep_0337.stanza import NS as EVENT_LOG

__all__ = ["CONTENTS", "QUEUE_REQUESTS", "REQUESTS", "Asked", "Grammar", "Written"]

XML = "http://www.w3.org/XML/1998/namespace"

#: Values: the right one stands first, and is chosen as often as all others together.
IDS = ("1", "2", "", "x" * 1_024, "x" * 1_025, "'\"<>&\t\n{}/@ ]\u2028\U0001f4a1")
NUMBERS = ("1", "3", "-1", "0", "1e999", "nan", "9" * 400, "", "²", " 1 ", "0x10")
NODES = ("jobs", "", "no such node", "x" * 2_000, "\u2028'")
JIDS = ("alice@localhost/a", "alice@localhost", "", "@", "x" * 4_000, "a@b/c/d", "/")
TEXTS = ("x", "", " \t\n", "<&>]]>", "\ud7ff\ue000\U0010ffff", "y" * 3_000)


SELECTORS = (
    *("n = 1", "xml.element = 'x'", "NOT JMSRedelivered", "n LIKE '%_%'", "n >"),
    *("(" * 33 + "n" + ")" * 33, "1 = 'a'", "n IN (" + "''," * 300 + "'')"),
)
_PROPERTY_TYPES = ("string", "int", "float", "boolean")


@dataclass(frozen=True, slots=True)
class Rule:
    """An element: its namespaces (one is chosen), attributes and children."""

    namespaces: Sequence[str]
    attributes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    children: Sequence[str] = ()
    text: Sequence[str] = ("",)


def _rules(namespace: str, names: str, **rule: object) -> dict[str, Rule]:
    return {name: Rule((namespace,), **rule) for name in names.split()}  # type: ignore[arg-type]


_SENDER = {f"{{{MARKS}}}sender": ("s", *IDS), f"{{{MARKS}}}hold": ("h", *IDS)}
_ITEM = {
    "id": IDS,
    **{f"{{{QUEUE}}}{name}": NUMBERS for name in ("priority", "ttl", "delay")},
    f"{{{QUEUE}}}token": IDS,
}
_TIME = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00", "soon", "-0001-13-99T25:61:61")
_EVENT = {
    "timestamp": _TIME,
    "type": ("Warning", "Error", "", "nonsense"),
    "level": ("Minor", "Major", "x"),
    "id": IDS,
    "subject": JIDS,
    "object": IDS,
}
_LISTED = ("item", "item", "item", "outcome", "body")

#: By the name of the element; if two namespaces share a name, by both.
RULES: dict[str, Rule] = {
    **{
        name: Rule(NAMESPACES, {"msgId": IDS, **_SENDER}, children)
        for name, children in {
            "assured": ("message",),
            "acknowledged": ("message",),
            "deliver": (),
            "received": (),
        }.items()
    },
    "message": Rule(
        ("jabber:client",),
        {"type": ("chat", "error", "groupchat", "", "x"), "to": JIDS, "from": JIDS},
        ("body", "body", "pubsub", "log", "message", "assured", "headers"),
    ),
    "body": Rule(("jabber:client", "urn:x", ""), {}, (), TEXTS),
    "batch": Rule(
        (BATCH,),
        {"sender": ("s", *IDS)},
        ("in assured", "in acknowledged", "in deliver", "in assured", "in deliver"),
    ),
    **{
        f"in {name}": Rule(
            NAMESPACES[:1], {"id": ("", *IDS), "msgId": IDS, "hold": IDS}, ("message",)
        )
        for name in ("assured", "acknowledged", "deliver")
    },
    **{
        f"answer {name}": Rule((BATCH,), {"id": IDS, "msgId": IDS, "hold": IDS}, more)
        for name, more in (("received", ()), ("result", ()), ("error", ("condition",)))
    },
    "answers": Rule(
        (BATCH,), {}, ("answer received", "answer result", "answer error", "body")
    ),
    "hold": Rule((MARKS,), {}, (), IDS),
    "condition": Rule((STANZAS,)),
    "error": Rule(
        ("jabber:client", "urn:x"),
        {"type": ("cancel", "wait", "modify", "x"), "by": JIDS},
        ("condition", "text"),
    ),
    "text": Rule((STANZAS,), {}, (), TEXTS),
    "ping": Rule(("urn:xmpp:ping",)),
    # Without jabber:iq:roster: slixmpp 1.17 tries to refuse a stranger's with code=503,
    # a number, which it cannot write. The result is a traceback and no answer.
    "query": Rule((DISCO_INFO, DISCO_ITEMS), {"node": NODES}),
    # -- queues
    "pubsub": Rule(
        (PUBSUB, PUBSUB, OWNER),
        {},
        (
            *("publish", "publish", "subscribe", "unsubscribe", "options", "retract"),
            *("unlock", "items", "subscriptions", "affiliations", "create"),
            *("configure", "delete", "purge", "default", "extend", "requeue", "set"),
            *("x", "subscription", "options", "properties", "properties"),
        ),
    ),
    "properties": Rule((QUEUE,), {"for": IDS}, ("property",) * 3),
    "property": Rule(
        (QUEUE,),
        {"name": ("n", "xml.element", *IDS), "type": (*_PROPERTY_TYPES, "x")},
        ("body",),
        (*NUMBERS, *TEXTS, "true"),
    ),
    "headers": Rule((SHIM,), {}, ("header", "header", "body")),
    "header": Rule((SHIM,), {"name": IDS}, (), TEXTS),
    **_rules(PUBSUB, "publish retract", attributes={"node": NODES}, children=_LISTED),
    "unlock": Rule((QUEUEING, QUEUEING_OLD), {"node": NODES}, _LISTED),
    **_rules(
        PUBSUB,
        "subscribe unsubscribe options",
        attributes={"node": NODES, "jid": JIDS, "subid": IDS},
        children=("x",),
    ),
    **_rules(
        PUBSUB,
        "items subscriptions create",
        attributes={
            "node": NODES,
            "max_items": NUMBERS,
            f"{{{QUEUE}}}state": ("live", "dead", "accepted", "x"),
        },
        children=("item", "subscription"),
    ),
    "subscription": Rule(
        (PUBSUB,),
        {
            "node": NODES,
            "jid": JIDS,
            "subid": IDS,
            "subscription": ("subscribed", "none", "x"),
        },
    ),
    "affiliations": Rule((PUBSUB, OWNER), {"node": NODES}, ("affiliation",)),
    "affiliation": Rule(
        (OWNER,), {"jid": JIDS, "affiliation": ("member", "owner", "publish-only", "x")}
    ),
    **_rules(
        OWNER,
        "configure delete purge default",
        attributes={"node": NODES},
        children=("x",),
    ),
    **_rules(
        QUEUE,
        "extend requeue",
        attributes={"node": NODES, "seconds": NUMBERS},
        children=_LISTED,
    ),
    "item": Rule((PUBSUB,), _ITEM, ("body", "outcome"), ("", "", "x")),
    "outcome": Rule((QUEUE,), {"reason": TEXTS, "undeliverable-here": NUMBERS}),
    "set": Rule((RSM,), {}, ("max", "after", "before")),
    "max": Rule((RSM,), {}, (), NUMBERS),
    **_rules(RSM, "after before", text=IDS),
    "x": Rule(
        (DATA_FORM,), {"type": ("submit", "cancel", "form", "x")}, ("field",) * 3
    ),
    "field": Rule(
        (DATA_FORM,),
        {
            "var": (
                *("FORM_TYPE", "pubsub#queue_requests", "queue#batch"),
                *("queue#lock_timeout", "queue#max_items", "queue#dead_letter_node"),
                *("pubsub#access_model", "queue#selector", "nonsense"),
            ),
            "type": ("text-single", "boolean", "list-multi"),
        },
        ("value", "value"),
    ),
    "value": Rule(
        (DATA_FORM,),
        {},
        (),
        (NODE_CONFIG, SUBSCRIBE_OPTIONS, "1", "open", *NUMBERS, *SELECTORS),
    ),
    "event": Rule((EVENT,), {}, ("event items", "properties", "body")),
    "event items": Rule((EVENT,), {"node": NODES}, ("event item", "event retract")),
    "event item": Rule((EVENT,), _ITEM, ("body",)),
    "event retract": Rule((EVENT,), _ITEM),
    # -- events of XEP-0337
    "log": Rule((EVENT_LOG,), _EVENT, ("log message", "tag", "tag", "stackTrace")),
    "log message": Rule((EVENT_LOG,), {}, (), TEXTS),
    "stackTrace": Rule((EVENT_LOG,), {}, (), TEXTS),
    "tag": Rule(
        (EVENT_LOG,), {"name": IDS, "value": NUMBERS, "type": ("xs:long", "", "x:y")}
    ),
    # -- presence
    "c": Rule(
        ("http://jabber.org/protocol/caps",),
        {"hash": ("sha-1", ""), "node": ("urn:x", ""), "ver": IDS},
    ),
    "occupant": Rule(("http://jabber.org/protocol/muc#user",)),
    "priority": Rule(("jabber:client",), {}, (), NUMBERS),
}

#: Rules whose name is not that of the element.
_NAMES = {"answers": "batch", "occupant": "x"}

_CONDITIONS = (
    *("item-not-found", "not-allowed", "resource-constraint", "service-unavailable"),
    *("bad-request", "gone", "nonsense"),
)

#: Iqs of type set that slixmpp 1.17 leaves unanswered, and that a device does not look at: a
#: query of XEP-0030, and an error. A queue service answers them.
_LEFT_BY_SLIXMPP = re.compile(rb"<iq[^>]*><(p:)?(query|error)\b")

REQUESTS = ("assured",) * 3 + ("deliver",) * 2 + ("acknowledged", "batch", "batch")
QUEUE_REQUESTS = ("pubsub",) * 8 + ("query", "ping")

#: The possible contents of any other kind of stanza.
CONTENTS = {
    "answer": ("received", "hold", "answers", "error", "pubsub", "query"),
    "message": (
        *("body", "log", "log", "event", "pubsub", "assured", "error", "headers"),
    ),
    "presence": ("c", "occupant", "priority"),
}
_KINDS = ("iq",) * 5 + tuple(CONTENTS)


@dataclass(frozen=True, slots=True)
class Asked:
    """An iq that must be answered: its sender and its id."""

    source: str
    iq_id: str


@dataclass(frozen=True, slots=True)
class Written:
    """A stanza as bytes, with the request in it, if there is one."""

    data: bytes
    asked: Asked | None = None


class Grammar:
    """Stanzas of peers to one JID.

    Args:
        to: the JID.
        namespace: of the stream.
        requests: names of the children that an iq may have.
        sources: JIDs of peers.
        pending: the present ids of requests that wait for an answer.
        answers_all: the JID is one of a queue service, which answers each iq.
        names: a suffix that makes names and ids different from earlier ones.
    """

    def __init__(
        self,
        to: str,
        *,
        namespace: str = "jabber:client",
        requests: Sequence[str] = REQUESTS,
        sources: Sequence[str] = ("alice@localhost/a", "alice@localhost/b", "m@x/y"),
        pending: Sequence[str] = (),
        answers_all: bool = False,
        names: str = "",
    ) -> None:
        self._chance = Random(0)
        self._to = to
        self._namespace = namespace
        self._requests = requests
        self._sources = sources
        self._pending = pending
        self._answers_all = answers_all
        self._names = names
        self._count = 0

    def stanza(self, seed: int, kind: str = "", about: str = "") -> Written:
        """A random stanza; this number makes all choices.

        Args:
            seed: the number.
            kind: iq, answer, message or presence; '': any.
            about: the name of its content; '': any possible one.
        """
        self._chance = Random(seed)
        kind = kind or self._chance.choice(_KINDS)
        if kind == "iq":
            return self._request((about,) if about else self._requests)
        source = self._chance.choice(self._sources)
        head = {"from": source, "to": self._to, "id": self._value(IDS)}
        if kind == "answer":
            ids = (*self._pending, *self._pending, head["id"])
            head["id"] = self._chance.choice(ids)
            head["type"] = self._chance.choice(("result", "error"))
        elif kind == "message":
            head["type"] = self._value(("normal", "chat", "error", "groupchat", "x"))
        elif type_ := self._chance.choice(("", "", "unavailable", "x")):
            head["type"] = type_
        name = "iq" if kind == "answer" else kind
        return Written(self._stanza(name, head, (about,) if about else CONTENTS[kind]))

    def _request(self, about: Sequence[str]) -> Written:
        """An iq of type get or set, with an id that can be answered."""
        self._count += 1
        source = self._chance.choice(self._sources)
        iq_id = f"i{self._names}.{self._count}" + "'<&\u2028" * self._chance.choice(
            (0, 0, 0, 1)
        )
        kind = self._chance.choice(("set", "set", "set", "get"))
        head = {"from": source, "to": self._to, "id": iq_id, "type": kind}
        # RFC 6120 §8.2.3: one child; but a server passes on others as well.
        data = self._stanza("iq", head, about, first=True)
        is_left = kind == "set" and _LEFT_BY_SLIXMPP.match(data) is not None
        is_asked = self._answers_all or not is_left
        return Written(data, Asked(source, iq_id) if is_asked else None)

    # -- elements ----------------------------------------------------------

    def _stanza(
        self,
        name: str,
        head: Mapping[str, str],
        children: Sequence[str],
        *,
        first: bool = False,
    ) -> bytes:
        count = 1 if first else self._chance.choice((0, 1, 1, 2))
        if self._odd():
            count += self._chance.choice((-1, 1, 2))
        content = "".join(
            self._element(self._chance.choice(children), 5) for _ in range(count)
        )
        attributes = "".join(
            f" {key}={self._quoted(value)}" for key, value in head.items()
        )
        space = f" xmlns='{self._namespace}'" if self._chance.random() < 0.1 else ""
        between = self._chance.choice(("", "", "\n", " \t"))
        return f"<{name}{space}{attributes}>{content}</{name}>{between}".encode()

    def _element(self, key: str, depth: int) -> str:
        if self._odd():
            key = self._chance.choice(tuple(RULES))
        rule = RULES[key]
        name = _NAMES.get(key, key.rpartition(" ")[2])
        if key == "condition":
            name = self._chance.choice(_CONDITIONS)
        namespace = self._chance.choice(rule.namespaces)
        if self._odd():
            namespace = self._chance.choice((*NAMESPACES, BATCH, PUBSUB, "urn:x", ""))
        # A prefix, or the default namespace.
        prefix = "p:" if namespace and self._chance.random() < 0.2 else ""
        declared = f" xmlns{':p' if prefix else ''}={self._quoted(namespace)}"
        attributes = self._attributes(rule)
        content = self._text(self._value(rule.text)) if rule.text != ("",) else ""
        if depth and rule.children:
            most = 2 if len(rule.children) > 1 else 1
            count = self._chance.choice((most, *range(most + 1)))
            if self._odd():
                count = self._chance.choice((0, 2, 4))
            content += "".join(
                self._element(self._chance.choice(rule.children), depth - 1)
                for _ in range(count)
            )
        if not content and self._chance.random() < 0.7:
            return f"<{prefix}{name}{declared}{attributes}/>"
        return f"<{prefix}{name}{declared}{attributes}>{content}</{prefix}{name}>"

    def _attributes(self, rule: Rule) -> str:
        written = []
        values = dict(rule.attributes)
        if self._odd():
            values[self._chance.choice(("id", "type", "node", "msgId"))] = IDS
        for number, (name, some) in enumerate(values.items()):
            optional = name.startswith("{")
            if self._chance.random() < (0.6 if optional else 0.05):
                continue
            space, _, local = name.rpartition("}")
            if space:
                written.append(f" xmlns:n{number}={self._quoted(space[1:])}")
                local = f"n{number}:{local}"
            written.append(f" {local}={self._quoted(self._value(some))}")
        return "".join(written)

    # -- values ------------------------------------------------------------

    def _odd(self) -> bool:
        """Whether something is to be wrong here."""
        return self._chance.random() < 0.06

    def _value(self, some: Sequence[str]) -> str:
        usual = self._chance.random() < 0.5
        value = self._chance.choice(some[:2] if usual else some)
        return value + self._names if some in (IDS, NODES) else value

    def _quoted(self, value: str) -> str:
        quote = self._chance.choice("'\"")
        text = escape(value, {quote: "&#39;" if quote == "'" else "&#x22;"})
        for character in "\t\n\r":
            text = text.replace(character, f"&#{ord(character)};")
        return quote + text + quote

    def _text(self, value: str) -> str:
        way = self._chance.randrange(8)
        if way == 0 and "]]>" not in value:
            return f"<![CDATA[{value}]]>"
        if way == 1:
            return "".join(f"&#x{ord(each):x};" for each in value[:50])
        return escape(value)
