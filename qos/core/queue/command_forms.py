"""The forms and tables that commands show (XEP-0004), as values without XML.

Texts are for people. What is shown of an item or a queue is cut, so that an answer fits
into a stanza.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from qos.core.queue.item import Item, ItemOutcome, ItemState, Node, Subscription
from qos.core.queue.node_options import NODE_FIELDS, NODE_TYPE, TOPIC, Field
from qos.core.queue.results import ItemsResult
from qos.core.queue.stats import COUNT_LABELS
from qos.core.record import record
from qos.core.strings import one_line

__all__ = [
    "CHOICES_CHARS_MAX",
    "CHOICES_MAX",
    "Counts",
    "Form",
    "FormField",
    "Table",
    "configuration_form",
    "confirmation_form",
    "counts_form",
    "dead_form",
    "died_here",
    "items_table",
    "node_form",
    "page_form",
    "queues_table",
    "workers_table",
]

#: The names of queues in one list to choose from, and their characters together. With
#: more, the name is typed.
CHOICES_MAX = 200
CHOICES_CHARS_MAX = 10_000

#: The characters of a cell, of the label of a choice, and of a payload.
_CELL_CHARS_MAX = 120
_PAYLOAD_CHARS_MAX = 200

#: The counts of a node by name; None: there is nothing to count now.
Counts: TypeAlias = Mapping[str, int | float | None]

Kind: TypeAlias = Literal[
    "text-single", "text-multi", "boolean", "list-single", "list-multi"
]


@record(frozen=True, slots=True, kw_only=True)
class FormField:
    """A field (XEP-0004 §3.2).

    Attributes:
        var: its name.
        label: what it is, for people.
        kind: its type.
        values: that it has at first.
        options: the values to choose from, each with its label.
        required: it must be filled in.
    """

    var: str
    label: str
    kind: Kind = "text-single"
    values: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    required: bool = False


@record(frozen=True, slots=True)
class Form:
    """A form to fill in, or a result to read.

    Attributes:
        title: of the form.
        instructions: what to do with it; '': nothing.
        fields: in this order.
        result: it is only to be read.
    """

    title: str
    instructions: str
    fields: tuple[FormField, ...]
    result: bool = False


@record(frozen=True, slots=True)
class Table:
    """A table to read (XEP-0004 §3.4), the last thing that a command shows.

    Attributes:
        title: of the table.
        columns: name and label of each.
        rows: each with as many cells as there are columns.
    """

    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def lines(self) -> list[str]:
        """The rows as text, without empty cells, for clients that show no tables."""
        heads = [label for _, label in self.columns[1:]]
        return [
            f"{name}: "
            + ", ".join(
                f"{head} {cell}"
                for head, cell in zip(heads, cells, strict=True)
                if cell
            )
            for name, *cells in self.rows
        ]


def node_form(title: str, names: Sequence[str], more: Sequence[FormField] = ()) -> Form:
    """The form that asks for a queue, and perhaps for more.

    Args:
        title: of the form.
        names: of the queues to choose from, sorted, at least one.
        more: further fields.
    """
    label = "The queue"
    field = FormField(var="node", label=label, required=True)
    instructions = f"There are {len(names)} queues: type the name of one."
    if len(names) <= CHOICES_MAX and sum(map(len, names)) <= CHOICES_CHARS_MAX:
        field = FormField(
            var="node",
            label=label,
            kind="list-single",
            values=(names[0],),
            options=tuple((name, name) for name in names),
            required=True,
        )
        instructions = "Choose a queue."
    return Form(title, instructions, (field, *more))


def queues_table(title: str, counts: Mapping[str, Counts]) -> Table:
    """The queues by name, with the counts that people look at first."""
    columns = (
        "available",
        "acquired",
        "delayed",
        "dead",
        "subscribers",
        "oldest_seconds",
    )
    rows = tuple(
        (name, *(_number(count.get(column)) for column in columns))
        for name, count in counts.items()
    )
    heads = ("Available", "Acquired", "Delayed", "Dead", "Subscribers", "Oldest (s)")
    return Table(title, (("node", "Queue"), *zip(columns, heads, strict=True)), rows)


def page_form(table: Table, instructions: str) -> Form:
    """The rows of a table as text, in a form, with which a command goes on.

    Profanity takes nothing but a form from a command that goes on.
    """
    lines = FormField(
        var="text", label="As text", kind="text-multi", values=tuple(table.lines)
    )
    return Form(table.title, instructions, (lines,))


def counts_form(title: str, name: str, counts: Counts) -> Form:
    """All counts of one queue."""
    fields = [FormField(var="node", label="The queue", values=(name,))]
    fields += [
        FormField(var=var, label=label, values=(_number(counts[var]),))
        for var, label in COUNT_LABELS
        if var in counts
    ]
    return Form(title, "", tuple(fields), result=True)


def items_table(title: str, result: ItemsResult, payloads: Mapping[int, str]) -> Table:
    """The items of a page, with the beginning of each payload."""
    columns = (
        ("id", "Id"),
        ("state", "State"),
        ("priority", "Priority"),
        ("deliveries", "Deliveries"),
        ("published", "Published (UTC)"),
        ("reason", "Failed last because"),
        ("payload", "Payload"),
    )
    rows = tuple(
        (
            _cell(item.item_id),
            _state(item, result.now),
            str(item.priority),
            str(item.delivery_count),
            _moment(item.published_at),
            _reason(item),
            _cell(payloads.get(item.seq, ""), _PAYLOAD_CHARS_MAX),
        )
        for item in result.items
    )
    return Table(title, columns, rows)


def died_here(result: ItemsResult) -> dict[str, Item]:
    """The dead items that can be requeued in this queue, by the ids they had here.

    A dead letter of another queue is requeued there. Of several items with one id, the
    one that died last counts.
    """
    return {
        item.origin_id if item.origin else item.item_id: item
        for item in result.items
        if item.origin in {"", result.node}
    }


def dead_form(
    title: str, dead: Mapping[str, Item], *, more: bool, hint: str = ""
) -> Form:
    """The form to choose dead items in.

    Args:
        title: of the form.
        dead: the items by their ids.
        more: there is a next page.
        hint: what is to be known beside, a sentence; '': nothing.
    """
    options = tuple(
        (item_id, _cell(f"{item_id}: {_reason(item)}"))
        for item_id, item in dead.items()
    )
    instructions = (
        f"Choose the items to be put back into the queue. This page has {len(dead)}"
        + (" of them, and the next page more." if more else ".")
        + (hint and f" {hint}")
    )
    fields = (
        FormField(var="items", label="Dead items", kind="list-multi", options=options),
        FormField(
            var="every",
            label="Requeue all dead items of this queue, on all pages",
            kind="boolean",
            values=("0",),
        ),
    )
    return Form(title, instructions, fields)


def workers_table(title: str, subscriptions: Iterable[Subscription]) -> Table:
    """The subscriptions of a queue."""
    columns = (
        ("jid", "Worker"),
        ("requests", "Items at a time"),
        ("batch", "Items in one event"),
        ("state", "State"),
        ("selector", "Selector"),
    )
    rows = tuple(
        (
            _cell(subscription.jid),
            str(subscription.queue_requests),
            str(subscription.batch),
            "active" if subscription.dormant_since is None else "away",
            _cell(subscription.selector),
        )
        for subscription in subscriptions
    )
    return Table(title, columns, rows)


def configuration_form(title: str, node: Node | None) -> Form:
    """The configuration of a queue; None: of one to be created, with a name to choose."""
    fields = [
        _config_field(field, {} if node is None else node.config)
        for field in NODE_FIELDS
        if node is None or field.var not in {NODE_TYPE, TOPIC}
    ]
    if node is not None:
        text = f"Change what you like of {_cell(node.name)!r}."
        return Form(title, text, tuple(fields))
    name = FormField(var="node", label="The name of the queue", required=True)
    text = "Name the queue. The rest may stay as it is."
    return Form(title, text, (name, *fields))


def confirmation_form(title: str, name: str, counts: Counts, loss: str) -> Form:
    """The form that asks once more.

    Args:
        title: of the form.
        name: of the queue.
        counts: of it.
        loss: what is lost, in words.
    """
    items = ", ".join(
        f"{_number(counts.get(state, 0))} {state}"
        for state in ("available", "acquired", "delayed", "dead")
    )
    text = f"{loss} This cannot be undone. Items of {_cell(name)!r} now: {items}."
    confirm = FormField(
        var="confirm",
        label=f"Yes: {title[0].lower()}{title[1:]}",
        kind="boolean",
        values=("0",),
        required=True,
    )
    return Form(title, text, (confirm,))


# -- cells -----------------------------------------------------------------


def _config_field(field: Field, config: Mapping[str, str]) -> FormField:
    value = config.get(field.var, field.default or "")
    return FormField(
        var=field.var,
        label=field.label,
        kind="list-single" if field.choices else "text-single",
        values=(value,),
        options=tuple((choice, choice) for choice in field.choices),
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def _cell(value: str, chars_max: int = _CELL_CHARS_MAX) -> str:
    """A text as one line, cut."""
    line = one_line(value[:chars_max])
    return line if len(value) <= chars_max else f"{line[: chars_max - 1]}…"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _reason(item: Item) -> str:
    return _cell(item.history[-1].reason) if item.history else ""


def _state(item: Item, now: float) -> str:
    if item.state is ItemState.ACQUIRED:
        return "acquired"
    if item.state is ItemState.ARCHIVED:
        return "accepted" if item.outcome is ItemOutcome.ACCEPTED else "dead"
    return "delayed" if item.is_held_back(now) else "available"
