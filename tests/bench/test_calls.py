"""A message takes as few steps as its promise needs; see `make calls`."""

import calls

#: What it takes now, and a few for another version of Python.
CALLS_MAX = 570


async def test_an_assured_message_takes_no_more_calls_than_it_did() -> None:
    """Each call is time of every message: one that is new has to be worth it."""
    counted = await calls.count()
    print(f"{counted.total()} calls of our own for an assured message, both ends")
    assert counted.total() <= CALLS_MAX
    # It has seen both ends: the message was sent, and handed over.
    functions = {function for _, function in counted}
    assert {"XEP_QOS.send", "Handovers.begin", "Delivery.outcome"} <= functions
