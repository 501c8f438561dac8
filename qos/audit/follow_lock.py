"""A lock on the output folder, for one audit at a time; and the options of a stream."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from pyspark.sql import SparkSession

from qos.audit import store
from qos.audit.audits import HIDDEN
from qos.audit.delta import CannotWrite
from qos.audit.locations import local_path

__all__ = ["FOLDER", "CannotFollow", "alone", "check_options"]

#: The folder of a stream's own data, beside the tables. Readers of the tables do not
#: see it.
FOLDER: Final = ".follow"

#: The version of this data.
_VERSION = 2


class CannotFollow(CannotWrite):
    """The output folder does not belong to these journals; the text is one line."""


@contextlib.contextmanager
def alone(out: str) -> Iterator[None]:
    """Check that no other process on this machine writes into the same folder.

    Raises:
        CannotWrite: another process does.
    """
    path = local_path(out)
    if path is None:
        # An object store has no lock. There, one of the two commits fails.
        yield
        return
    folder = path / HIDDEN
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotWrite(
                f"{out}: another audit writes into it: wait until it has ended, or "
                "give another folder"
            ) from None
        yield


def check_options(
    spark: SparkSession, out: str, journals: list[str], lateness: timedelta
) -> None:
    """Check that `out` was begun with the same options, or begin it with them.

    Raises:
        CannotFollow: it was begun with others.
    """
    folder = f"{out}/{FOLDER}/options"
    schema = "version int, journals string, late_days int"
    row = (_VERSION, json.dumps(journals), lateness.days)
    if "_SUCCESS" not in store.children(spark, folder):
        store.overwrite(spark.createDataFrame([row], schema), folder)
        return
    before = spark.read.schema(schema).parquet(store.literal(folder)).first()
    assert before is not None
    if before["version"] != _VERSION:
        raise CannotFollow(
            f"{out}: begun by another version of this library; use another folder"
        )
    if before["journals"] != row[1]:
        names = ", ".join(json.loads(before["journals"]))
        raise CannotFollow(
            f"{out}: begun with other journals, {names}: give the same, or use another "
            "folder"
        )
    if before["late_days"] != lateness.days:
        raise CannotFollow(
            f"{out}: begun with --late {before['late_days']}: give the same, or use "
            "another folder"
        )
