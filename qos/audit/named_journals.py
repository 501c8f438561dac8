"""The nodes in the names of files: a journal is also of a node whose lines are not read.

A file that is open or cannot be read, or a file of a day that is not audited, shows by
its name that its journal is of a node. Without this, the silence of another journal of
the same node would look like a proof: see qos.audit.tables.journal_coverage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit.boot_runs import NAMED, RUN
from qos.audit.foreign_lines import NOBODY, Tied, journal_of
from qos.audit.locations import local_path
from qos.audit.new_files import NewFile
from qos.journal.schema import ITEMS

__all__ = ["named_runs", "node_in_name"]

#: NODE-BOOT-N.jsonl, as `qos.journal.files` names files; hidden while they are open. A
#: file of items says nothing of messages.
_NAME: Final = re.compile(
    rf"\.?(?P<node>.+)-[^-]*(?<!{ITEMS})-[0-9][^-]*\.jsonl(\.gz|\.zst)?", re.DOTALL
)
_NAME_OF_ANY: Final = re.compile(
    r"\.?(?P<node>.+)-[^-]*-[0-9][^-]*\.jsonl(\.gz|\.zst)?", re.DOTALL
)

#: The name of a long node is cut, and ends with a digest of it.
_CUT_CHARS: Final = 143
_CUT: Final = re.compile(rf".{{{_CUT_CHARS},}}(?P<digest>~[0-9a-f]{{16}})", re.DOTALL)


def named_runs(
    spark: SparkSession, files: Iterable[NewFile], tied: Tied = NOBODY
) -> DataFrame:
    """The journals of each node in the name of a file, as runs of the kind NAMED.

    Args:
        spark: the session.
        files: read or not.
        tied: the folders that are tied to nodes: names of other nodes are left out.
    """
    journals_by_node: dict[str, set[int]] = {}
    for file in files:
        local = local_path(file.path)
        uri = file.path if local is None else local.absolute().as_uri()
        node = _node_of(file.path, tied.node_of(uri))
        if node is not None:
            path = file.path if local is None else str(local.absolute())
            journals_by_node.setdefault(node, set()).add(journal_of(path))
    runs = [
        {
            **dict.fromkeys(("first_seq", "last_seq", "jumps"), 0),
            "node": node,
            "boot": "",
            "kind": NAMED,
            "journals": sorted(journals),
        }
        for node, journals in sorted(journals_by_node.items())
    ]
    # A declarative pipeline permits no createDataFrame.
    rows = F.from_json(F.lit(json.dumps(runs)), f"array<struct<{RUN}>>")
    return spark.range(0, 1, 1, 1).select(F.inline(rows))


def node_in_name(path: str) -> str | None:
    """The node in the name of a file, also of a file of items; None: there is none.

    Of a long node, whose name is cut, it is the name as it is.
    """
    match = _NAME_OF_ANY.fullmatch(path.rpartition("/")[2])
    return None if match is None else unquote(match["node"])


def _node_of(path: str, tied: str | None) -> str | None:
    """The node in the name of a file; of a long node its digest, after a `~`.

    None: there is none, or its folder is tied to another one.
    """
    match = _NAME.fullmatch(path.rpartition("/")[2])
    if match is None:
        return None
    cut = _CUT.fullmatch(match["node"])
    if cut:
        begins = "" if tied is None else quote(tied, safe="@")[:_CUT_CHARS]
        return cut["digest"] if match["node"].startswith(begins) else None
    node = unquote(match["node"])
    return node if tied in {None, node, node.partition("/")[0]} else None
