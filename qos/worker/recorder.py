"""A recorder of a worker's jobs: the leases tell it each step, journal or not.

A job gets two lines: one when a handler begins, and one at its end. Neither has the
reason of a failure, which may quote the payload.
"""

from __future__ import annotations

from qos.core.queue.item import Disposition, ItemOutcome
from qos.journal.schema import Entry, WorkerEvent
from qos.journal.writer import JournalWriter
from qos.worker.job import Job

__all__ = ["JobRecorder", "job_recorder_of"]

_OUTCOMES = {
    ItemOutcome.ACCEPTED: WorkerEvent.ACCEPTED,
    ItemOutcome.RELEASED: WorkerEvent.RELEASED,
    ItemOutcome.MODIFIED: WorkerEvent.MODIFIED,
    ItemOutcome.REJECTED: WorkerEvent.REJECTED,
}


class JobRecorder:
    """A null recorder: it keeps nothing."""

    def started(self, job: Job) -> None:
        """A handler begins a job."""

    def settled(self, job: Job, how: Disposition) -> None:
        """The service has confirmed the settlement of a job."""

    def released(self, job: Job) -> None:
        """A job is given back, because the worker stops."""

    def lost(self, job: Job, reason: str, condition: str | None = None) -> None:
        """A job does not belong to the worker any more.

        Args:
            job: the job.
            reason: in words; text after a colon is left out.
            condition: the stanza error that said so, or None.
        """


class _JobJournal(JobRecorder):
    def __init__(self, journal: JournalWriter, service: str, node: str) -> None:
        self._journal = journal
        self._service = service
        self._node = node
        # Jobs with a line for their beginning and none for their end.
        self._begun: set[Job] = set()

    def started(self, job: Job) -> None:
        self._begun.add(job)
        self._note(job, WorkerEvent.STARTED, attempt=job.delivery_count + 1)

    def settled(self, job: Job, how: Disposition) -> None:
        self._end(job, _OUTCOMES[how.outcome], _condition(how))

    def released(self, job: Job) -> None:
        self._end(job, WorkerEvent.RELEASED, "stopped")

    def lost(self, job: Job, reason: str, condition: str | None = None) -> None:
        self._end(job, WorkerEvent.LOST, condition or reason.partition(":")[0])

    def _end(self, job: Job, event: WorkerEvent, condition: str | None) -> None:
        if job in self._begun:
            self._begun.discard(job)
            self._note(job, event, condition=condition)

    def _note(
        self,
        job: Job,
        event: WorkerEvent,
        *,
        attempt: int | None = None,
        condition: str | None = None,
    ) -> None:
        self._journal.note(
            Entry(
                event,
                source=self._service,
                queue=self._node,
                item=job.id,
                attempt=attempt,
                condition=condition,
            )
        )


def job_recorder_of(
    journal: JournalWriter | None, service: str, node: str
) -> JobRecorder:
    """The recorder of a worker at a node; without a journal a null recorder."""
    return JobRecorder() if journal is None else _JobJournal(journal, service, node)


def _condition(how: Disposition) -> str | None:
    if how.undeliverable_here:
        return "undeliverable-here"
    return "failed" if how.delivery_failed else None
