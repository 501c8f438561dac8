"""The tables of an audit as a Spark Declarative Pipeline: a folder to be copied.

`spark-pipeline.yml` shows how to run it; `tables.py` declares the tables.
`spark-pipelines` runs `tables.py`, and no other module imports it.
"""
