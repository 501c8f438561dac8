"""Audits two sets of journals in turn, into the same folder, until it is killed."""

import itertools
import sys
from datetime import UTC, datetime

from qos.audit.driver import audit
from qos.audit.tables import Limits
from qos.spark.session import spark_session


def main(out: str, *journals: str) -> None:
    limits = Limits(now=datetime(2026, 2, 1, tzinfo=UTC))
    with spark_session("audits", master="local[2]", quiet=True) as spark:
        for number in itertools.count():
            audit(
                spark,
                [journals[number % len(journals)]],
                out,
                limits=limits,
                progress=lambda step: print(step, flush=True),
            )
            print("done", flush=True)


main(*sys.argv[1:])
