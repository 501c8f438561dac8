"""The reference: what an application may use has a page, and what it may not has none."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_type_hints

import qos.amqp.gateway
import qos.rest.gateway
import xep_0254
from qos.worker import Job

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGES = "\n".join(path.read_text() for path in sorted(REFERENCE.glob("*.md")))

#: The methods by which the worker itself ends a job.
OF_THE_WORKER = {"check_held", "end_settling", "lose"}


def test_each_public_name_of_xep_0254_has_a_page() -> None:
    """A name that is exported is a name that somebody looks up."""
    assert set(re.findall(r"autoclass:: (\w+)$", PAGES, re.MULTILINE)) >= set(
        xep_0254.__all__
    )


def test_the_values_that_a_queue_service_takes_are_public() -> None:
    """Nobody must import the type of an argument from a private module."""
    values = get_type_hints(xep_0254.QueueService.__init__)
    limits = {values["quotas"], values["bounds"].__args__[0]}
    assert limits == {xep_0254.Quotas, xep_0254.QueueBounds}


def test_each_gateway_has_a_page() -> None:
    """`add_gateway` takes them."""
    for gateway in (qos.amqp.gateway.Gateway, qos.rest.gateway.Gateway):
        assert f"autoclass:: {gateway.__module__}.{gateway.__name__}\n" in PAGES


def test_the_page_of_a_job_leaves_out_what_is_of_the_worker() -> None:
    """A handler that called these would break the delivery."""
    entry = re.search(r"autoclass:: Job\n +:exclude-members: (.*)\n", PAGES)
    assert entry is not None
    assert set(entry[1].split(", ")) == OF_THE_WORKER
    assert {name for name, _ in inspect.getmembers(Job)} >= OF_THE_WORKER
