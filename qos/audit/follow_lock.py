"""A lock on the output folder, for one audit at a time; and the options of a stream."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

from pyspark.sql import SparkSession

from qos.audit import store
from qos.audit.audits import HIDDEN
from qos.audit.delta import CannotWrite
from qos.audit.journals import with_folder
from qos.audit.locations import for_people, local_path, whole_url, without_links

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
                f"{for_people(out)}: another audit writes into it: wait until it has ended, or "
                "give another folder"
            ) from None
        yield


def check_options(
    spark: SparkSession, out: str, journals: list[str], lateness: timedelta
) -> list[str]:
    """Check that `out` was begun with the same options, or begin it with them.

    Args:
        spark: the session.
        out: the folder of the tables.
        journals: see qos.audit.journals; each folder is a whole URL.
        lateness: see qos.audit.follow.follow.

    Returns:
        The journals by the names with which it was begun. Former versions have begun it
        with the folders to which links led then.

    Raises:
        CannotFollow: it was begun with others.
    """
    folder = f"{out}/{FOLDER}/options"
    schema = "version int, journals string, late_days int"
    names = _for_people(journals)
    row = (_VERSION, json.dumps(names), lateness.days)
    if not store.is_complete(spark, folder):
        store.overwrite(spark.createDataFrame([row], schema), folder)
        return [with_folder(journal, whole_url) for journal in names]
    before = spark.read.schema(schema).parquet(store.literal(folder)).first()
    assert before is not None
    if before["version"] != _VERSION:
        raise CannotFollow(
            f"{for_people(out)}: begun by another version of this library; use another folder"
        )
    begun_with = _for_people(json.loads(before["journals"]))
    targets = {with_folder(journal, without_links) for journal in journals}
    if begun_with not in (names, _for_people(targets)):
        raise CannotFollow(
            f"{for_people(out)}: begun with other journals, {', '.join(begun_with)}: "
            "give the same, or use another folder"
        )
    if before["late_days"] != lateness.days:
        raise CannotFollow(
            f"{for_people(out)}: begun with --late {before['late_days']}: give the same, or use "
            "another folder"
        )
    return [with_folder(journal, whole_url) for journal in begun_with]


def _for_people(journals: Iterable[str]) -> list[str]:
    """The form in which they are stored, and shown."""
    return sorted({with_folder(journal, for_people) for journal in journals})
