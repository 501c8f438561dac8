"""A bridge between a queue (XEP-0254) and a node of an AMQP 1.0 broker (extra `[amqp]`).

::

    broker = Broker(host="127.0.0.1", port=5672, address="orders", user="shop", …)
    bridge = FromBroker(session, broker, "queue.example.org", "orders")
    session.start()
    await session.work(bridge.run())

`FromBroker` is in `qos.bridge.from_broker`, and `ToBroker` in `qos.bridge.to_broker`;
`Broker` is in `qos.amqp.broker`.
"""
