"""A worker: takes the items of a queue, eight at a time."""

from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP

from qos.worker import Job, Queue


async def pack(order: ET.Element | None) -> None:
    """The work itself."""


async def handle(job: Job) -> None:  # accepted on return, failed on an exception
    await pack(job.payload)


async def work(client: ClientXMPP) -> None:  # or the device of qos.connect
    orders = Queue(client, "queue.example.org", "orders")
    await orders.run(handle, parallel=8)  # SIGTERM: end what runs, give back the rest
