"""Orders with properties, and a worker that takes only some of them."""

from slixmpp import ClientXMPP

from qos.worker import Job, NewItem, Queue

SERVICE, NODE = "queue.example.org", "orders"


async def publish(client: ClientXMPP) -> None:
    order = "<order xmlns='urn:example:shop' number='7'/>"
    item = NewItem(order, properties={"color": "red", "n": 7, "express": True})
    await Queue(client, SERVICE, NODE).publish([item])


async def handle(job: Job) -> None:
    print(job.id, job.properties["color"])


async def work(client: ClientXMPP) -> None:
    wanted = "color IN ('red', 'blue') AND n > 5 AND NOT JMSRedelivered"
    await Queue(client, SERVICE, NODE).run(handle, selector=wanted)
