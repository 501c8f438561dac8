"""A recorder of messages: an engine tells it each step, with a journal or without.

Engines need not ask whether there is a journal: without one they use a `Recorder`,
which keeps nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from qos.core.message.effects import Effect
from qos.core.message.model import Incoming, Outgoing
from qos.core.message.receiver_table import ReceiverInput, Request
from qos.core.message.sender_table import SenderInput
from qos.journal import messages
from qos.journal.writer import JournalWriter

__all__ = ["Recorder", "recorder_of"]


class Recorder:
    """A null recorder.

    `qos.journal.messages` says what each call means for the journal.
    """

    def accepted(self, record: Outgoing) -> None:
        """A new message was accepted."""

    def not_accepted(self, record: Outgoing) -> None:
        """A new message could not be written."""

    def sent(
        self, record: Outgoing, input_: SenderInput, effects: Sequence[Effect]
    ) -> None:
        """A step of a message in flight; the record is that after the step."""

    def received(
        self,
        record: Incoming | None,
        input_: ReceiverInput,
        effects: Sequence[Effect],
        request: Request | None,
    ) -> None:
        """A step of a message at its receiver; see `messages.received`."""

    def handed_over(self, record: Incoming) -> None:
        """The message is handed over now."""

    def released(self, record: Incoming) -> None:
        """The message is still to be handed over, whatever earlier lines say."""

    def not_kept(self, before: Incoming | None, record: Incoming | None) -> None:
        """A step could not be written: a message that began with it has ended."""

    def refused(self, request: Request, condition: str) -> None:
        """A request was refused."""

    def malformed(self, source: str, to: str, condition: str) -> None:
        """A request was malformed, and was refused."""

    async def close(self) -> None:
        """Record nothing more, and close the journal."""


class _Recorder(Recorder):
    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal

    def accepted(self, record: Outgoing) -> None:
        self._journal.note(messages.accepted(record, node=self._journal.node))

    def not_accepted(self, record: Outgoing) -> None:
        self._journal.note(messages.not_accepted(record, node=self._journal.node))

    def sent(
        self, record: Outgoing, input_: SenderInput, effects: Sequence[Effect]
    ) -> None:
        node = self._journal.node
        self._journal.note(*messages.sent(record, input_, effects, node=node))

    def received(
        self,
        record: Incoming | None,
        input_: ReceiverInput,
        effects: Sequence[Effect],
        request: Request | None,
    ) -> None:
        self._journal.note(*messages.received(record, input_, effects, request))

    def handed_over(self, record: Incoming) -> None:
        self._journal.note(messages.handed_over(record))

    def released(self, record: Incoming) -> None:
        self._journal.note(messages.released(record))

    def not_kept(self, before: Incoming | None, record: Incoming | None) -> None:
        self._journal.note(*messages.not_kept(before, record))

    def refused(self, request: Request, condition: str) -> None:
        self._journal.note(messages.refused(request, condition))

    def malformed(self, source: str, to: str, condition: str) -> None:
        self._journal.note(messages.malformed(source, to, condition))

    async def close(self) -> None:
        await self._journal.close()


def recorder_of(journal: JournalWriter | None) -> Recorder:
    """A recorder that writes into this journal; None: a null recorder."""
    return Recorder() if journal is None else _Recorder(journal)
