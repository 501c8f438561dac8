"""Deliberate faults of HornetQ's pull consumers; see `mutant`."""

from __future__ import annotations

from simulation.mutant import Mutant

__all__ = ["PULL"]

PULL = (
    Mutant(
        "acknowledged-when-it-is-sent",
        "qos.rest.pull.consumers",
        "self._now() + max(left_s - _BEFORE_END_S, left_s / 2)",
        "self._now()",
        "With auto-ack a message is acknowledged by the post for the next one.",
        by=("accepted_was_handled",),
        seed=6,
    ),
    Mutant(
        "what-was-not-sent-is-acknowledged",
        "qos.rest.pull.consumers",
        "settlement = _settlement(delivery_of(item), ItemOutcome.RELEASED)\n"
        "        self._request(Unlock(self.identity.node, (settlement,)))",
        "self._request(acceptance(self.identity, delivery_of(item)))",
        "A message that was not sent is available again.",
        by=("accepted_was_handled",),
        seed=22,
    ),
    Mutant(
        "the-same-post-is-out-of-step",
        "qos.core.rest.hornetq.position",
        "self.asked in {None, after}:",
        "self.asked is None:",
        "The same post again asks for the same message.",
        by=("accepted_was_handled",),
        seed=6,
    ),
    Mutant(
        "the-same-post-gives-another",
        "qos.rest.pull.consumers",
        "*(identity.node, identity.account, identity.resource),\n",
        "*(identity.node, identity.account),\n",
        "The same post again gives the same message.",
        by=("an_old_link_gives_the_same",),
        seed=26,
    ),
    Mutant(
        "given-before-the-subscription-has-ended",
        "qos.rest.pull.consumers",
        "            await waiting.ended.wait()\n            if",
        "            if",
        "A message is given when its lock needs no subscription any more.",
        by=("given_outlives_the_service",),
        seed=6,
    ),
    Mutant(
        "told-before-its-selector-was-asked",
        "qos.engine.queue_engine",
        "if queue is None or not queue.subscriptions.is_classifying(jid):",
        "if node:",
        "Nothing is there for a new selector when it was asked for all items.",
        by=("nothing_is_there",),
        seed=462,
    ),
)
