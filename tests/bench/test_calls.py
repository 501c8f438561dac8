"""A message needs only the steps of its promise; see `make calls`."""

import calls

#: The present number, and a few more for another version of Python. Seven of them keep
#: a slow link from being flooded.
CALLS_MAX = 482


async def test_an_assured_message_takes_no_more_calls_than_it_did() -> None:
    """Each call costs time for every message: a new one has to be worth it."""
    counted = await calls.count()
    print(f"{counted.total()} calls of our own for an assured message, both ends")
    assert counted.total() <= CALLS_MAX
    # The profile has seen both ends: the message was sent, and handed over.
    functions = {function for _, function in counted}
    assert {"XEP_QOS.send", "Handovers.begin", "Delivery.outcome"} <= functions
