"""A worker: takes the items of a queue, eight at a time."""

from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP

from qos.worker import Job, Worker


async def pack(order: ET.Element | None) -> None:
    """The work itself."""


async def handle(job: Job) -> None:  # accepted on return, failed on an exception
    await pack(job.payload)


async def work(client: ClientXMPP) -> None:
    worker = Worker(client, "queue.example.org", "orders", parallel=8)
    worker.install_signal_handlers()  # SIGTERM: end what runs, give back the rest
    await worker.run(handle)  # 8 items at a time
