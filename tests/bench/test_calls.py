"""A message needs only the steps of its promise; see `make calls`."""

import pytest

import calls

#: The present number, and a few more for another version of Python. Seven of them keep
#: a slow link from being flooded.
CALLS_MAX = 473


async def test_an_assured_message_takes_no_more_calls_than_it_did() -> None:
    """Each call costs time for every message: a new one has to be worth it."""
    counted = await calls.count()
    print(f"{counted.total()} calls of our own for an assured message, both ends")
    assert counted.total() <= CALLS_MAX
    # The profile has seen both ends: the message was sent, and handed over.
    functions = {function for _, function in counted}
    assert {"XEP_QOS.send", "Handovers.begin", "Delivery.outcome"} <= functions


#: The most modules on the way of each, and the last function of this way.
MODULES_MAX = {
    "message": (51, "Delivery.outcome"),
    "xmpp": (71, "XEP_0254.retract"),
    "http": (79, "acknowledge"),
}


@pytest.mark.parametrize("name", sorted(MODULES_MAX))
async def test_nothing_runs_through_more_modules_than_it_did(name: str) -> None:
    """Who follows a message or an item reads each of them."""
    modules_max, last = MODULES_MAX[name]
    counted = await calls.COUNTS[name]()
    modules = sorted({module for module, _ in counted})
    print(f"{len(modules)} modules of our own for {name}")
    assert len(modules) <= modules_max, "\n".join(modules)
    assert last in {function for _, function in counted}
