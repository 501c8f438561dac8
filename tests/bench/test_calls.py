"""A message and an item need only the steps of their promise; see `make calls`."""

from typing import NamedTuple

import pytest

import calls


class Bounds(NamedTuple):
    """The most that a way may take.

    Attributes:
        calls: the present number, and a few more for another version of Python. Of a
            message seven of them keep a slow link from being flooded; of an item
            thirty-four leave a long queue on disk, and let its items and their delays end
            there.
        modules: through which it runs.
        functions: that belong to it, the last one of the way among them: the profile has
            seen both ends.
    """

    calls: int
    modules: int
    functions: set[str]


BOUNDS = {
    "message": Bounds(473, 49, {"XEP_QOS.send", "Handovers.begin", "Delivery.outcome"}),
    "xmpp": Bounds(840, 71, {"XEP_0254.publish", "XEP_0254.retract"}),
    "http": Bounds(1325, 73, {"message", "acknowledge"}),
}


@pytest.mark.parametrize("name", sorted(BOUNDS))
async def test_nothing_takes_more_calls_and_modules_than_it_did(name: str) -> None:
    """Each call costs time for every message: a new one has to be worth it.

    Who follows a message or an item reads each of the modules.
    """
    bounds = BOUNDS[name]
    counted = await calls.COUNTS[name]()
    modules = sorted({module for module, _ in counted})
    print(f"{name}: {counted.total()} calls of our own in {len(modules)} modules")
    assert bounds.functions <= {function for _, function in counted}
    assert counted.total() <= bounds.calls
    assert len(modules) <= bounds.modules, "\n".join(modules)
