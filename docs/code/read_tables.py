import duckdb
from pyspark.sql import SparkSession

from qos.audit.snapshot import snapshot, spark_frame

tables = snapshot("audit")  # name -> deltalake.DeltaTable
frame = tables["deliveries"].to_pandas()
found = duckdb.from_arrow(tables["anomalies"].to_pyarrow_dataset())
spark = SparkSession.builder.getOrCreate()
routes = spark_frame(spark, tables["routes_hourly"])
