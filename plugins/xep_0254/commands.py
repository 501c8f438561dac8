"""The commands of a queue service (XEP-0050): takes requests, does jobs, sends replies.

What a command shows, and what it asks of the service, is decided in `qos.core.queue`, in
the modules named `command_`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeAlias
from xml.etree import ElementTree as ET

from qos.core.queue.command_inputs import (
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
from qos.core.queue.command_session_table import CommandSessions
from qos.core.queue.command_table import (
    COMMAND_PREFIX,
    Command,
    Right,
    available,
    command_at,
    has_right,
    rights_at,
)
from qos.core.queue.requests import Refusal
from qos.core.queue.results import Result
from qos.core.strings import bare
from qos.engine.payers import STEP_S
from qos.engine.queue_commit import unwritten
from qos.engine.queue_engine import QueueEngine, Stats
from qos.ids import new_key
from xep_0254 import command_stanza
from xep_0254.disco import render_no_items
from xep_0254.event_sender import EventSender
from xep_0254.namespaces import COMMANDS, DISCO_INFO
from xep_0254.service_stanza import render_refusal

__all__ = ["Commands"]

log = logging.getLogger(__name__)

_INFO = f"{{{DISCO_INFO}}}query"

#: Gets the outcome of a job; see `follow`.
_Receiver: TypeAlias = Callable[[object], None]


class Commands:
    """Executes commands at one service."""

    def __init__(
        self,
        engine: QueueEngine,
        events: EventSender,
        *,
        own_domains: Collection[str],
        payer: Callable[[str], str],
        send: Callable[[ET.Element, str], None],
    ) -> None:
        """Begin without sessions.

        Args:
            engine: does the requests.
            events: knows the JID of the service.
            own_domains: of the service; all others are foreign.
            payer: who pays for the work of a full JID.
            send: sends an answer to an iq.
        """
        self._engine = engine
        self._events = events
        self._payer = payer
        self._send = send
        self._sessions = CommandSessions(own_domains)

    # -- execution ---------------------------------------------------------

    def has(self, iq: ET.Element) -> bool:
        """Whether the command in an iq is one of ours, or has such a name."""
        return command_stanza.read_command(iq).node.startswith(COMMAND_PREFIX)

    def execute(self, iq: ET.Element, requester: str) -> None:
        """Answer an iq that executes a command.

        Args:
            iq: one for which `is_command` is true.
            requester: the full JID that asks.
        """
        self._engine.heard(requester)
        session: Session | None = None
        try:
            request = command_stanza.read_command(iq)
            command = command_at(request.node)
            if command is None:
                raise _no_command(request.node)
            if not request.session_id:
                checked_action(None, request.action)
                step = self._begun(command, requester)
            else:
                now, account = self._engine.now(), bare(requester)
                session = self._sessions.take(
                    request.session_id, account, request.node, now
                )
                step = _next_step(iq, session, request.action)
        except Refusal as refusal:
            self._refuse(iq, session, refusal)
            return
        except Exception as error:
            log.exception("a command of %s could not be read", requester)
            self._refuse(iq, session, unwritten(error))
            return
        self._go_on(iq, requester, session, step)

    def _begun(self, command: Command, requester: str) -> Step:
        account = bare(requester)
        session = Session(session_id=new_key(), account=account, command=command)
        return begin(session, creates=self._engine.creates(account))

    def _go_on(
        self, iq: ET.Element, requester: str, before: Session | None, step: Step
    ) -> None:
        """Do a job, or reply.

        Args:
            iq: the request.
            requester: the full JID that asks.
            before: the session that the request goes on with; None: it begins one.
            step: the step that it makes.
        """
        act = step.act
        if isinstance(act, Reply):
            self._reply(iq, before, step.session, act)
            return

        def receive(outcome: object) -> None:
            try:
                if isinstance(outcome, Refusal):
                    raise outcome
                after = follow(step.session, act, outcome)
            except Refusal as refusal:
                self._refuse(iq, before, for_command(refusal))
            except Exception as error:
                log.exception("a command of %s could not go on", requester)
                self._refuse(iq, before, unwritten(error))
            else:
                self._go_on_later(iq, requester, before, after)

        self._do(act, requester, receive)

    def _go_on_later(
        self, iq: ET.Element, requester: str, before: Session | None, step: Step
    ) -> None:
        """Reply at once, or do a further job in a turn of the requester."""
        if isinstance(step.act, Reply):
            self._reply(iq, before, step.session, step.act)
            return

        def go_on() -> bool:
            self._go_on(iq, requester, before, step)
            return False

        self._engine.payers.do(self._payer(requester), go_on)

    def _reply(
        self, iq: ET.Element, before: Session | None, session: Session, reply: Reply
    ) -> None:
        try:
            if reply.status == "executing":
                self._sessions.keep(session, self._engine.now())
            else:
                self._sessions.end(session)
            sender = self._events.sender
            text = command_stanza.render_reply(iq, session, reply, sender=sender)
        except Refusal as refusal:
            self._refuse(iq, None, refusal)
            return
        except Exception as error:
            log.exception("a reply to %s could not be written", iq.get("from"))
            self._refuse(iq, before, unwritten(error))
            return
        self._send(iq, text)

    def _refuse(
        self, iq: ET.Element, session: Session | None, refusal: Refusal
    ) -> None:
        """Answer with an error; the session stays as it was before the request."""
        if session is not None:
            self._sessions.release(session, self._engine.now())
        sender, by = self._events.sender, str(self._events.own or "")
        self._send(iq, render_refusal(iq, refusal, sender=sender, by=by))

    # -- jobs --------------------------------------------------------------

    def _do(self, job: Job, requester: str, receive: _Receiver) -> None:
        if isinstance(job, FindNodes):
            self._engine.nodes(requester, receive, may=has_right(job.right))
        elif isinstance(job, CountNodes):
            self._count(job.names, requester, receive)
        else:

            def answer(result: Result | Refusal, payloads: Mapping[int, str]) -> None:
                if isinstance(result, Refusal):
                    receive(result)
                else:
                    receive(Answered(result, payloads))

            self._engine.request(job, requester, answer)

    def _count(self, names: Sequence[str], requester: str, receive: _Receiver) -> None:
        """Count nodes, some in each turn of the requester."""
        counts: dict[str, Stats | Refusal | None] = dict.fromkeys(names)
        waiting, remaining = set(names), list(reversed(names))
        payers = self._engine.payers

        def note(name: str, stats: Stats | Refusal | None) -> None:
            counts[name] = stats
            waiting.discard(name)
            if not waiting:
                receive(_counted(counts))

        def step() -> bool:
            until = payers.now() + STEP_S
            while remaining:
                name = remaining.pop()
                if not self._engine.stats(name, requester, partial(note, name)):
                    note(name, None)
                if payers.now() >= until:
                    break
            return bool(remaining)

        if not names:
            receive({})
        elif step():
            payers.do(self._payer(requester), step)

    # -- discovery ---------------------------------------------------------

    def discover(self, iq: ET.Element, requester: str) -> bool:
        """Answer a question of service discovery about commands (XEP-0050 §2.2).

        Args:
            iq: a get of disco#info or disco#items.
            requester: the full JID that asks.

        Returns:
            False: it is about something else.
        """
        query = iq[0]
        node = query.get("node", "")
        command = command_at(node)
        if command is None and node != COMMANDS:
            return False
        if command is None and query.tag == _INFO:
            sender = self._events.sender
            text = command_stanza.render_command_info(iq, None, sender=sender)
            self._send(iq, text)
            return True
        rights: set[Right] = set()

        def tell(names: list[str] | Refusal) -> None:
            if isinstance(names, Refusal):
                self._refuse(iq, None, names)
                return
            creates = self._engine.creates(bare(requester))
            self._show(iq, command, available(rights, creates=creates))

        self._engine.nodes(requester, tell, may=rights_at(rights))
        return True

    def _show(
        self, iq: ET.Element, command: Command | None, commands: Sequence[Command]
    ) -> None:
        """Show the commands that an account can use, or what one of them is."""
        service, sender = str(self._events.own), self._events.sender
        if command is None:
            text = command_stanza.render_command_items(
                iq, commands, service=service, sender=sender
            )
        elif command not in commands:
            self._refuse(iq, None, _not_offered(command))
            return
        elif iq[0].tag == _INFO:
            text = command_stanza.render_command_info(iq, command, sender=sender)
        else:
            text = render_no_items(iq, command.node, sender=sender)
        self._send(iq, text)


def _next_step(iq: ET.Element, session: Session, action: str) -> Step:
    """The step that a request makes; its form is read only if the session wants one."""
    action = checked_action(session, action)
    if action == "cancel":
        return cancel(session)
    return submit(session, action, partial(command_stanza.read_form, iq))


def _counted(
    counts: Mapping[str, Stats | Refusal | None],
) -> Mapping[str, Stats] | Refusal:
    """The counts of the nodes that are there; a Refusal: the disk failed."""
    present: dict[str, Stats] = {}
    for name, stats in counts.items():
        if isinstance(stats, Refusal):
            return stats
        if stats is not None:
            present[name] = stats
    return present


def _no_command(node: str) -> Refusal:
    return Refusal(
        f"there is no command {node[:100]!r}: ask for the list of commands",
        condition="item-not-found",
        type="cancel",  # XEP-0050 §4.4
    )


def _not_offered(command: Command) -> Refusal:
    return Refusal(
        f"the command {command.value} is not for this account here",
        condition="forbidden",
        type="cancel",  # XEP-0050 §4.4
    )
