"""Lines of journals as literals, and rows of tables as what one compares them with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

from qos.pipeline.schema import EVENT

#: Noon of the day on which everything happens.
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """A moment of that day, as Spark returns it: without a time zone."""
    return (NOON + timedelta(seconds=seconds)).replace(tzinfo=None)


def only(frame: DataFrame) -> dict[str, Any]:
    """The one row that there is."""
    (row,) = frame.collect()
    return row.asDict()


class Lines:
    """Lines of journals as literals: `line("sender", "accepted", ...)`.

    Times are seconds after NOON. Each node has one boot, and its seq counts on.
    """

    def __init__(self, domain: str = "x") -> None:
        self.rows: list[dict[str, Any]] = []
        self._seqs: dict[str, int] = {}
        self.domain = domain

    def line(self, node: str, role: str, event: str, at: float, **fields: Any) -> None:
        boot = f"{fields.pop('boot', 'boot')} of {node}"
        self._seqs[boot] = self._seqs.get(boot, 0) + 1
        row: dict[str, Any] = dict.fromkeys(EVENT.names)
        row |= {
            "at": NOON + timedelta(seconds=at),
            "boot": boot,
            "seq": self._seqs[boot],
            "node": node,
            "role": role,
            "event": event,
        }
        self.rows.append(row | fields)

    def sent(
        self, *events: str, at: float = 0, msg_id: str = "m1", **fields: Any
    ) -> Self:
        """The lines of an assured message at its sender, a second apart."""
        self._message(f"a@{self.domain}/1", "sender", events, at, msg_id, fields)
        return self

    def got(
        self, *events: str, at: float = 0.5, msg_id: str = "m1", **fields: Any
    ) -> Self:
        """The lines of an assured message at its receiver, a second apart."""
        self._message(f"b@{self.domain}/1", "receiver", events, at, msg_id, fields)
        return self

    def _message(
        self,
        node: str,
        role: str,
        events: tuple[str, ...],
        at: float,
        msg_id: str,
        fields: dict[str, Any],
    ) -> None:
        ends = {"source": f"a@{self.domain}/1", "to": f"b@{self.domain}/1"}
        given = {"level": "assured"} | ends | fields
        node = given.pop("node", node)
        for number, event in enumerate(events):
            more: dict[str, Any] = {"msg_id": msg_id}
            if event in {"accepted", "held"}:
                more["bytes"] = 100
            self.line(node, role, event, at + number, **(more | given))

    def __add__(self, other: Lines) -> Lines:
        both = Lines()
        both.rows = [*self.rows, *other.rows]
        return both

    def frame(self, spark: SparkSession) -> DataFrame:
        rows = [tuple(row[name] for name in EVENT.names) for row in self.rows]
        return spark.createDataFrame(rows, EVENT)
