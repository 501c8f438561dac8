"""All limits are in one table, and the table has the values in use."""

from __future__ import annotations

import ast
import math
import os
import pkgutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import qos.client
import qos.core
import qos.core.message
import qos.core.queue
import qos.core.rest
import qos.core.rest.hornetq
import qos.engine
import qos.journal
import qos.rest
import qos.rest.hornetq
import qos.rest.pull
import qos.rest.push
import qos.stream
import xep_0254
import xep_0337
import xep_qos
from qos.core.queue.node_options import NODE_FIELDS
from qos.limits import LIMITS, Limit, main
from xep_qos.settings import _LEAST

#: These modules decide what a peer can make us do.
PACKAGES = (
    *(qos.core, qos.core.message, qos.core.queue, qos.core.rest, qos.core.rest.hornetq),
    *(
        qos.engine,
        qos.journal,
        qos.rest,
        qos.rest.hornetq,
        qos.rest.pull,
        qos.rest.push,
    ),
    *(qos.stream, qos.client, xep_0254, xep_0337, xep_qos),
)

#: Constants that are no limit on others, with the reason.
NOT_OF_OTHERS = {
    "qos.core.backoff:_DOUBLINGS_MAX": "arithmetic",
    "qos.core.message.flow:_DOUBLINGS_MAX": "arithmetic",
    "qos.core.queue.seq_order:_SEQ_CHARS_MAX": "SQLite's integers",
    "qos.core.queue.node_options:_BACKOFF_S_MAX": "when we try again",
    "qos.core.rest.msg_properties:_WHOLE_MAX": "RFC 9651, of a decimal",
    "qos.engine.consuming:_TRANSACTION_S_MAX": "a handler of ours",
    "qos.journal.files:_NODE_CHARS_MAX": "our own name",
    "qos.journal.schema:INT_MAX": "arithmetic",
    "qos.stream.session:_ATTEMPT_S_MAX": "when we try again",
    "xep_0254.events:_MARKS_BYTES_MAX": "a part of EVENT_BYTES_MAX",
    "xep_0254.events:_CHAR_BYTES_MAX": "arithmetic",
    "xep_0254.queueing:_RETRY_S_MAX": "when we try again",
    "xep_0337.stanza:_OFFSET_MAX": "of a time zone",
    "xep_qos.endpoint:_JID_BYTES_MAX": "of any JID, says RFC 7622",
    "qos.stream.stream_management:_COUNT_MAX": "where a counter begins anew",
}

#: The functions whose results are remembered without a bound, with the reason.
REMEMBERED = {
    "qos/audit/declarative/tables.py:_without_rows": "no argument",
    "qos/rest/routes.py:openapi": "the one prefix of the service",
    "qos/testing/ports.py:_block": "no argument",
    "qos/xml_text.py:_illegal": "no argument",
    "qos/xml_text.py:_special_or_not_ascii": "no argument",
    "plugins/xep_0254/elements.py:_written": "names in our own code",
}

#: Numeric options of ours that limit nobody.
NOT_OF_OTHERS_OPTIONS = {"retry_first_s", "retry_max_s", "deadline_s"}


@cache
def constants() -> dict[str, bool]:
    """Each constant named as a maximum, and whether it is read anywhere."""
    found: dict[str, str] = {}
    read: set[str] = set()
    for package in PACKAGES:
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if module.ispkg:
                continue
            path = Path(package.__path__[0], f"{module.name.rpartition('.')[2]}.py")
            tree = ast.parse(path.read_text())
            for node in tree.body:
                targets = getattr(node, "targets", [getattr(node, "target", None)])
                for target in targets:
                    if isinstance(target, ast.Name) and target.id.endswith("_MAX"):
                        found[f"{module.name}:{target.id}"] = target.id
            for each in ast.walk(tree):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
                    read.add(each.id)
                elif isinstance(each, ast.Attribute):
                    read.add(each.attr)
    return {name: constant in read for name, constant in found.items()}


def test_every_limit_of_the_code_is_in_the_table() -> None:
    """A developer who adds one is told where to list it."""
    named = {limit.name for limit in LIMITS}
    assert len(named) == len(LIMITS)
    assert constants().keys() - named == NOT_OF_OTHERS.keys()


def test_every_limit_that_a_user_sets_is_in_the_table() -> None:
    """They are most of what stands between a peer and our memory."""
    options = {name for name in _LEAST if name not in NOT_OF_OTHERS_OPTIONS}
    prefix = "xep_qos.settings:Settings."
    assert {prefix + name for name in options} <= {limit.name for limit in LIMITS}
    bounds = {field.var for field in NODE_FIELDS if field.var.startswith("queue#max_")}
    prefix = "qos.core.queue.node_options:NODE_FIELDS."
    assert {prefix + name for name in bounds} <= {limit.name for limit in LIMITS}


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)
def test_a_limit_has_the_value_that_is_used(limit: Limit) -> None:
    """The value is read from its definition, and no definition is unused."""
    assert 0 < limit.value < math.inf
    assert constants().get(limit.name, True)


def test_nothing_of_others_is_remembered_without_a_bound() -> None:
    """A decorator is one line, and what a peer sends would stay for ever."""
    top = Path(qos.core.__file__).parents[2]
    unbounded = {
        f"{path.relative_to(top).as_posix()}:{node.name}"
        for folder in ("qos", "plugins")
        for path in (top / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if ast.unparse(decorator).removeprefix("functools.")
        in {"cache", "lru_cache(None)", "lru_cache(maxsize=None)"}
    }
    assert unbounded == REMEMBERED.keys()


def test_the_table_is_printed_with_values_and_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """For users who have to say how much memory a device needs."""
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(LIMITS)
    assert any(line.strip().startswith("1,000  messages held of one") for line in lines)


@pytest.mark.parametrize("unbuffered", [[], ["-u"]])
def test_the_table_can_be_cut_off(unbuffered: list[str]) -> None:
    """For example by `| head`, which ends before all of it is written."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, *unbuffered, "-m", "qos.limits"]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
