"""`xmpp-qos audit forget ACCOUNT`: the tables of an audit without an account."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from qos.audit.locations import for_people
from qos.cli.audit_folders import out_of
from qos.cli.output import print_json, print_text
from qos.cli.spark_run import SparkRun
from qos.cli.status import Status
from qos.errors import UsageError
from qos.jids import normal_jid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FORGET", "run_forget"]

#: The word that stands in the place of a journal.
FORGET = "forget"


async def run_forget(arguments: argparse.Namespace) -> int:
    """Forget an account; see qos.audit.erasure.

    Raises:
        UsageError: there is no account, or more than that.
    """
    account = _account(arguments)
    out = out_of(arguments)
    from qos.spark.session import NoSpark, check_spark

    try:
        check_spark()
        names = await _ForgetRun(out, account, arguments).run()
    except NoSpark as error:
        raise UsageError(str(error)) from None
    if arguments.json:
        await print_json({"account": account, "tables": names})
    else:
        place = ", ".join(names) or "no table"
        await print_text(
            f"{account} is forgotten in {for_people(out)}; it was in {place}"
        )
    return Status.DONE


class _ForgetRun(SparkRun[list[str]]):
    """The work with Spark."""

    _needs = "qos.audit.erasure"

    def __init__(self, out: str, account: str, arguments: argparse.Namespace) -> None:
        super().__init__(master=arguments.master, out=for_people(out))
        self._folder = out
        self._account = account

    def _do(self, spark: SparkSession) -> list[str]:
        from qos.audit.delta import CannotWrite
        from qos.audit.erasure import forget

        try:
            return forget(spark, self._folder, self._account, progress=self._progress)
        except CannotWrite as error:
            raise UsageError(str(error)) from None


def _account(arguments: argparse.Namespace) -> str:
    words = arguments.journals[1:]
    if len(words) != 1:
        raise UsageError(
            "forget: give one ACCOUNT (./forget is a journal in a folder of this name)"
        )
    for name in ("follow", "first", "last", "keep"):
        if getattr(arguments, name):
            raise UsageError("forget has no --follow, --from, --to and --keep")
    try:
        account = normal_jid(words[0])
    except ValueError:
        account = ""
    if not account or "/" in account:
        raise UsageError(
            f"forget: {words[0]!r} is no account, such as lamp@example.org"
        )
    return account
