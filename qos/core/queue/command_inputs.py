"""The first half of a step of a command: from a request to a job (XEP-0050 §3.4).

    begin ──> CHOOSE ──> PAGE ⟲           queues (from begin), browse
                    ├──> SELECT ⟲         dead
                    ├──> FILL             configure; create (from begin)
                    ├──> CONFIRM          purge, delete
                    └──> completed        queue, workers; and all others, in the end

A step replies, or names a job: names or counts of nodes, or a request to the service. The
outcome of the job makes the next step (`command_outcomes.follow`). A session changes only
when its reply is sent, so a form that was refused can be sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from qos.core.queue.command_outcomes import (
    DEAD_PAGE_MAX,
    ITEM_STATES,
    ITEMS_PAGE_MAX,
    fill,
)
from qos.core.queue.command_session import (
    CommandRefusal,
    CountNodes,
    FindNodes,
    Job,
    Reply,
    Session,
    Stage,
    Step,
    actions_of,
    bad,
)
from qos.core.queue.command_table import COMMANDS, Command, Right
from qos.core.queue.node_options import NODE_FIELDS
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
)
from qos.core.record import replace
from qos.core.strings import ID_CHARS_MAX

__all__ = [
    "FORM_CHARS_MAX",
    "Values",
    "begin",
    "cancel",
    "checked_action",
    "for_command",
    "submit",
]

#: The values of `action` (XEP-0050 §4.1).
_ACTIONS: Final = frozenset({"execute", "cancel", "prev", "next", "complete"})

#: The characters of all values of a form: room for a page of ids.
FORM_CHARS_MAX = 64 * 1024

#: The values of a form by the names of its fields.
Values: TypeAlias = Mapping[str, tuple[str, ...]]


def begin(session: Session, *, creates: bool) -> Step:
    """Execute a command.

    Args:
        session: a new one.
        creates: the account may create nodes.
    """
    if session.command is Command.CREATE and creates:
        return fill(session, None)
    return Step(session, FindNodes(COMMANDS[session.command].right))


def checked_action(session: Session | None, action: str) -> str:
    """The action that a request means: `execute` is the default one.

    Args:
        session: that the request goes on with; None: it begins one.
        action: as the request has it; '': none.

    Raises:
        CommandRefusal: there is no such action, or not now (XEP-0050 §4.4).
    """
    action = action or "execute"
    if action not in _ACTIONS:
        words = ", ".join(sorted(_ACTIONS))
        raise bad(
            f"action must be one of {words}, not {action[:20]!r}", "malformed-action"
        )
    if session is None:
        if action != "execute":
            raise bad(
                f"{action} goes on with a session, and needs its sessionid: begin with "
                "execute",
                "bad-action",
            )
        return action
    actions = actions_of(session)
    if action == "execute":
        return actions[0]
    if action not in actions and action != "cancel":
        raise bad(
            f"{action} is not possible now, but {' or '.join(actions)} or cancel is",
            "bad-action",
        )
    return action


def cancel(session: Session) -> Step:
    """Give the command up; what it has done is done."""
    return Step(session, Reply("canceled"))


def submit(
    session: Session, action: str, read_form: Callable[[], Values | None]
) -> Step:
    """Go on with a session.

    Args:
        session: the session.
        action: one of `checked_action`, but `cancel`.
        read_form: returns the values of the form; None: the request has none. Not called
            where there was no form to fill in.

    Raises:
        CommandRefusal: the form is not that of this stage, or is incomplete.
    """
    if session.stage is Stage.PAGE:
        # There was nothing to fill in.
        if action == "complete":
            return Step(session, Reply("completed"))
        return Step(session, _next_page(session))
    values = read_form()
    if values is None:
        raise bad("the form is missing: fill it in and send it", "bad-payload")
    _check_form(session, values)
    return _SUBMITTED[session.stage](session, action, values)


def for_command(refusal: Refusal) -> Refusal:
    """A refusal of a request, as a command answers it.

    A wrong value in a form is the command's `bad-payload`.
    """
    if refusal.type == "modify" and not isinstance(refusal, CommandRefusal):
        return bad(str(refusal), "bad-payload")
    return refusal


# -- forms -----------------------------------------------------------------


#: The fields of each form, and whether a field may have several values.
_CHOOSE_FIELDS = {"node": False}
_BROWSE_FIELDS = {"node": False, "state": False}
_CONFIG_FIELDS = {field.var: False for field in NODE_FIELDS}
_FIELDS: Mapping[tuple[Command, Stage], Mapping[str, bool]] = {
    **{(command, Stage.CHOOSE): _CHOOSE_FIELDS for command in Command},
    (Command.BROWSE, Stage.CHOOSE): _BROWSE_FIELDS,
    (Command.DEAD, Stage.SELECT): {"items": True, "every": False},
    (Command.CREATE, Stage.FILL): {"node": False, **_CONFIG_FIELDS},
    (Command.CONFIGURE, Stage.FILL): _CONFIG_FIELDS,
    (Command.PURGE, Stage.CONFIRM): {"confirm": False},
    (Command.DELETE, Stage.CONFIRM): {"confirm": False},
}


def _check_form(session: Session, values: Values) -> None:
    fields = _FIELDS[session.command, session.stage]
    size = sum(len(text) for texts in values.values() for text in texts)
    if size > FORM_CHARS_MAX:
        raise bad(
            f"the form has {size} characters, over the limit of {FORM_CHARS_MAX}",
            "bad-payload",
        )
    for var, texts in values.items():
        if var not in fields:
            raise bad(f"this form has no field {var[:40]!r}", "bad-payload")
        if len(texts) > (DEAD_PAGE_MAX if fields[var] else 1):
            raise bad(f"{var} has too many values", "bad-payload")
    if "node" not in fields:
        return
    name = _text(values, "node")
    if not name:
        raise bad("the name of the queue is missing: fill in node", "bad-payload")
    if len(name) > ID_CHARS_MAX:
        raise bad(
            f"the name of a queue has at most {ID_CHARS_MAX} characters", "bad-payload"
        )


def _text(values: Values, var: str) -> str:
    """The value of a field; '': it has none."""
    texts = values.get(var, ())
    return texts[0] if texts else ""


def _flag(values: Values, var: str) -> bool:
    """The value of a box to check (XEP-0004 §3.3); without a value it is not checked."""
    text = _text(values, var)
    if text not in {"", "0", "1", "false", "true"}:
        raise bad(f"{var} must be 0 or 1, not {text[:20]!r}", "bad-payload")
    return text in {"1", "true"}


def _config(values: Values) -> dict[str, str]:
    return {var: _text(values, var) for var in values if var in _CONFIG_FIELDS}


def _chosen(session: Session, _action: str, values: Values) -> Step:
    session = replace(session, node=_text(values, "node"))
    node = session.node
    match session.command:
        case Command.QUEUE:
            return Step(session, CountNodes((node,)))
        case Command.WORKERS:
            return Step(session, Subscriptions(node, owner=True))
        case Command.DEAD:
            return Step(session, _next_page(session))
        case Command.BROWSE:
            state = _text(values, "state") or "live"
            if state not in dict(ITEM_STATES):
                words = " or ".join(dict(ITEM_STATES))
                raise bad(f"state must be {words}, not {state[:20]!r}", "bad-payload")
            session = replace(session, state=state)
            return Step(session, _next_page(session))
        case _:
            # Rights first: only an owner sees the configuration.
            return Step(session, GetConfigure(node))


def _selected(session: Session, action: str, values: Values) -> Step:
    if action == "next":
        return Step(session, _next_page(session))
    if _flag(values, "every"):
        return Step(replace(session, after=""), Requeue(session.node))
    item_ids = tuple(dict.fromkeys(values.get("items", ())))
    if not item_ids:
        raise bad("no item is chosen: choose some, or cancel", "bad-payload")
    return Step(session, Requeue(session.node, item_ids))


def _filled(session: Session, _action: str, values: Values) -> Step:
    config = _config(values)
    if session.command is Command.CONFIGURE:
        return Step(session, Configure(session.node, config))
    node = _text(values, "node")
    return Step(replace(session, node=node), Create(node, config))


def _confirmed(session: Session, _action: str, values: Values) -> Step:
    if not _flag(values, "confirm"):
        raise bad("nothing was done: check the box, or cancel", "bad-payload")
    request = Purge if session.command is Command.PURGE else Delete
    return Step(session, request(session.node))


_SUBMITTED: Mapping[Stage, Callable[[Session, str, Values], Step]] = {
    Stage.CHOOSE: _chosen,
    Stage.SELECT: _selected,
    Stage.FILL: _filled,
    Stage.CONFIRM: _confirmed,
}


def _next_page(session: Session) -> Job:
    if session.command is Command.QUEUES:
        return FindNodes(Right.USE)
    dead = session.command is Command.DEAD
    return Items(
        node=session.node,
        max_items=DEAD_PAGE_MAX if dead else ITEMS_PAGE_MAX,
        after=session.after,
        state="dead" if dead else session.state,
    )
