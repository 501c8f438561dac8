"""Take the items of a queue and work on them (XEP-0254).

::

    async with Worker(client, "queue.example.org", "orders", parallel=8) as worker:
        async for job in worker:         # or: await worker.run(handler)
            async with job:              # accepted on clean exit, failed on an exception
                await handle(job.payload)

Not imported by `import qos`: it needs slixmpp.
"""

from qos.errors import JobLost, UnrecoverableError
from qos.worker.effects import Effects
from qos.worker.job import Job
from qos.worker.worker import Worker

__all__ = ["Effects", "Job", "JobLost", "UnrecoverableError", "Worker"]
