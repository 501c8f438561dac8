"""Replies of commands in XML: as they were meant, and small enough for a stanza."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slixmpp.plugins.xep_0004 import Form as StockForm
from slixmpp.plugins.xep_0004 import FormField as StockField
from slixmpp.plugins.xep_0004.stanza.field import FieldOption as StockOption
from slixmpp.xmlstream import register_stanza_plugin

from qos.core.queue import command_outcomes
from qos.core.queue.command_forms import (
    CHOICES_CHARS_MAX,
    CHOICES_MAX,
    Form,
    FormField,
    Table,
    dead_form,
    items_table,
    node_form,
    queues_table,
    workers_table,
)
from qos.core.queue.command_outcomes import (
    DEAD_PAGE_MAX,
    ITEMS_PAGE_MAX,
    QUEUES_PAGE_MAX,
    WORKERS_MAX,
)
from qos.core.queue.command_session import Reply, Session
from qos.core.queue.command_table import Command
from qos.core.queue.item import Failure, Item, Subscription
from qos.core.queue.results import ItemsResult
from xep_0254.command_stanza import is_command, read_command, read_form, render_reply
from xep_0254.namespaces import COMMANDS
from xep_0254.service_lists import ANSWER_BYTES_MAX

SESSION = Session(session_id="s<1>", account="a@b", command=Command.BROWSE)
PAGE_CHARS_MAX = command_outcomes._PAGE_CHARS_MAX

#: What XML can carry, without the line ends that it changes.
TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), min_size=1
)


def iq(content: str) -> ET.Element:
    return ET.XML(
        f"<iq xmlns='jabber:client' type='set' id='1' from='a@b/c'>{content}</iq>"
    )


def reply(content: Form | Table | None, **values: Any) -> str:
    asked = iq(f"<command xmlns='{COMMANDS}'/>")
    return render_reply(
        asked, SESSION, Reply("executing", ("next",), content, **values)
    )


# As its plugin does; a client would need a loop.
register_stanza_plugin(StockForm, StockField, iterable=True)
register_stanza_plugin(StockField, StockOption, iterable=True)


def stock(text: str) -> Any:
    """The form as slixmpp reads it."""
    (x,) = ET.XML(text).iter("{jabber:x:data}x")
    return StockForm(xml=x)  # type: ignore[no-untyped-call]  # slixmpp's lack


@given(TEXTS, TEXTS)
def test_a_form_is_read_as_it_was_meant(name: str, label: str) -> None:
    field = FormField(
        var="node",
        label=label,
        kind="list-single",
        values=(name,),
        options=((name, label),),
        required=True,
    )
    form = stock(reply(Form(label, name, (field,))))
    assert (form["title"], form.get_instructions()) == (label, name)
    shown = form.get_fields()["node"]
    assert (shown["label"], shown["value"], shown["required"]) == (label, name, True)
    (option,) = shown["options"]
    assert (option["value"], option["label"]) == (name, label)
    assert form.get_fields()["FORM_TYPE"]["value"] == ["xmpp-qos:admin#browse"]


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=3))
def test_a_table_is_read_as_it_was_meant(rows: list[tuple[str, str]]) -> None:
    form = stock(reply(Table("t", (("a", "A"), ("b", "B")), tuple(rows))))
    assert [(row["a"], row["b"]) for row in form.get_items()] == rows
    assert form["type"] == "result"


def test_empty_cells_are_left_out_of_the_text() -> None:
    table = Table("t", (("n", "Name"), ("a", "A"), ("b", "B")), (("x", "", "2"),))
    assert table.lines == ["x: B 2"]


def test_the_head_of_a_reply() -> None:
    command = ET.XML(reply(None, note="Done & gone."))[0]
    assert command.get("sessionid") == "s<1>"
    actions, note = command
    assert actions.attrib == {"execute": "next"}
    assert [child.tag for child in actions] == [f"{{{COMMANDS}}}next"]
    assert (note.get("type"), note.text) == ("info", "Done & gone.")


def test_only_a_set_with_a_command_executes_one() -> None:
    command = f"<command xmlns='{COMMANDS}' node='n' action='a' sessionid='s'/>"
    assert is_command(iq(command))
    assert not is_command(iq(command * 2))
    assert not is_command(iq(""))
    get = iq(command)
    get.set("type", "get")
    assert not is_command(get)
    request = read_command(iq(command))
    assert (request.node, request.action, request.session_id) == ("n", "a", "s")
    assert read_form(iq(command)) is None


BAD = "&" * 1000
ITEM = Item(
    seq=1,
    node="n",
    item_id=BAD,
    publisher="a@b",
    digest="",
    size=1,
    published_at=1.0,
    available_at=1.0,
    history=(Failure(1.0, "a@b/c", BAD),),
)
COUNTS = dict.fromkeys(
    ("available", "acquired", "delayed", "dead", "subscribers", "oldest_seconds"),
    10**9,
)


def of_items() -> Table:
    items = (ITEM,) * ITEMS_PAGE_MAX
    result = ItemsResult(node="n", items=items, count=None, now=1.0)
    return items_table("t", result, {1: BAD})


def of_queues() -> Table:
    length = PAGE_CHARS_MAX // QUEUES_PAGE_MAX
    names = (f"{number:03}".ljust(length, "&") for number in range(QUEUES_PAGE_MAX))
    return queues_table("t", dict.fromkeys(names, COUNTS))


def of_workers() -> Table:
    worker = Subscription(
        node="n",
        jid=f"a@b/{BAD}",
        subid="s",
        via="",
        queue_requests=1000,
        selector=BAD,
    )
    return workers_table("t", (worker,) * WORKERS_MAX)


def of_names() -> Form:
    return node_form("t", ["&" * (CHOICES_CHARS_MAX // CHOICES_MAX)] * CHOICES_MAX)


def of_dead() -> Form:
    length = PAGE_CHARS_MAX // DEAD_PAGE_MAX
    ids = (f"{number:03}".ljust(length, "&") for number in range(DEAD_PAGE_MAX))
    return dead_form("t", dict.fromkeys(ids, ITEM), more=True)


@pytest.mark.parametrize("make", [of_items, of_queues, of_workers, of_names, of_dead])
def test_the_largest_page_fits_into_a_stanza(make: Any) -> None:
    """Whoever publishes or subscribes could end the stream of the service otherwise."""
    size = len(reply(make()).encode())
    assert 50_000 < size < ANSWER_BYTES_MAX
