"""Deliberate faults of push by HTTP; see `mutant`."""

from __future__ import annotations

from simulation.mutant import Mutant

__all__ = ["PUSH"]

PUSH = (
    Mutant(
        "posted-before-the-link-is-on-disk",
        "qos.rest.push.delivery",
        "if not await _keep(pusher, item, bounds.PUSH_LOCK_S, link):",
        "keep = _keep(pusher, item, bounds.PUSH_LOCK_S, link)\n"
        "                if pusher.pushers.later(keep):",
        "A one-off link is on disk before a message is posted to it.",
        by=("a_link_is_kept_before_it_is_used",),
        seed=18,
    ),
    Mutant(
        "link-is-forgotten-before-the-outcome",
        "qos.rest.push.pusher",
        "            await asyncio.gather(*steps)\n        if over:",
        "            for each in reversed(steps):\n                await each\n"
        "        if over:",
        "A one-off link is forgotten in the commit of the outcome.",
        by=("arrives_once",),
        seed=3267,
    ),
    Mutant(
        "kept-link-is-not-asked",
        "qos.rest.push.delivery",
        'stored_link="" if known_link is None else known_link.url,',
        'stored_link="",',
        "A message whose outcome is not known is posted to the same link again.",
        by=("arrives_once",),
        seed=69,
    ),
    Mutant(
        "used-is-failed",
        "qos.core.rest.forwarding",
        "    if answer.status == _USED:\n        verdict = Verdict(Fate.ACCEPTED)",
        "    if answer.status == _USED:\n        verdict = Verdict(Fate.FAILED)",
        "405 of a one-off link means that the target has the message.",
        by=("what_is_there_has_not_failed",),
        seed=69,
    ),
    Mutant(
        "gone-is-accepted",
        "qos.core.rest.forwarding",
        "    if answer.status == _USED:\n",
        "    if answer.status in {_USED, _GONE}:\n",
        "410 does not mean that the target has the message.",
        by=("accepted_is_at_the_target",),
        seed=48,
    ),
    Mutant(
        "lock-is-not-extended",
        "qos.rest.push.delivery",
        "= [pusher.ask(extend)]",
        "= []",
        "The lock lasts as long as the request may take.",
        by=("nobody_else_gets_what_is_posted",),
        seed=69,
    ),
    Mutant(
        "subscriber-leaves-at-a-restart",
        "qos.rest.push.pusher",
        "Subscribe(self._node, self.jid, options)",
        "Subscribe(self._node, self.jid, options, link=True)",
        "What is on its way at a restart stays locked, and has not failed.",
        by=("only_failures_are_counted", "nobody_else_gets_what_is_posted"),
    ),
    Mutant(
        "one-session-too-many",
        "qos.rest.push.pusher",
        "range(self.subscriber.sessions)",
        "range(self.subscriber.sessions + 1)",
        "As many messages are on their way as there are sessions, and not one more.",
        by=("no_more_than_wanted",),
    ),
    Mutant(
        "sessions-share-an-unused-link",
        "qos.rest.push.pusher",
        "item, payload, unused)\n"
        '                unused = "" if verdict is None else verdict.unused',
        'item, payload, vars(self).get("u", ""))\n'
        '                vars(self)["u"] = "" if verdict is None else verdict.unused',
        "A one-off link is used for one message: 405 would say that it has the other.",
        by=("accepted_is_at_the_target",),
        seed=564,
    ),
    Mutant(
        "another-key-each-time",
        "qos.rest.push.delivery",
        'key=f"{subscriber.subscriber_id}-{item.seq}",',
        'key=f"{subscriber.subscriber_id}-{item.token}",',
        "All attempts at a message have one key, or one URL by the template.",
        by=("arrives_once",),
        seed=210,
    ),
)
