"""The tables of an audit as a Spark Declarative Pipeline: a folder to be copied.

`spark-pipeline.yml` says how to run it; `tables.py` declares what there is. It is run
by `spark-pipelines`, and nothing else imports the latter.
"""
