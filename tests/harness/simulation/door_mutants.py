"""Deliberate faults of the doors; see `mutant`."""

from __future__ import annotations

from simulation.mutant import Mutant

__all__ = ["DOORS"]

DOORS = (
    Mutant(
        "time-of-a-payer-is-not-charged",
        "qos.engine.payers",
        "self._order.charge(payer, now - before)",
        "self._order.charge(payer, 0.0)",
        "Work is done for the payer that has used least time.",
        by=("honest_are_answered",),
    ),
    Mutant(
        "time-of-a-task-is-not-charged",
        "qos.engine.payers",
        "        self._order.charge(payer, seconds)\n        self._task_s",
        "        self._task_s",
        "A task pays for what it does in its turn.",
        test="engine/test_payers.py::test_dear_tasks_get_no_more_time_than_cheap_ones",
    ),
    Mutant(
        "turn-without-an-end",
        "qos.engine.payers",
        "now - began_at >= TURN_S",
        "now < began_at",
        "A turn of the event loop ends after 5 ms.",
        by=("a_turn_ends",),
    ),
    Mutant(
        "first-come-first-served-hashes",
        "qos.core.login_queue",
        "        self._lanes.move_to_end(address)\n",
        "",
        "Addresses take turns, however many passwords each of them tries.",
        by=("honest_are_answered",),
    ),
    Mutant(
        "first-come-first-served-names",
        "qos.core.login_queue",
        "        lanes.move_to_end(name)\n",
        "",
        "Tries at one name do not delay another one behind the same address.",
        by=("honest_are_answered",),
    ),
    Mutant(
        "slice-counts-items-only",
        "qos.core.queue.ready_items",
        "items_left > 0 and not self._time.is_over:",
        "items_left > 0:",
        "A slice of evaluations ends after its time, not after its items.",
        test="core/queue/test_selector_time.py::"
        "test_a_slice_of_waiting_items_ends_with_its_time",
    ),
    Mutant(
        "slice-counts-frames-only",
        "qos.amqp.intake",
        "while more and payers.now() < until:",
        "while more:",
        "A slice of what comes by AMQP ends after its time.",
        by=("a_turn_ends",),
    ),
    Mutant(
        "selector-cost-is-not-counted",
        "qos.core.queue.selector_time",
        "(took - FREE_S) / len(accounts)",
        "0.0",
        "An account pays for the time that its selectors take.",
        by=("a_dear_selector_is_given_up",),
    ),
    Mutant(
        "creator-is-not-checked",
        "qos.core.queue.topics",
        "and not name.startswith(own):",
        "and not own:",
        "The name of a subscription is that of its account, whoever grants a right.",
        by=("a_name_belongs_to_its_account",),
    ),
    Mutant(
        "right-is-looked-at-after-parsing",
        "qos.amqp.incoming",
        "            check_publish(self._connection.engine, node, self._connection.jid)\n",
        "",
        "Nothing of a stranger is read before it is known whether he may.",
        by=("nothing_of_a_stranger_is_read",),
    ),
    Mutant(
        "right-is-looked-at-after-reading",
        "qos.amqp.incoming",
        "            check_publish(self._connection.engine, node, self._connection.jid)\n"
        "            message = read_message(\n"
        "                content, new_id=new_key, now=now, bytes_max=ITEM_BYTES_MAX\n"
        "            )\n",
        "            message = read_message(\n"
        "                content, new_id=new_key, now=now, bytes_max=ITEM_BYTES_MAX\n"
        "            )\n"
        "            check_publish(self._connection.engine, node, self._connection.jid)\n",
        "Nothing of a stranger is read, even if it is refused afterwards.",
        by=("nothing_of_a_stranger_is_read",),
    ),
    Mutant(
        "sender-is-stolen-before-rights-are-known",
        "qos.amqp.links",
        "        connection = self._connection\n        if node is not None:\n",
        "        connection = self._connection\n        self._steal(attached)\n"
        "        if node is not None:\n",
        "An attach without a right to publish ends no other link.",
        by=("a_refused_attach_ends_nothing",),
    ),
    Mutant(
        "receiver-is-stolen-before-rights-are-known",
        "qos.amqp.links",
        "        if engine.rights(node, connection.jid) is None:\n",
        "        self._steal(attached)\n"
        "        if engine.rights(node, connection.jid) is None:\n",
        "An attach without a right to receive ends no other link.",
        by=("a_refused_attach_ends_nothing",),
    ),
    Mutant(
        "replaced-terminus-does-not-end",
        "qos.amqp.suspended",
        "        self._request(terminus.jid, CloseLink(terminus.node))\n"
        "        self._connection.hub.unsettled.sent(terminus.jid)\n"
        "        self._connection.engine.departed(terminus.jid)\n",
        "        return\n",
        "A terminus that no link can go on with ends.",
        by=("a_link_ends_with_its_connection",),
    ),
    Mutant(
        "registry-entry-is-written-over",
        "qos.amqp.attached",
        "self._links.setdefault(attached.full_name, []).append(attached)",
        "self._links[attached.full_name] = [attached]",
        "Each living link is found, whatever other ones have its name.",
        by=("a_connection_stays", "a_name_is_attached_once", "nothing_fails"),
    ),
    Mutant(
        "link-is-not-stolen",
        "qos.amqp.links",
        "if earlier is not attached and (earlier.owner is self or earlier.keeps):",
        "if earlier is not attached and earlier.keeps:",
        "A second link of a name ends the first.",
        by=("a_connection_stays", "a_name_is_attached_once"),
    ),
    Mutant(
        "link-is-found-by-its-name",
        "qos.core.amqp.frame_shim",
        "        key = channel, str(name), flag(fields, _ROLE)\n",
        "        key = 0, str(name), flag(fields, _ROLE)\n",
        "A link is known by its session, its name and its direction.",
        by=("a_connection_stays", "accepted_is_in_its_node"),
    ),
)
