"""A flood of the doors: what strangers and accounts do to XMPP, AMQP and HTTP.

`python -m doors`, with tests/harness in the PYTHONPATH, starts Prosody and a queue service
with both gateways, all with TLS. Honest clients of each door make a request every 50 ms,
and now and then a new login. Beside them one attack after the other runs in a process of
its own. The longest waits of the honest clients are what counts.

::

    place      the servers, the users and the queues
    honest     the honest clients, a process for each door
    attacker   a process that runs one attack
    attacks    the attacks, by name
    report     the table
"""
