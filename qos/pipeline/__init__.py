"""What the journals of many nodes say together, found out with Spark.

The extra `[spark]`. Nothing outside of this package and `qos.cli.audit` may import
its modules, but for `synth` and `session`, which need no Spark; nothing here is imported by
`import qos.pipeline` itself.

Modules, in the order in which the data passes them::

    schema    a line of the journal as Spark has it
    read      journals -> lines, checked -> events, and the problems of the files
    lines     checks lines in bulk, in the Python workers of Spark
    told      lines of messages -> what each node says of a message, far fewer rows
    stage     keeps that, and the checked lines of all else, while tables are made of it
    tables    events -> the tables: pure functions, no session inside
    store     tables <-> Delta tables, by date; days are replaced in one commit (`delta`,
              `parquet_files`, `locations`, `hadoop`)
    audits    which versions of the tables belong together; takes back what was killed
    snapshot  the tables for readers, at these versions; needs no Spark
    report    tables -> one HTML page (`report_collect` collects, `report` draws)
    session   a Spark session, or one clear line why there is none
    driver    all of them in order: an audit
    carry_over  what one audit leaves to the next: messages and items without an end
    follow    the same, look by look: `claim` locks a folder, `new_files` lists what is
              new, `state` knows what was said of each of the `subjects` before, `step`
              makes their rows again, `swap` replaces them, `staging` keeps the rest
    declarative  the same tables as a Spark Declarative Pipeline, to be copied

And queues and messages as sources and sinks of Spark, which know nothing of journals::

    xmpp_formats      `register(spark)`: the formats `xmpp-queue` and `xmpp`, their options
    queue_source      what Spark asks of a source; thin
    queue_receiver    holds the locks, retracts what is done
    queue_landing     the items in files, from the moment that Spark may count on them
    queue_checkpoint  what is done, as Spark's own checkpoint says
    queue_sink        rows -> items
    xmpp_sink         rows -> assured messages
    xmpp_rows         what both sinks share: columns, ids that a repeat has again
    xmpp_options      the options of the formats: those of the commands
    xmpp_daemon       Python processes of Spark that have imported all this already
    xmpp_connection   a session in the background of code that waits
"""
