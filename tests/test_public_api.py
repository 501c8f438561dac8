"""The public side of `import qos`: names, attributes, and the repr of values."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest

import qos
import qos.errors
from qos.core.message.model import Incoming, Level, Outgoing, OutgoingState
from qos.core.message.receiver_table import Request
from qos.core.queue.item import Failure
from qos.engine import Delivery, Outcome
from waiting import PATIENCE, limit
from xep_0254 import BrowsedItem, DeliveredItem, NewItem
from xep_qos import IncomingInfo, Options, Settings

SECRET = "hush"  # noqa: S105 - a payload that must not be seen
PAYLOAD = f"<message xmlns='jabber:client'><body>{SECRET}</body></message>"

ERRORS = [getattr(qos.errors, name) for name in qos.errors.__all__]


def test_all_errors_and_what_an_outcome_is_made_of_are_public_names() -> None:
    """A user must not look for the type of an attribute in a private module."""
    assert set(qos.errors.__all__) <= set(qos.__all__)
    assert {"Level", "Outcome", "OutgoingState", "Delivery"} <= set(qos.__all__)
    assert dir(qos) == sorted(qos.__all__)
    for name in qos.__all__:
        assert getattr(qos, name) is not None


@pytest.mark.parametrize("name", sorted({*qos.__all__} - {"__version__"}))
def test_every_public_name_has_a_docstring_of_its_own(name: str) -> None:
    """A dataclass without one has its signature there, and an enum has Python's text."""
    public = getattr(qos, name)
    assert public.__doc__
    assert not public.__doc__.startswith(f"{name}(")


@pytest.mark.parametrize("error", ERRORS)
def test_every_attribute_of_an_error_is_documented(error: type[Exception]) -> None:
    """Programs read these attributes."""
    documented = set()
    for base in error.__mro__:
        text = inspect.getdoc(base) or ""
        if issubclass(base, qos.QosError):
            documented |= set(re.findall(r"^    (\w+): ", text, re.MULTILINE))
    initializer = error.__init__
    source = inspect.getsource(initializer) if inspect.isfunction(initializer) else ""
    assert set(re.findall(r"self\.(\w+)(?::[^=]+)? = ", source)) <= documented


def test_a_wrong_argument_is_a_value_error_and_a_full_outbox_is_none() -> None:
    """`except ValueError` is for mistakes of the caller, and for nothing else."""
    assert issubclass(qos.InvalidArgument, ValueError | qos.LocalProtocolError)
    assert not issubclass(qos.OutboxFull, ValueError)


def outgoing(**values: object) -> Outgoing:
    known: dict[str, object] = {
        "msg_id": "m1",
        "seq": 1,
        "to": "lamp@example.org/1",
        "level": Level.ASSURED,
        "payload": PAYLOAD,
        "size": len(PAYLOAD),
        "created_at": 0.0,
        "offer_id": "o1",
        "deliver_id": "d1",
    }
    return Outgoing(**{**known, **values})  # type: ignore[arg-type]  # by name


INCOMING = Incoming(
    key="k1",
    msg_id="m1",
    source="lamp@example.org/1",
    to="controller@example.org/1",
    level=Level.ASSURED,
    payload=PAYLOAD,
    size=len(PAYLOAD),
    received_at=0.0,
    changed_at=0.0,
)
REQUEST = Request(
    kind="assured",
    iq_id="i1",
    source="a@b/c",
    to="d@e/f",
    namespace="n",
    payload=PAYLOAD,
)


@pytest.mark.parametrize(
    "value",
    [
        outgoing(),
        INCOMING,
        REQUEST,
        NewItem(PAYLOAD, "i1"),
        BrowsedItem(item_id="i1", payload=PAYLOAD),
        DeliveredItem(item_id="i1", payload=PAYLOAD),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_logged_of_a_message_or_an_item_has_no_payload(value: object) -> None:
    """A repr appears in logs and tracebacks, which others read."""
    assert SECRET not in repr(value)
    assert type(value).__name__ in repr(value)
    assert "i1" in repr(value) or "m1" in repr(value)
    assert is_dataclass(value)
    assert any(getattr(value, each.name) == PAYLOAD for each in fields(value))


async def test_a_delivery_shows_what_an_application_needs_and_no_more() -> None:
    """Names that are only for the outbox have an underscore."""
    delivery = Delivery(None, msg_id="m1", to="lamp@example.org/1", level=Level.ASSURED)
    public = [name for name in dir(delivery) if not name.startswith("_")]
    assert public == ["ended", "level", "msg_id", "outcome", "to", "withdraw"]
    assert repr(delivery) == (
        "<Delivery 'm1' to lamp@example.org/1, assured: outstanding>"
    )
    done = outgoing(state=OutgoingState.DELIVERED)
    delivery._settle(Outcome.of(done, 1.5))
    assert repr(delivery) == "<Delivery 'm1' to lamp@example.org/1, assured: delivered>"
    async with limit():
        assert (await delivery.outcome()).seconds == 1.5
    assert repr(Delivery._sent("lamp@example.org")) == (
        "<Delivery '' to lamp@example.org, unacknowledged: sent>"
    )


@pytest.mark.parametrize("public", [Outcome, IncomingInfo, Failure])
def test_an_application_cannot_change_what_it_gets(public: type) -> None:
    """The engine may still use the same object."""
    with pytest.raises(FrozenInstanceError):
        setattr(object.__new__(public), fields(public)[0].name, "")


# -- what a type checker sees ----------------------------------------------


def test_the_options_of_connect_are_those_of_the_plugin() -> None:
    """An editor lists them; `receives` is a parameter of `connect` itself."""
    ours, wanted = get_type_hints(Options), get_type_hints(Settings)
    assert ours == {name: of for name, of in wanted.items() if name != "receives"}


PROGRAM = """
import qos

async def main() -> None:
    async with qos.connect("a@b/c", "x", store="memory:", deadline_s=3) as device:
        await device.send("d@e/f", "on", level="acknowledged")
        await device.send("d@e/f", "on", level=qos.Level.ASSURED)
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_type_checker_finds_a_typing_mistake(tmp_path: Path) -> None:
    """`mypy --strict`: neither an option nor a level is taken as it comes."""
    mistakes = {
        "deadline_s=3": ("deadlin_s=3", 'keyword argument "deadlin_s"'),
        'level="acknowledged"': ('level="asured"', 'argument "level"'),
        'store="memory:", ': ("", 'missing named argument "store"'),
    }
    programs = {"right": PROGRAM}
    for right, (wrong, _) in mistakes.items():
        programs[wrong] = PROGRAM.replace(right, wrong)
    files = [tmp_path / f"program_{number}.py" for number in range(len(programs))]
    for path, text in zip(files, programs.values(), strict=True):
        path.write_text(text)
    found = subprocess.run(
        (sys.executable, "-m", "mypy", "--strict", "--no-color-output", *files),
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=280 * PATIENCE,
        check=False,
    )
    errors = sorted(line for line in found.stdout.splitlines() if ": error: " in line)
    assert len(errors) == len(mistakes), found
    for line, path, (_, text) in zip(errors, files[1:], mistakes.values(), strict=True):
        assert path.name in line
        assert text.lower() in line.lower(), line
