"""Take the items of a queue and work on them (XEP-0254).

::

    async def handle(job: Job) -> None:  # accepted on return, failed on an exception
        await pack(job.payload)

    worker = Worker(client, "queue.example.org", "orders", parallel=8)
    worker.install_signal_handlers()     # SIGTERM and Ctrl-C stop it in order
    await worker.run(handle)             # 8 items at a time

Not imported by `import qos`: it needs slixmpp.
"""

from qos.errors import JobLost, UnrecoverableError
from qos.worker.effects import Effects
from qos.worker.job import Job
from qos.worker.worker import Worker

__all__ = ["Effects", "Job", "JobLost", "UnrecoverableError", "Worker"]
