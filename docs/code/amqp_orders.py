"""A publisher and a consumer with Apache Qpid Proton: pip install python-qpid-proton."""

import sys

from proton import Message
from proton.utils import BlockingConnection

url, queue = sys.argv[1:]  # amqps://shop:secret@queue.example.org, and orders
connection = BlockingConnection(url, allowed_mechs="PLAIN", timeout=30)

sender = connection.create_sender(queue)
for number in range(3):
    # send() returns when the message is on the disk of the service. The same id and
    # content again, after a lost connection, is the same message.
    sender.send(Message(id=f"order-{number}", body=f"order {number}", durable=True))

receiver = connection.create_receiver(queue, credit=10)
for _ in range(3):
    message = receiver.receive(timeout=30)
    print(message.id, message.body, message.delivery_count)
    receiver.accept()  # or reject(), or release(delivered=False)
connection.close()
