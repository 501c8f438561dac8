"""A gateway: AMQP 1.0 clients attach to the queues of a queue service (extra `[amqp]`).

    gateway = Gateway(service.engine, users=Users("users", "queue.example.org"))
    service.add_gateway(gateway)
    await gateway.listen("127.0.0.1", 5672)

`Gateway` is in `qos.amqp.gateway`, and `Users` in `qos.users`, which does not need
the extra.
"""
