"""Publish to a queue and work on its items (XEP-0254).

::

    async def handle(job: Job) -> None:  # accepted on return, failed on an exception
        await pack(job.payload)

    queue = Queue(device, "queue.example.org", "orders")
    await queue.publish(json={"number": 7})
    await queue.run(handle, parallel=8)  # until SIGTERM or Ctrl-C, and stops in order

`Worker` is below it, for programs that take their items one by one.

Not imported by `import qos`: it needs slixmpp.
"""

from qos.errors import JobLost, UnrecoverableError
from qos.worker.effects import Effects
from qos.worker.job import Job
from qos.worker.queue import Queue, WorkerOptions
from qos.worker.worker import Worker
from xep_0254.items import NewItem, Published

__all__ = [
    "Effects",
    "Job",
    "JobLost",
    "NewItem",
    "Published",
    "Queue",
    "UnrecoverableError",
    "Worker",
    "WorkerOptions",
]
