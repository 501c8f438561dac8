"""Deliberate faults of the doors that tests with sockets and files find; see `mutant`."""

from __future__ import annotations

from simulation.mutant import Mutant

__all__ = ["SOCKETS"]

_LINK_NAMES = "amqp/test_link_names.py::test_"
_RESUMING = "amqp/test_resuming.py::test_"
_UNINVITED = "amqp/test_uninvited.py::test_"
_AMQP_REVOKING = "amqp/test_amqp_revoking.py::test_"
_REST_REVOKING = "rest/test_rest_revoking.py::test_"

_LINKS = (
    Mutant(
        "link-of-frames-is-found-by-its-name",
        "qos.amqp.attached",
        "return self._by_key.get(key)",
        "return next((self._by_key[k] for k in self._by_key if k[1] == key[1]), None)",
        "What frames tell of a link is told to this link, and to no other of its name.",
        test=f"{_LINK_NAMES}a_name_may_be_used_in_both_directions",
    ),
    Mutant(
        "registered-without-a-look",
        "qos.core.registry",
        "if key in entries:",
        "if False:",
        "No living entry of a registry is written over.",
        test="core/test_registry.py::test_a_living_entry_is_not_written_over",
    ),
    Mutant(
        "only-links-of-one-connection-are-stolen",
        "qos.amqp.links",
        "if earlier is not attached and (earlier.owner is self or earlier.keeps):",
        "if earlier is not attached and earlier.owner is self:",
        "A link whose terminus may outlive it is stolen from a connection that is dead.",
        test=f"{_RESUMING}a_link_is_taken_from_a_connection_that_is_only_seemingly_there",
    ),
    Mutant(
        "credit-is-not-looked-at",
        "qos.amqp.deliveries",
        "return self.readable and int(cproton.pn_link_credit(link)) <= 0",
        "return False",
        "A publisher that sends more than its credit loses its link.",
        test=f"{_UNINVITED}a_publisher_that_ignores_its_credit_loses_its_link",
    ),
    Mutant(
        "ended-messages-count-as-unfinished",
        "qos.amqp.incoming",
        "self._connection.unfinished(-len(self._content))",
        "pass",
        "A part of a message counts until it is dropped, or whole.",
        test=f"{_UNINVITED}what_is_not_unfinished_any_more_does_not_count[aborted]",
    ),
    Mutant(
        "unfinished-messages-without-a-bound",
        "qos.amqp.connection",
        "return self._unfinished_bytes <= bounds.UNFINISHED_BYTES_MAX",
        "return True",
        "The unfinished messages of a connection have a bound.",
        test=f"{_UNINVITED}unfinished_messages_of_a_connection_have_a_bound",
    ),
    Mutant(
        "heartbeats-begin-before-the-open-only",
        "qos.amqp.connection",
        "        connection.open()\n        self._heartbeats.begin()\n",
        "        connection.open()\n",
        "Heartbeats are as often as the peer asks for, from its open on.",
        test="amqp/test_heartbeats.py::"
        "test_the_gateway_sends_heartbeats_as_often_as_its_peer_asks_for",
    ),
    Mutant(
        "second-for-a-publisher-that-does-not-resume",
        "qos.amqp.incoming",
        "link.rcv_settle_mode = Link.RCV_FIRST",
        "pass",
        "The outcome for a publisher that does not resume is settled.",
        test=f"{_RESUMING}a_publisher_that_does_not_resume_is_told_settled_outcomes",
    ),
)

_REVOKED = (
    Mutant(
        "removed-users-keep-their-amqp-connection",
        "qos.amqp.gateway",
        "connection.guarded(connection.close)(reason)",
        "pass",
        "The AMQP connection of a removed user is ended.",
        test=f"{_AMQP_REVOKING}the_connection_of_a_removed_user_ends_within_a_second",
    ),
    Mutant(
        "removed-users-keep-their-termini",
        "qos.amqp.gateway",
        "if account != self.anonymous and not self.users.has_account(account):",
        "if False:",
        "A suspended terminus of a removed user ends.",
        test=f"{_AMQP_REVOKING}a_suspended_terminus_of_a_removed_user_ends",
    ),
    Mutant(
        "removed-users-keep-waiting",
        "qos.rest.gateway",
        "consumer.fail(taken_away())",
        "pass",
        "A request that waits for a message ends with its user.",
        test=f"{_REST_REVOKING}what_waits_for_a_removed_user_ends_within_a_second",
    ),
    Mutant(
        "a-stop-of-the-service-is-time",
        "qos.engine.clock",
        "if gap_s > _GAP_S_MIN:",
        "if False:",
        "Time in which a service does not listen is not its workers'.",
        test="engine/test_clock.py::test_a_deadline_moves_by_the_stop",
    ),
    Mutant(
        "what-a-clock-has-lost-it-never-gains",
        "qos.engine.clock",
        "self._offset += gained_s",
        "pass",
        "The times of a service that was stopped come back to those of all others.",
        test="engine/test_clock.py::test_what_is_lost_is_gained_again_slowly",
    ),
    Mutant(
        "a-lock-does-not-move-with-its-item",
        "qos.stores.times",
        "            yield _update(table, _LOCKED) + condition",
        "            pass",
        "A lock of a clock that was ahead has the time that was left to it.",
        test="stores/test_queue_store.py::TestContract::test_the_rule_is_that_of_the_core",
    ),
    Mutant(
        "steps-are-done-at-once",
        "qos.engine.payers",
        "            if self.now() >= until:",
        "            if False:",
        "What is posted is read in turns, however dear a byte is.",
        test="rest/test_posting.py::test_what_is_posted_is_read_in_turns[feed]",
    ),
    Mutant(
        "an-entry-has-any-number-of-elements",
        "qos.xml_reading",
        "if count > elements_max:",
        "if False:",
        "What is kept of a feed in memory is bounded.",
        test="rest/test_posting.py::test_an_entry_with_too_many_elements_is_refused_"
        "before_the_rest_is_read",
    ),
    Mutant(
        "a-request-in-steps-lets-the-next-go-first",
        "xep_0254.request_turns",
        "        if returned is not _MORE:\n            waiting.popleft()",
        "        waiting.rotate(-1)\n        if returned is not _MORE:\n            waiting.pop()",
        "The requests of an account are done in their order.",
        test="xep_0254/test_request_turns.py::test_a_request_in_steps_goes_on_before_the_"
        "next_of_its_account",
    ),
    Mutant(
        "removed-users-keep-their-hornetq-consumers",
        "qos.rest.gateway",
        "        self.pull_consumers.revoke(self.users.has_account)\n",
        "",
        "The HornetQ consumers of a removed user end.",
        test=f"{_REST_REVOKING}consumers_of_hornetq_end_with_their_user",
    ),
    Mutant(
        "removed-users-are-still-pushed-to",
        "qos.rest.gateway",
        "        self.pushers.revoke()\n",
        "",
        "Nothing is pushed for a removed user.",
        test=f"{_REST_REVOKING}nothing_is_pushed_for_a_removed_user_until_it_is_back",
    ),
)

_SHARES = (
    Mutant(
        "connections-count-for-ever",
        "qos.core.connection_shares",
        "uncount(self._accounts, place.account)",
        "pass",
        "A connection counts for its account until it is closed.",
        test="core/test_connection_shares.py::"
        "test_an_account_has_a_share_after_login_and_its_address_is_free_again",
    ),
    Mutant(
        "strangers-count-for-ever",
        "qos.core.connection_shares",
        "            self._strangers_count -= 1\n",
        "",
        "A connection counts for its address until it is logged in or closed.",
        test="core/test_connection_shares.py::test_a_connection_can_change_its_account",
    ),
    Mutant(
        "closed-connections-count",
        "qos.engine.doors",
        "        self._doors.left(self._place)\n",
        "",
        "A connection counts until its file descriptor is closed.",
        test="engine/test_doors.py::test_a_connection_counts_until_it_is_closed",
    ),
    Mutant(
        "removed-nodes-count-for-their-creator",
        "qos.core.queue.service",
        "created.discard(name)",
        "pass",
        "The bytes of a node count for its creator until it is removed.",
        test="core/queue/test_shares.py::"
        "test_a_removed_node_takes_nothing_of_its_creators_share",
    ),
)

_CARRIED = (
    Mutant(
        "http-right-is-looked-at-after-the-body",
        "qos.rest.server",
        "answer = await answer_before_body(route, call)",
        "answer = None",
        "No body is read of a stranger to the node.",
        test="rest/test_bodies.py::test_without_a_right_no_body_is_read[asks]",
    ),
    Mutant(
        "push-does-not-count-its-hop",
        "qos.rest.push.delivery",
        "str(hops_of(item.properties) + 1)",
        "str(hops_of(item.properties))",
        "A queue that is pushed into itself has an end.",
        test="rest/test_pushing.py::test_a_topic_that_is_pushed_into_itself_has_an_end",
    ),
    Mutant(
        "hops-of-http-are-not-read",
        "qos.core.rest.messages",
        'if "msg-hops" in headers:',
        "if False:",
        "What another service has counted is carried on.",
        test="core/rest/test_messages.py::"
        "test_a_forwarded_message_says_how_often_it_was_forwarded",
    ),
    Mutant(
        "hops-of-amqp-are-not-counted",
        "qos.core.amqp.bridging",
        "annotation(hops_of(item.properties) + 1)",
        "annotation(1)",
        "Each bridge counts how often a message was forwarded.",
        test="core/amqp/test_bridging.py::"
        "test_each_bridge_counts_how_often_a_message_was_forwarded",
    ),
)

_COUNTS = (
    Mutant(
        "ended-items-count-as-waiting",
        "qos.core.queue.item_index",
        "        self.waiting -= 1\n",
        "",
        "The kept counts of a queue are those of its items.",
        test="core/queue/test_item_counts.py::test_an_item_counts_as_long_as_it_is_there",
    ),
    Mutant(
        "ended-items-count-as-excluding",
        "qos.core.queue.item_index",
        "uncount(self.excluding, item.excluded)",
        "pass",
        "An item is stuck as long as it is there.",
        test="core/queue/test_item_counts.py::test_an_item_counts_as_long_as_it_is_there",
    ),
    Mutant(
        "ended-items-count-as-delayed",
        "qos.core.queue.item_index",
        "del self._delays[place]",
        "pass",
        "An item is held back as long as it is there.",
        test="core/queue/test_item_counts.py::test_an_item_counts_as_long_as_it_is_there",
    ),
)

SOCKETS = (*_LINKS, *_REVOKED, *_SHARES, *_CARRIED, *_COUNTS)
