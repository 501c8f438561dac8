"""Queues and messages as sources and sinks of Spark. The extra `[spark]`.

Nothing here knows of journals. Modules::

    session           a Spark session, or one clear line why there is none; `java` finds
                      the Java for it, which `environment` starts in the same way for
                      every user; `causes` says why Spark has failed
    formats           `register(spark)`: the formats `xmpp-queue` and `xmpp`
    options           their options, like those of the commands
    queue_source      the interface of a source for Spark; thin
    queue_receiver    holds the locks, retracts items that are done
    queue_landing     the items in files, from the moment that Spark may count on them
    queue_checkpoint  the progress, by Spark's own checkpoint
    queue_sink        rows -> items
    message_sink      rows -> assured messages
    sender_stores     the stores of its messages, which are those of one sender
    rows              shared by both sinks: columns, and ids that stay the same in a
                      repeat; `identity` reads the option that says what a row is
    daemon            Python processes of Spark that have imported all this already
    connection        a session in the background of blocking code
    readings          sensor readings (XEP-0323) in payloads -> typed columns;
                      `sensor_data` reads one payload
"""
