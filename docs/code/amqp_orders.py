"""A publisher and a consumer with Apache Qpid Proton: pip install python-qpid-proton."""

import os
import sys
import uuid

from proton import Message
from proton.utils import BlockingConnection

url, queue = sys.argv[1:]  # amqps://shop@queue.example.org, and orders
password = os.environ["PASSWORD"]
connection = BlockingConnection(
    url, password=password, allowed_mechs="PLAIN", timeout=30
)

sender = connection.create_sender(queue)
for number in range(3):
    # send() returns when the message is on the disk of the service. To send it again after
    # a lost connection, use the same id: the same id and content is the same message.
    order = Message(id=str(uuid.uuid4()), body=f"order {number}", durable=True)
    sender.send(order)

receiver = connection.create_receiver(queue, credit=10)
for _ in range(3):
    message = receiver.receive(timeout=30)
    print(message.body, message.delivery_count)
    receiver.accept()  # or reject(), or release(delivered=False)
connection.close()
