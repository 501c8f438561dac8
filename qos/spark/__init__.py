"""Queues and messages as sources and sinks of Spark. The extra `[spark]`.

Nothing here knows of journals. Modules::

    session           a Spark session, or one clear line why there is none; `java` finds
                      the Java for it
    formats           `register(spark)`: the formats `xmpp-queue` and `xmpp`
    options           their options: those of the commands
    queue_source      what Spark asks of a source; thin
    queue_receiver    holds the locks, retracts what is done
    queue_landing     the items in files, from the moment that Spark may count on them
    queue_checkpoint  what is done, as Spark's own checkpoint says
    queue_sink        rows -> items
    message_sink      rows -> assured messages
    rows              what both sinks share: columns, ids that a repeat has again
    daemon            Python processes of Spark that have imported all this already
    connection        a session in the background of code that waits
    readings          sensor readings (XEP-0323) in payloads -> typed columns;
                      `sensor_data` reads one payload
"""
