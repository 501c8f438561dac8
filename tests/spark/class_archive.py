"""Writes down the classes that an audit loads, for Java to have them at once.

    python tests/spark/class_archive.py FILE

Each Java of the tests would spend a third of its time to find them in Spark's 250
archives, and to read them.
"""

import contextlib
import os
import runpy
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from pyspark import SparkContext

from benchmarks.synth import Plan, synthesise
from qos.audit.driver import audit
from qos.audit.tables import Limits
from qos.spark.session import spark_session

_END_S_MAX = 120.0


def main(path: Path) -> None:
    # The file must be made with the same options with which it is used, except its own.
    runpy.run_path(str(Path(__file__).parents[1] / "conftest.py"))
    words = os.environ["JAVA_TOOL_OPTIONS"].split(" ")
    os.environ["JAVA_TOOL_OPTIONS"] = " ".join(
        word for word in words if not word.startswith("-XX:SharedArchiveFile=")
    )
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made, journals = Path(folder, "made"), Path(folder, "journals")
        # Only of Spark's Java, not of the one that finds out how to start it.
        option = f"--driver-java-options -XX:ArchiveClassesAtExit={made}"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{option} pyspark-shell"
        plan = Plan(devices=5, messages=60, lost=2, stuck=1, days=2, hours=1)
        synthesise(plan, journals, processes=1)
        with spark_session("classes", master="local[2]", quiet=True) as spark:
            gateway = SparkContext._gateway
            assert gateway is not None
            limits = Limits(now=datetime(2026, 2, 1, tzinfo=UTC))
            audit(spark, [str(journals)], f"{folder}/out", limits=limits)
        # It ends with its stdin, and writes the file then.
        with contextlib.suppress(OSError):
            gateway.proc.stdin.close()
        gateway.proc.wait(_END_S_MAX)
        made.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
