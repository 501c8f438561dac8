"""The audit: joins the journals of many nodes with Spark, and finds what went wrong.

It needs the extra `[spark]`. Nothing outside this package and `qos.cli.audit` may
import its modules, except `synth`, which needs no Spark. `import qos.audit` itself
imports nothing from here.

Modules, in the order in which the data passes them::

    schema    a line of the journal as Spark has it
    read      journals -> lines, checked -> events, and the problems of the files
    lines     checks lines in bulk, in the Python workers of Spark (`as_written`: many
              at once; `foreign_lines`: lines of nodes that may not speak there)
    endpoint_summary  lines of messages -> what each node says of a message, far fewer
              rows
    staged_journals   keeps that, and the checked lines of all else, while tables are
              made of it
    tables    events -> the tables: pure functions, no session inside
    store     tables <-> Delta tables, by date; days are replaced in one commit (`delta`,
              `parquet_files`, `locations`, `hadoop`); rows that are there already are not
              written (`unchanged`)
    comments  what each table and column means, for their schemas (`delta_schema`) and for
              the guide; `upgrade` brings tables of earlier versions into this form
    data_quality  problems -> the tables of them and of the `rules` that they break
    audits    which versions of the tables belong together; takes back what was killed, but
              not what somebody else has committed (`commits`); `table_upkeep` gives tables
              their comments, and removes days that are not kept
    forgetting  which accounts no table may have a row about; `erasure` removes them
    snapshot  the tables for readers, at these versions; needs no Spark
    report    tables -> one HTML page (`report_collect` collects, `report` draws,
              with `plotting`, the parts of matplotlib)
    driver    all of them in order: an audit
    carry_over  what one audit leaves to the next: messages and items without an end
              (`earlier_rows` keeps one row of those whose first day was removed)
    former_rows  leaves the rows about nodes whose journals are missing: `judged_nodes` has
              the nodes of each audited day
    follow    the same, look by look: `follow_lock` locks a folder, `new_files` lists what is
              new, `subject_records` has the earlier records of each of the `subjects`,
              `step_tables` makes their rows again, `swap` replaces them,
              `follow_results` writes problems and the report, and `follow_storage` keeps
              the rest
    declarative  the same tables as a Spark Declarative Pipeline, to be copied
"""
