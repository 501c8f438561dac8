"""A console at the core: it executes commands, and does their jobs in a `World`."""

from __future__ import annotations

import itertools

from qos.core.queue.command_forms import Form, Table
from qos.core.queue.command_inputs import (
    Values,
    begin,
    cancel,
    checked_action,
    for_command,
    submit,
)
from qos.core.queue.command_outcomes import follow
from qos.core.queue.command_session import (
    Answered,
    CountNodes,
    FindNodes,
    Job,
    Reply,
    Session,
    Step,
)
from qos.core.queue.command_table import Command, has_right
from qos.core.queue.requests import Refusal
from qos.core.queue.results import ItemsResult
from qos.core.strings import bare
from queue_world import World

__all__ = ["Console"]


class Console:
    """One account, with one session at a time.

    Attributes:
        session: as it would be kept.
        reply: the last one.
        jobs: all that were done.
    """

    def __init__(self, world: World, requester: str, *, creates: bool = False) -> None:
        self.world = world
        self.requester = requester
        self.creates = creates
        self.session: Session | None = None
        self.reply = Reply("canceled")
        self.jobs: list[Job] = []
        self._ids = itertools.count(1)

    def execute(self, command: Command) -> Reply:
        """Begin a command."""
        session = Session(
            session_id=f"s{next(self._ids)}",
            account=bare(self.requester),
            command=command,
        )
        checked_action(None, "")
        return self._do(begin(session, creates=self.creates))

    def go_on(self, action: str = "", **values: str | tuple[str, ...]) -> Reply:
        """Fill in the form; `__` in a name is the `#` of a field."""
        texts = {
            var.replace("__", "#"): value if isinstance(value, tuple) else (value,)
            for var, value in values.items()
        }
        return self.send(action, texts)

    def send(self, action: str, values: Values | None) -> Reply:
        """Go on with this form, or with none."""
        assert self.session is not None
        meant = checked_action(self.session, action)
        if meant == "cancel":
            return self._do(cancel(self.session))
        return self._do(submit(self.session, meant, lambda: values))

    @property
    def form(self) -> Form:
        assert isinstance(self.reply.content, Form)
        return self.reply.content

    @property
    def table(self) -> Table:
        assert isinstance(self.reply.content, Table)
        return self.reply.content

    @property
    def names(self) -> list[str]:
        """What the rows of a page begin with."""
        if isinstance(self.reply.content, Table):
            return [row[0] for row in self.reply.content.rows]
        (lines,) = self.form.fields
        return [line.partition(": ")[0] for line in lines.values]

    def _do(self, step: Step) -> Reply:
        while not isinstance(step.act, Reply):
            job = step.act
            self.jobs.append(job)
            try:
                step = follow(step.session, job, self._outcome(job))
            except Refusal as refusal:
                raise for_command(refusal) from None
        self.session, self.reply = step.session, step.act
        return self.reply

    def _outcome(self, job: Job) -> object:
        core, account = self.world.core, bare(self.requester)
        if isinstance(job, FindNodes):
            may = has_right(job.right)
            return sorted(
                name
                for name, queue in core.nodes.items()
                if may(queue.node, queue.options, account)
            )
        if isinstance(job, CountNodes):
            return {
                name: self.world.stats(name, self.requester)
                for name in job.names
                if name in core.nodes
            }
        result = self.world.ask(job, self.requester)
        payloads = {}
        if isinstance(result, ItemsResult):
            payloads = {item.seq: f"<x>{item.item_id}</x>" for item in result.items}
        return Answered(result, payloads)
