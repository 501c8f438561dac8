from collections.abc import Iterable
from pathlib import Path

import duckdb
import numpy as np
from pyspark.sql import SparkSession

from qos.audit.snapshot import snapshot, spark_frame


def p99_s(counts: Iterable[list[int]]) -> float:
    """The 99th percentile of the latency of all rows together, in seconds."""
    up_to = np.cumsum(np.sum(np.stack(list(counts)), axis=0))
    if not up_to[-1]:
        return float("nan")
    bucket = np.searchsorted(up_to, 0.99 * up_to[-1])
    return float(0.001 * 10 ** (bucket / 10))


here = Path(__file__).parent
table = snapshot("audit")["routes_hourly"]

frame = table.to_pandas()
counts = frame.dropna(subset="latency_counts").groupby("level")["latency_counts"]
by_pandas = {level: p99_s(rows) for level, rows in counts}

routes_hourly = table.to_pyarrow_dataset()  # DuckDB finds it by its name
by_duckdb = duckdb.execute((here / "p99_duckdb.sql").read_text()).fetchall()

spark = SparkSession.builder.getOrCreate()
spark_frame(spark, table).createOrReplaceTempView("routes_hourly")
by_spark = spark.sql((here / "p99_spark.sql").read_text()).collect()
