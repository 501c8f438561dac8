"""The second half of a step of a command: from the outcome of a job to what is shown.

The first half is `command_inputs`, which has the picture of all stages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from qos.core.queue import command_forms as forms
from qos.core.queue.command_forms import Form, Table
from qos.core.queue.command_session import (
    Answered,
    CountNodes,
    FindNodes,
    Job,
    Reply,
    Session,
    Stage,
    Step,
    actions_of,
)
from qos.core.queue.command_table import COMMANDS, Command, Right
from qos.core.queue.requests import (
    Configure,
    Create,
    Delete,
    GetConfigure,
    Items,
    Purge,
    Refusal,
    Requeue,
    Subscriptions,
    no_node,
)
from qos.core.queue.results import (
    ConfigureResult,
    ItemsResult,
    RequeueResult,
    SubscriptionsResult,
)
from qos.core.record import replace

__all__ = [
    "DEAD_PAGE_MAX",
    "ITEMS_PAGE_MAX",
    "ITEM_STATES",
    "QUEUES_PAGE_MAX",
    "REQUEUED_MAX",
    "WORKERS_MAX",
    "fill",
    "follow",
]

#: The rows of a page of queues, of items, and of dead items; the characters of the names
#: or ids in it. An answer with them fits into a stanza.
QUEUES_PAGE_MAX = 100
ITEMS_PAGE_MAX = 30
DEAD_PAGE_MAX = 50
_PAGE_CHARS_MAX = 10_000

#: The subscriptions that are shown.
WORKERS_MAX = 50

#: The dead items after which a command that requeues all of them ends, and says so.
REQUEUED_MAX = 1_000

#: The states of items to browse, with what people see.
ITEM_STATES: Final = (
    ("live", "live"),
    ("accepted", "accepted and kept"),
    ("dead", "dead"),
)


def follow(session: Session, job: Job, outcome: object) -> Step:
    """Go on with the outcome of a job.

    Args:
        session: of the step that had the job.
        job: the job.
        outcome: names, counts, or Answered; see the classes of jobs.

    Raises:
        Refusal: the account has no such right, or the node is gone.
    """
    return _FOLLOWED[type(job)](session, job, outcome)


def _shows(session: Session, stage: Stage, form: Form) -> Step:
    session = replace(session, stage=stage)
    return Step(session, Reply("executing", actions_of(session), form))


def _ends(
    session: Session, note: str = "", content: Form | Table | None = None
) -> Step:
    return Step(session, Reply("completed", (), content, note))


def fill(session: Session, result: ConfigureResult | None) -> Step:
    """Show the form with the configuration; None: of a queue to be created."""
    node = None if result is None else result.node
    form = forms.configuration_form(_title(session), node)
    return _shows(session, Stage.FILL, form)


def _title(session: Session) -> str:
    return COMMANDS[session.command].title


def _after_names(session: Session, _job: FindNodes, names: Sequence[str]) -> Step:
    if not names and session.stage is Stage.BEGIN:
        raise Refusal(
            _REASONS[COMMANDS[session.command].right].format(session.account),
            condition="forbidden",
            type="cancel",  # XEP-0050 §4.4
        )
    if session.command is Command.CREATE:
        return fill(session, None)
    if session.command is Command.QUEUES:
        rest = names[bisect_right(names, session.after) :]
        page = _cut(rest[:QUEUES_PAGE_MAX])
        after = page[-1] if len(page) < len(rest) else ""
        return Step(replace(session, after=after), CountNodes(tuple(page)))
    more = []
    if session.command is Command.BROWSE:
        more.append(
            forms.FormField(
                var="state",
                label="Which items",
                kind="list-single",
                values=("live",),
                options=tuple((state, label) for state, label in ITEM_STATES),
            )
        )
    form = forms.node_form(_title(session), names, more)
    return _shows(session, Stage.CHOOSE, form)


_REASONS: Mapping[Right, str] = {
    Right.USE: "there is no queue here that {} may use",
    Right.SUBSCRIBE: "there is no queue here whose items {} may see",
    Right.OWN: "{} owns no queue here",
    Right.COPY: "{} may not create queues here (`xmpp-qos queue serve --creators` says "
    "who may)",
}


def _cut(names: Sequence[str]) -> Sequence[str]:
    """The first names that are not too long together, and at least one of them."""
    sizes = accumulate(map(len, names))
    return names[: max(1, sum(size <= _PAGE_CHARS_MAX for size in sizes))]


def _after_counts(
    session: Session, _job: CountNodes, counts: Mapping[str, forms.Counts]
) -> Step:
    title = _title(session)
    if session.command is Command.QUEUES:
        if not counts and not session.after:
            return _ends(session, "There are no more queues.")
        table = forms.queues_table(title, counts)
        if not session.after:
            return _ends(session, content=table)
        text = f"There are more queues: next shows up to {QUEUES_PAGE_MAX} of them."
        return _shows(session, Stage.PAGE, forms.page_form(table, text))
    if session.node not in counts:
        raise no_node(session.node)
    count = counts[session.node]
    if session.command is Command.QUEUE:
        return _ends(session, content=forms.counts_form(title, session.node, count))
    loss = "All items are removed, locked and dead ones too."
    if session.command is Command.DELETE:
        loss = (
            "The queue is deleted with all its items; a topic, with the queues that copy "
            "from it."
        )
    form = forms.confirmation_form(title, session.node, count, loss)
    return _shows(session, Stage.CONFIRM, form)


def _after_items(session: Session, _job: Items, answered: Answered) -> Step:
    result = answered.result
    assert isinstance(result, ItemsResult)
    lengths = accumulate(len(item.item_id) for item in result.items)
    fits = max(1, sum(length <= _PAGE_CHARS_MAX for length in lengths))
    page = replace(result, items=result.items[:fits])
    items = page.items
    # The service cuts pages too, so a short page need not be the last one.
    count = session.count + len(items)
    is_last = not items or (result.count is not None and count >= result.count)
    after = "" if is_last else str(items[-1].seq)
    session = replace(session, after=after, count=count)
    if session.command is Command.DEAD:
        return _dead_page(session, page)
    if not items:
        more = "more " if count else ""
        return _ends(session, f"There are no {more}{session.state} items.")
    table = forms.items_table(_title(session), page, answered.payloads)
    if is_last:
        return _ends(session, content=table)
    text = f"There are more items: next shows up to {ITEMS_PAGE_MAX} of them."
    return _shows(session, Stage.PAGE, forms.page_form(table, text))


def _dead_page(session: Session, page: ItemsResult) -> Step:
    dead = forms.died_here(page)
    origins = sorted({item.origin for item in page.items} - {"", session.node})
    hint = ""
    if origins:
        hint = (
            "Dead letters of other queues are not shown: requeue them where they died, "
            f"as in {origins[0]!r}."
        )
    if not dead and not session.after:
        return _ends(session, hint or "There are no dead items.")
    more = session.after != ""
    form = forms.dead_form(_title(session), dead, more=more, hint=hint)
    return _shows(session, Stage.SELECT, form)


def _after_requeue(session: Session, job: Requeue, answered: Answered) -> Step:
    result = answered.result
    assert isinstance(result, RequeueResult)
    # The number of those on the pages that were shown ends here.
    count = len(result.item_ids) + (session.count if job.after else 0)
    session = replace(session, count=count)
    if result.last and count < REQUEUED_MAX:
        return Step(session, Requeue(session.node, (), result.last))
    more = " There are more: execute the command again." if result.last else ""
    return _ends(session, f"Requeued in {session.node!r}: {count}.{more}")


def _after_workers(session: Session, _job: Subscriptions, answered: Answered) -> Step:
    result = answered.result
    assert isinstance(result, SubscriptionsResult)
    subscriptions = result.subscriptions
    if not subscriptions:
        return _ends(session, f"{session.node!r} has no worker.")
    note = ""
    if len(subscriptions) > WORKERS_MAX:
        note = f"The first {WORKERS_MAX} of {len(subscriptions)} workers."
    table = forms.workers_table(_title(session), subscriptions[:WORKERS_MAX])
    return _ends(session, note, table)


def _after_configuration(
    session: Session, _job: GetConfigure, answered: Answered
) -> Step:
    if session.command is Command.CONFIGURE:
        assert isinstance(answered.result, ConfigureResult)
        return fill(session, answered.result)
    return Step(session, CountNodes((session.node,)))


def _after_change(session: Session, job: Job, _answered: Answered) -> Step:
    return _ends(session, f"{_DONE[type(job)]} {session.node!r}.")


_DONE: Mapping[type, str] = {
    Create: "Created",
    Configure: "Changed the configuration of",
    Purge: "Removed all items of",
    Delete: "Deleted",
}

_FOLLOWED: Mapping[type, Callable[[Session, Any, Any], Step]] = {
    FindNodes: _after_names,
    CountNodes: _after_counts,
    Items: _after_items,
    Requeue: _after_requeue,
    Subscriptions: _after_workers,
    GetConfigure: _after_configuration,
    **dict.fromkeys(_DONE, _after_change),
}
