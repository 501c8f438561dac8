"""Every limit on what others can make us hold, read or say, in one table of names.

`python -m qos.limits` prints it. Each limit is defined, with its reason, where it is
used; this table lists the limits and reads their values from there. A limit that the
user can set is named by its option, and shown with its default.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from dataclasses import dataclass, fields, is_dataclass
from typing import Final

__all__ = ["LIMITS", "Limit", "main"]


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit.

    Attributes:
        name: where it is defined: `module.CONSTANT`; for an option
            `module.Class.option`, for a field of a form `module.FIELDS.field`.
        bounds: what it limits, in words.
    """

    name: str
    bounds: str

    @property
    def value(self) -> float:
        """The value in use. inf: there is no limit unless the user sets one."""
        module, _, constant = self.name.partition(":")
        target: object = importlib.import_module(module)
        names = constant.split(".", 1)
        target = getattr(target, names[0])
        if len(names) == 1:
            assert isinstance(target, int | float)
            return target
        return _default(target, names[1])

    @property
    def is_option(self) -> bool:
        """Whether the user can set it."""
        return "." in self.name.partition(":")[2]


def _default(options: object, name: str) -> float:
    """The default of an option."""
    if is_dataclass(options):
        (field,) = [
            candidate for candidate in fields(options) if candidate.name == name
        ]
        return float(field.default)  # type: ignore[arg-type]  # it is a number
    assert isinstance(options, tuple)
    (field,) = [candidate for candidate in options if candidate.var == name]
    if field.default is None:
        return float(field.most)
    return float(field.default) if field.default else math.inf


#: Ordered by who causes the load: any peer, a peer that answers us, a user of a queue.
LIMITS: Final = (
    Limit(
        "qos.core.queue.item_index:HEAD",
        "items of a queue in memory that are ready, and twice as many for a while; and as"
        " many that are held back",
    ),
    Limit(
        "qos.core.queue.backlog:READ", "items that a queue reads at once from its store"
    ),
    Limit(
        "qos.stores.queue_plain:LOOKED_AT",
        "items that are held back which one look for others passes over",
    ),
    # -- a message that is received
    Limit("xep_qos.settings:Settings.quota_messages", "messages held of one account"),
    Limit("xep_qos.settings:Settings.quota_bytes", "bytes held of one account"),
    Limit(
        "xep_qos.settings:Settings.quota_total_messages",
        "messages held of all accounts",
    ),
    Limit("xep_qos.settings:Settings.quota_total_bytes", "bytes held of all accounts"),
    Limit(
        "xep_qos.settings:Settings.quota_domain_messages",
        "messages held of one foreign domain",
    ),
    Limit(
        "xep_qos.settings:Settings.quota_domain_bytes",
        "bytes held of one foreign domain",
    ),
    Limit("qos.core.quota:CREDIT_MAX", "messages that a sender is told it may send"),
    Limit("xep_qos.settings:Settings.hold_ttl_s", "seconds that a message is held"),
    Limit(
        "xep_qos.settings:Settings.tombstones_max", "remembered ids of ended messages"
    ),
    Limit(
        "xep_qos.settings:Settings.tombstone_ttl_s",
        "seconds that the id of an ended message is remembered",
    ),
    Limit(
        "qos.core.strings:ID_CHARS_MAX",
        "characters of a msgId, a mark, a hold or the id of an iq",
    ),
    Limit(
        "qos.core.strings:_SPLIT_MAX",
        "JIDs whose accounts are remembered, and as many for their domains",
    ),
    Limit("qos.core.strings:_TEXT_CHARS_MAX", "characters of the text of an error"),
    Limit("qos.core.message.batch:ELEMENTS_MAX", "requests in a batch"),
    Limit(
        "qos.core.message.batch:BYTES_MAX", "bytes of a batch, and of the answer to one"
    ),
    Limit(
        "qos.engine.inbox:_WAITING_MAX",
        "requests that wait while their message is being written",
    ),
    Limit("xep_qos.guard:_WAITING_MAX", "requests that wait for a decision on trust"),
    Limit(
        "xep_qos.guard:_WAITING_BYTES_MAX",
        "bytes of payload that wait for a decision on trust",
    ),
    Limit(
        "xep_qos.guard:_ROOMS_MAX",
        "rooms recognised by the presence of their occupants",
    ),
    Limit(
        "xep_qos.feed:_CHARS_MAX",
        "characters of payloads that are kept as elements as well",
    ),
    Limit("xep_qos.stanza:_CREDIT_DIGITS_MAX", "digits of a credit that a peer grants"),
    Limit("xep_qos.discovery:_PRESENT_MAX", "peers whose presence is remembered"),
    Limit(
        "xep_qos.discovery:_STRANGERS_MAX",
        "strangers whose presence is remembered beside them",
    ),
    Limit(
        "xep_qos.discovery:_RESOURCES_MAX",
        "remembered resources of an account of a stranger",
    ),
    Limit("xep_qos.features:_PEERS_MAX", "peers whose features are remembered"),
    Limit(
        "xep_qos.features:_QUESTIONS_MAX",
        "questions for features to which a late answer is taken",
    ),
    Limit(
        "xep_qos.endpoint:_ANSWERS_MAX",
        "peers of which the order of their last answers is remembered",
    ),
    Limit("xep_qos.roster:_NAMED_MAX", "odd items of the roster that a log line names"),
    Limit("xep_qos.roster:_ODD_MAX", "odd items of the roster that are told apart"),
    Limit("xep_qos.roster:_UNFOUND_MAX", "accounts logged as not to be found"),
    Limit("qos.core.roster_wait:_QUESTIONS_MAX", "requests for the roster"),
    Limit(
        "qos.core.roster_wait:_LOOKS_MAX",
        "looks, 15 s apart, at a link that brings no roster",
    ),
    Limit(
        "qos.core.message.inquiry:ANSWER_S_MAX",
        "seconds that a peer has to say what it supports",
    ),
    Limit(
        "qos.stream.caps:_ADDRESSED_MAX",
        "accounts that are known because presence was sent to them",
    ),
    Limit(
        "qos.stream.presences:_ENTRIES_MAX",
        "strangers in the roster of slixmpp, where the application wants their presence",
    ),
    Limit(
        "xep_qos.capabilities:_BYTES_MAX",
        "bytes of the capabilities of peers in the store (XEP-0115)",
    ),
    Limit(
        "qos.client.messages:PLAIN_MAX", "plain messages that wait for the application"
    ),
    Limit(
        "qos.client.messages:PLAIN_BYTES_MAX",
        "bytes of plain messages that wait for the application",
    ),
    Limit(
        "qos.client.trust_gate:UNDECIDED_MAX",
        "plain messages that wait for a decision on trust",
    ),
    Limit(
        "qos.client.trust_gate:UNDECIDED_BYTES_MAX",
        "bytes of plain messages that wait for a decision on trust",
    ),
    Limit(
        "xep_qos.endpoint:_PLAIN_WAITING_MAX",
        "messages at level unacknowledged that wait for a session; the next raises "
        "OutboxFull",
    ),
    Limit(
        "xep_qos.endpoint:_PAYLOAD_DEPTH_MAX",
        "elements that may be open at once in a message that is sent, itself included",
    ),
    Limit(
        "qos.stream.stream_limits:_DIGITS_MAX",
        "digits of a limit that a server announces (XEP-0478)",
    ),
    Limit(
        "qos.stream.refusals:_READABLE_MAX",
        "addresses of stanzas that are known to be addresses",
    ),
    # -- reports about peers
    Limit(
        "xep_qos.feed:_SAID_MAX",
        "accounts logged, once each, because nobody takes their messages",
    ),
    Limit(
        "qos.core.rate:SOURCES_MAX",
        "accounts with rate limits of their own for reports",
    ),
    Limit(
        "xep_qos.settings:Settings.event_interval_s",
        "seconds between two reports about one account",
    ),
    Limit(
        "xep_0337.event_logging:_WARNING_INTERVAL_S",
        "seconds between two warnings about an account's malformed events",
    ),
    Limit(
        "xep_0337.event_logging:MESSAGE_CHARS_MAX",
        "characters of the message of a log event",
    ),
    Limit(
        "xep_0337.event_logging:STACK_TRACE_CHARS_MAX",
        "characters of the stack trace of a log event",
    ),
    Limit(
        "xep_0337.event_logging:MODULE_CHARS_MAX",
        "characters of the module of a log event",
    ),
    # -- a message that is sent
    Limit("xep_qos.settings:Settings.outbox_messages_max", "outstanding messages"),
    Limit(
        "xep_qos.settings:Settings.outbox_bytes_max", "bytes of outstanding messages"
    ),
    Limit("xep_qos.settings:Settings.window_max", "messages in flight to one account"),
    Limit(
        "qos.engine.in_flight:_IDLE_FLOWS_MAX",
        "idle accounts whose window is remembered",
    ),
    Limit(
        "qos.core.addresses:ADDRESSES_MAX",
        "addresses of a server that are tried and remembered",
    ),
    Limit(
        "qos.core.message.flow:WINDOW_BYTES_MAX",
        "bytes that are on their way to the server and not known to be read",
    ),
    Limit(
        "qos.core.stanza_sizes:_ON_WAY_MAX",
        "stanzas on their way, each larger than all before it, that may prove to be over "
        "the server's limit",
    ),
    Limit("xep_qos.settings:Settings.outcomes_max", "remembered outcomes"),
    Limit(
        "xep_qos.settings:Settings.outcome_ttl_s",
        "seconds that an outcome is remembered",
    ),
    Limit(
        "xep_qos.settings:Settings.stanza_bytes_max", "bytes of a stanza that is sent"
    ),
    Limit("xep_qos.settings:Settings.batch_max", "requests in a batch that is sent"),
    Limit(
        "qos.core.message.batch:_UNDER_WAY_MAX",
        "unanswered batches to a peer; further requests wait for the next batch",
    ),
    Limit(
        "qos.core.message.batch:_UNANSWERED_MAX",
        "unanswered batches to a peer whose answer is still recognised",
    ),
    # -- a queue service
    Limit("qos.core.queue.bounds:QueueBounds.nodes", "nodes of a service"),
    Limit(
        "qos.core.queue.bounds:QueueBounds.nodes_per_account",
        "nodes of a service created by one account",
    ),
    Limit(
        "qos.core.queue.bounds:QueueBounds.nodes_per_domain",
        "nodes of a service created by one foreign domain",
    ),
    Limit(
        "qos.core.queue.bounds:QueueBounds.bytes_per_account",
        "bytes of items that wait in the nodes created by one account",
    ),
    Limit(
        "qos.core.queue.link_time:_ANSWER_S_MAX",
        "seconds that the server of a queue service has for a sign of life",
    ),
    Limit(
        "qos.core.queue.browsing:_COUNTED_MAX",
        "accepted items that are counted for a page",
    ),
    Limit("qos.core.queue.owner_requests:_AFFILIATIONS_MAX", "affiliations of a node"),
    Limit(
        "qos.core.queue.requeuing:_LOOKED_AT_MAX",
        "dead items that one request to requeue all looks at",
    ),
    Limit(
        "qos.core.queue.requeuing:_ID_CHARS_MAX",
        "characters of the ids that it requeues, unless the first one has more",
    ),
    Limit(
        "qos.core.queue.bounds:QueueBounds.subscriptions", "subscriptions of a service"
    ),
    Limit(
        "qos.core.queue.bounds:QueueBounds.termini",
        "durable termini of AMQP links",
    ),
    Limit(
        "qos.core.queue.bounds:QueueBounds.termini_per_account",
        "durable termini of one account",
    ),
    Limit(
        "qos.core.queue.bounds:QueueBounds.termini_per_domain",
        "durable termini of all accounts of a foreign domain",
    ),
    Limit(
        "qos.core.queue.bounds:QueueBounds.subscriptions_per_account",
        "subscriptions of one account",
    ),
    Limit(
        "qos.core.queue.bounds:QueueBounds.subscriptions_per_domain",
        "subscriptions of one foreign domain",
    ),
    Limit(
        "qos.core.queue.subscription_index:_DORMANT_S",
        "seconds that a dormant subscription stays",
    ),
    Limit("qos.core.queue.browsing:_PAGE_MAX", "items in an answer to a browse"),
    Limit("qos.core.queue.browsing:_PAGE_BYTES_MAX", "bytes of the items in it"),
    Limit(
        "qos.core.queue.presence:_RESOURCES_MAX", "remembered full JIDs of one account"
    ),
    Limit(
        "qos.core.queue.node_options:NODE_FIELDS.queue#max_items",
        "waiting items of a node",
    ),
    Limit(
        "qos.core.queue.node_options:NODE_FIELDS.queue#max_bytes",
        "bytes of waiting items of a node",
    ),
    Limit(
        "qos.core.queue.node_options:NODE_FIELDS.queue#max_deliveries",
        "failed deliveries of an item until it is dead",
    ),
    Limit(
        "qos.core.queue.node_options:NODE_FIELDS.queue#dedupe_window",
        "seconds that the id of an ended item is remembered",
    ),
    Limit(
        "qos.core.queue.node_options:QUEUE_REQUESTS_MAX",
        "items that a worker may hold at a time",
    ),
    Limit("qos.core.queue.node_options:BATCH_MAX", "items in one event"),
    Limit(
        "qos.core.queue.node_options:_ITEMS_MAX",
        "waiting items that an owner may allow",
    ),
    Limit(
        "qos.core.queue.node_options:_BYTES_MAX",
        "bytes of waiting items that an owner may allow",
    ),
    Limit(
        "qos.core.queue.node_options:KEEP_ITEMS_MAX",
        "items that a topic keeps, if its owner says so",
    ),
    Limit(
        "qos.core.queue.node_options:NODE_FIELDS.queue#keep_items",
        "items that a topic keeps",
    ),
    Limit(
        "qos.core.queue.shares:OWNERS_MAX",
        "times a bound of a node, with what only its owners may have beyond it",
    ),
    Limit(
        "qos.core.queue.stats:EXCLUDING_MAX",
        "different sets of excluded workers among which stuck items are counted",
    ),
    Limit(
        "qos.core.queue.timers:EXPIRED_MAX", "items of a node that expire in one slice"
    ),
    Limit(
        "qos.core.queue.timers:LOOKED_MAX",
        "entries that a slice of expiry passes over, or a dispatch",
    ),
    Limit("qos.core.queue.topics:QUEUES_MAX", "queues that copy from one topic"),
    Limit(
        "qos.core.queue.item_lifecycle:HOLD_S_MAX",
        "seconds that an item can be held with extensions",
    ),
    Limit(
        "qos.core.queue.item_lifecycle:_HISTORY_MAX",
        "failures in the history of an item",
    ),
    Limit(
        "qos.core.queue.item_lifecycle:_EXCLUDED_MAX", "workers that an item excludes"
    ),
    Limit("qos.core.queue.selector.tokens:TEXT_CHARS_MAX", "characters of a selector"),
    Limit("qos.core.queue.selector.parser:TERMS_MAX", "names in a selector"),
    Limit(
        "qos.core.queue.selector.parser:DEPTH_MAX",
        "levels of parentheses, NOT and signs in a selector",
    ),
    Limit(
        "qos.core.queue.selector.parser:SEARCHES_MAX",
        "patterns of a selector with _ after %",
    ),
    Limit("qos.core.queue.selector.parser:IN_MAX", "strings of one IN in a selector"),
    Limit(
        "qos.core.queue.selector.values:NUMBER_CHARS_MAX",
        "characters of an untyped text that a selector reads as a number",
    ),
    Limit(
        "qos.core.queue.selector_time:SLICE_S",
        "seconds of a turn for selectors of items that wait",
    ),
    Limit(
        "qos.core.queue.selector_time:STEP_S",
        "seconds of a turn for selectors of new items",
    ),
    Limit(
        "qos.core.queue.selector_time:ACCOUNT_S",
        "seconds in a minute that the dear selectors of an account may take",
    ),
    Limit(
        "qos.core.queue.ready_items:FILTERS_MAX",
        "different selectors of the subscriptions of a node",
    ),
    Limit(
        "qos.core.queue.ready_items:EXCLUDERS_MAX",
        "workers excluded by some items of a node that still get others of these",
    ),
    Limit(
        "qos.core.queue.properties:HOPS_MAX",
        "queues that push and bridges forward a message through",
    ),
    Limit("qos.core.rest.messages:_HOPS_MAX", "the largest count in a header Msg-Hops"),
    Limit(
        "qos.core.url_segments:SEGMENT_BYTES_MAX",
        "bytes of the name of a node, or of the id of an item, in a URL",
    ),
    Limit("qos.core.queue.properties:NAMES_MAX", "properties of an item"),
    Limit(
        "qos.core.queue.properties:NAME_CHARS_MAX",
        "characters of the name of a property",
    ),
    Limit(
        "qos.core.queue.properties:PROPERTIES_BYTES_MAX",
        "bytes of the properties of an item",
    ),
    Limit(
        "qos.core.queue.properties:HEADER_BYTES_MAX",
        "bytes of the properties of an item in a header of HTTP",
    ),
    Limit(
        "qos.core.queue.item_names:TEXT_CHARS_MAX",
        "characters of a part of a payload that a selector can read",
    ),
    Limit(
        "qos.engine.queue_outputs:_SENT_MAX", "events whose bounce is still recognised"
    ),
    Limit(
        "xep_0254.published_messages:ID_CHARS_MAX",
        "characters of the id of a stanza that gets an answer",
    ),
    Limit("xep_0254.requests:NODE_CHARS_MAX", "characters of the name of a node"),
    Limit("xep_0254.requests:_JID_CHARS_MAX", "characters of a JID in a request"),
    Limit("xep_0254.requests:EXTEND_S_MAX", "seconds of one extension of a lock"),
    Limit("xep_0254.request_items:ITEM_BYTES_MAX", "bytes of an item"),
    Limit(
        "xep_0254.request_items:ITEM_ID_CHARS_MAX", "characters of the id of an item"
    ),
    Limit("xep_0254.request_items:TOKEN_CHARS_MAX", "characters of a token"),
    Limit("xep_0254.request_items:ITEMS_MAX", "items in a request"),
    Limit("xep_0254.request_items:IDS_BYTES_MAX", "bytes of the ids in a request"),
    Limit(
        "xep_0254.request_items:REASON_CHARS_MAX",
        "characters of the reason that a worker gives",
    ),
    Limit("xep_0254.request_items:TIME_S_MAX", "seconds of a ttl or a delay"),
    Limit("xep_0254.disco:_NODES_MAX", "names of nodes in an answer to disco#items"),
    Limit("xep_0254.service_lists:ANSWER_BYTES_MAX", "bytes of items in an answer"),
    Limit(
        "xep_0254.service_lists:_HISTORY_BYTES_MAX",
        "bytes of the history of one item in an answer",
    ),
    Limit(
        "xep_0254.service_stanza:_ECHO_BYTES_MAX",
        "bytes of a request that is repeated in an error",
    ),
    Limit("xep_0254.events:EVENT_BYTES_MAX", "bytes of items in an event"),
    Limit("xep_0254.elements:_NUMBER_CHARS_MAX", "characters of a number in a request"),
    Limit(
        "xep_0254.elements:_LEGAL_CHARS_MAX",
        "characters of a peer's text that is repeated in an error",
    ),
    Limit(
        "qos.core.queue.command_session_table:SESSION_S_MAX",
        "seconds without a request after which a command ends",
    ),
    Limit(
        "qos.core.queue.command_session_table:SESSIONS_PER_ACCOUNT_MAX",
        "commands that an account executes at a time",
    ),
    Limit(
        "qos.core.queue.command_session_table:SESSIONS_PER_DOMAIN_MAX",
        "commands that the accounts of a foreign domain execute at a time",
    ),
    Limit(
        "qos.core.queue.command_session_table:SESSIONS_MAX",
        "commands that are executed at a time",
    ),
    Limit(
        "qos.core.queue.command_session_table:ENDED_MAX",
        "commands that are remembered as ended",
    ),
    Limit("xep_0254.command_stanza:FIELDS_MAX", "fields of the form of a command"),
    Limit(
        "xep_0254.command_stanza:FIELD_VALUES_MAX", "values and options of such a field"
    ),
    Limit(
        "qos.core.queue.command_inputs:FORM_CHARS_MAX",
        "characters of all values of such a form",
    ),
    Limit(
        "qos.core.queue.command_forms:CHOICES_MAX",
        "queues in a list to choose from; with more, a name is typed",
    ),
    Limit(
        "qos.core.queue.command_forms:CHOICES_CHARS_MAX",
        "characters of the names in such a list",
    ),
    Limit(
        "qos.core.queue.command_forms:_CELL_CHARS_MAX",
        "characters of a cell of a table",
    ),
    Limit(
        "qos.core.queue.command_forms:_PAYLOAD_CHARS_MAX",
        "characters of a payload that a command shows",
    ),
    Limit(
        "qos.core.queue.command_outcomes:QUEUES_PAGE_MAX",
        "queues that a command shows at a time",
    ),
    Limit(
        "qos.core.queue.command_outcomes:ITEMS_PAGE_MAX",
        "items that a command shows at a time",
    ),
    Limit(
        "qos.core.queue.command_outcomes:DEAD_PAGE_MAX",
        "dead items to choose from at a time",
    ),
    Limit(
        "qos.core.queue.command_outcomes:_PAGE_CHARS_MAX",
        "characters of the names or ids that a command shows at a time",
    ),
    Limit(
        "qos.core.queue.command_outcomes:WORKERS_MAX", "workers that a command shows"
    ),
    Limit(
        "qos.core.queue.command_outcomes:REQUEUED_MAX",
        "dead items after which one command requeues no more",
    ),
    # -- every door of a queue service
    Limit("qos.core.payers:Rates.requests", "requests of one user a second"),
    Limit("qos.core.payers:Rates.bytes", "bytes of one user a second"),
    Limit(
        "qos.core.payers:BURST_S",
        "seconds whose requests and bytes a user may send at once after a silence",
    ),
    Limit("qos.engine.payers:TURN_S", "seconds of work until the others have a turn"),
    Limit("qos.engine.payers:TASKS_MAX", "requests of HTTP that begin in one turn"),
    Limit(
        "qos.engine.payers:UNWRITTEN_MAX",
        "items of a user by AMQP that are being written at a time",
    ),
    Limit(
        "qos.core.payers:_AHEAD_S_MAX",
        "seconds of work that a user may have used more than another who waits",
    ),
    Limit(
        "qos.core.payers:_REMEMBERED_MAX",
        "users and addresses whose used time is remembered",
    ),
    # -- gateways
    Limit(
        "qos.core.connection_shares:_REMEMBERED_MAX",
        "addresses whose networks are remembered",
    ),
    Limit(
        "qos.core.connection_shares:TOTAL_MAX",
        "connections of all gateways, of which half may be not logged in",
    ),
    Limit(
        "qos.core.connection_shares:ADDRESS_MAX",
        "connections of one address (IPv6: one /64) that are not logged in",
    ),
    Limit(
        "qos.core.connection_shares:ACCOUNT_MAX",
        "connections of one account that are logged in",
    ),
    Limit(
        "qos.engine.doors:HANDSHAKE_S", "seconds until a handshake of TLS is complete"
    ),
    Limit(
        "qos.engine.doors:_BACKLOG", "connections that wait in the kernel at each door"
    ),
    Limit("qos.engine.doors:LOGIN_S", "seconds until a connection has to be logged in"),
    Limit("qos.password_checks:_CHECKS_MAX", "passwords that are checked at a time"),
    Limit(
        "qos.core.login_queue:ADDRESS_MAX",
        "passwords of one address that wait to be checked",
    ),
    Limit("qos.users:_REMEMBERED_MAX", "passwords that are remembered as right"),
    Limit(
        "xep_0254.request_turns:_WAITING_MAX",
        "requests of an account, or of a foreign domain, that wait for a turn by XMPP",
    ),
    Limit(
        "xep_0254.request_turns:_ALL_WAITING_MAX",
        "requests of all that wait for a turn by XMPP",
    ),
    # -- an AMQP 1.0 gateway
    Limit(
        "qos.amqp.bounds:IDLE_S",
        "seconds without a frame that a peer is told; it is gone after twice the time",
    ),
    Limit(
        "qos.amqp.bounds:BEAT_S",
        "seconds until the next empty frame, which none asked for",
    ),
    Limit("qos.amqp.bounds:FRAME_BYTES_MAX", "bytes of a frame"),
    Limit("qos.amqp.bounds:CHANNELS_MAX", "sessions of a connection"),
    Limit("qos.amqp.bounds:LINKS_MAX", "links of a connection"),
    Limit("qos.amqp.bounds:CREDIT", "messages on a link that are not yet accepted"),
    Limit("qos.amqp.bounds:UNSETTLED_MAX", "unsettled items of a link"),
    Limit(
        "qos.amqp.unsettled:KEPT_MAX",
        "suspended links, of each direction, whose unsettled deliveries are kept",
    ),
    Limit(
        "qos.amqp.unsettled:KEPT_PER_ACCOUNT_MAX",
        "those of one account",
    ),
    Limit(
        "qos.amqp.source:OVERSHOOT_MAX",
        "times its credit that a broker may have unsettled at a bridge",
    ),
    Limit(
        "qos.core.amqp.frame_shim:HANDLES_MAX",
        "links of a connection that its peer has not detached, refused ones too",
    ),
    Limit(
        "qos.core.amqp.delivery_states:UNSETTLED_MAX",
        "unsettled deliveries that a peer tells in one attach",
    ),
    Limit("qos.core.amqp.delivery_states:TAG_BYTES_MAX", "bytes of a delivery-tag"),
    Limit("qos.amqp.bounds:MESSAGE_BYTES_MAX", "bytes of a message"),
    Limit(
        "qos.amqp.bounds:SEND_BYTES_MAX",
        "bytes of messages to the consumers of a session that are not written yet",
    ),
    Limit(
        "qos.amqp.bounds:READ_BYTES_MAX",
        "bytes that have come on a connection and wait for a turn of its account",
    ),
    Limit(
        "qos.amqp.bounds:PENDING_BYTES_MAX",
        "bytes of the messages of a connection that are being written",
    ),
    Limit(
        "qos.amqp.bounds:UNFINISHED_BYTES_MAX",
        "bytes of messages of a connection whose ends have not come",
    ),
    Limit(
        "qos.amqp.bounds:REASON_CHARS_MAX",
        "characters of the reason of a rejected outcome",
    ),
    Limit(
        "qos.amqp.termini:TIMEOUT_S_MAX",
        "seconds that a terminus is kept after its link",
    ),
    Limit(
        "qos.core.amqp.item_rendering:ANNOTATIONS_BYTES_MAX",
        "bytes of the annotations that consumers add to an item",
    ),
    Limit(
        "qos.core.amqp.messages:READABLE_TAGS_MAX",
        "tags of a body of XML that XMPP workers get beside its bytes",
    ),
    Limit("qos.core.amqp.sasl:FRAME_BYTES_MAX", "bytes of a frame before the login"),
    # -- an HTTP gateway
    Limit(
        "qos.rest.admission:DELAY_S_MAX",
        "seconds for which a request over a rate waits before it is refused",
    ),
    Limit("qos.rest.bounds:IDLE_S", "seconds until the next headers are complete"),
    Limit("qos.rest.bounds:LINE_BYTES_MAX", "bytes of the target or of a header"),
    Limit("qos.rest.bounds:HEADERS_MAX", "headers of a request"),
    Limit("qos.rest.bounds:BODY_BYTES_MAX", "bytes of a body"),
    Limit("qos.rest.bounds:BATCH_BYTES_MAX", "bytes of the body of a batch"),
    Limit("qos.rest.bounds:BODIES_BYTES_MAX", "bytes of all bodies at a time"),
    Limit("qos.rest.bounds:REQUESTS_PER_ACCOUNT_MAX", "requests of one user at a time"),
    Limit("qos.rest.bounds:SENDS_PER_S", "messages to devices a second, of all users"),
    Limit("qos.rest.bounds:BODY_S", "seconds until a body is complete"),
    Limit(
        "qos.rest.bounds:BODY_START_S",
        "seconds until a body has to come at the minimum speed",
    ),
    Limit(
        "qos.rest.bounds:BODY_BYTES_PER_S_MIN",
        "bytes a second of the slowest body",
    ),
    Limit("qos.rest.bounds:READ_BYTES", "bytes of a body in front of its reader"),
    Limit("qos.rest.bounds:DRAIN_BYTES_MAX", "bytes of an unwanted body, thrown away"),
    Limit("qos.rest.bounds:DRAIN_S", "seconds in which they are thrown away"),
    Limit("qos.rest.bounds:WRITE_S", "seconds in which an answer is taken"),
    Limit(
        "qos.rest.bounds:CONSUMERS_PER_ACCOUNT_MAX",
        "pull consumers of one client of HornetQ",
    ),
    Limit("qos.rest.bounds:CONSUMERS_PER_NODE_MAX", "pull consumers of one queue"),
    Limit(
        "qos.rest.bounds:CONSUMER_IDLE_S",
        "seconds until a pull consumer without requests has timed out",
    ),
    Limit(
        "qos.rest.bounds:DELETED_CONSUMERS_MAX",
        "pull consumers that are remembered as deleted",
    ),
    Limit(
        "qos.rest.bounds:PUSH_PER_ACCOUNT_MAX",
        "sessions of the push subscribers of one user",
    ),
    Limit("qos.rest.bounds:PUSH_MAX", "sessions of the push subscribers of all users"),
    Limit(
        "qos.rest.bounds:PUSH_LINKS_MAX",
        "messages of a push subscriber whose outcome is not known",
    ),
    Limit("qos.rest.bounds:PUSH_CONNECTIONS_MAX", "connections to push targets"),
    Limit("qos.rest.bounds:PUSH_LOOKUPS_MAX", "names of targets looked up at a time"),
    Limit("qos.rest.bounds:PUSH_S", "seconds of a request to a push target"),
    Limit("qos.rest.bounds:PUSH_LOCK_S", "seconds of the lock of a pushed message"),
    Limit("qos.rest.bounds:PUSH_BODY_S", "seconds for the body of a target's answer"),
    Limit("qos.rest.bounds:PUSH_ANSWER_BYTES_MAX", "bytes of an answer of a target"),
    Limit(
        "qos.rest.bounds:PUSH_INFORMATIONAL_MAX",
        "informational answers (1xx) of a target to one request",
    ),
    Limit(
        "qos.rest.bounds:PUSH_FAILURES_MAX",
        "failures in a row until a push subscriber is disabled",
    ),
    Limit(
        "qos.rest.pushing:_AUTHORIZATION_CHARS_MAX",
        "characters of the Authorization for a push target",
    ),
    Limit(
        "qos.core.queue.publishing:ONCE_S_MAX", "seconds in which a link can be used"
    ),
    Limit("qos.core.rest.waits:WAIT_S_MAX", "seconds that a consumer waits"),
    Limit("qos.core.rest.waits:_DIGITS_MAX", "digits of a wait"),
    Limit(
        "qos.core.rest.status_lines:STATUS_LINE_BYTES_MAX",
        "bytes of the status line of an answer of a target",
    ),
    Limit("qos.core.rest.batches:PARTS_MAX", "messages in a batch"),
    Limit("qos.core.rest.batches:ENTRY_ELEMENTS_MAX", "elements in an entry of a feed"),
    Limit(
        "qos.core.rest.batches:_HEADER_BYTES_MAX",
        "bytes of the headers of a message in a batch",
    ),
    Limit(
        "qos.core.rest.sending:TTL_S",
        "seconds until a message to a device ends, unless its user says when",
    ),
    Limit(
        "qos.engine.account_room:PART",
        "parts of an outbox, of which a user of a gateway can fill one",
    ),
    Limit(
        "xep_qos.relay:RELAYED_MAX",
        "messages to devices whose outcomes are remembered, for outcome_ttl_s at most",
    ),
    Limit(
        "qos.core.content_headers:CONTENT_TYPE_MAX",
        "characters of a header that is kept with its item",
    ),
    Limit(
        "qos.core.rest.replying:CORRELATION_BYTES_MAX",
        "bytes of a correlation id in a URL",
    ),
    Limit("qos.core.rest.messages:TIME_MS_MAX", "milliseconds of a ttl or a delay"),
    Limit("qos.core.amqp.delays:DELAY_S_MAX", "seconds of a delay by AMQP"),
    Limit(
        "qos.core.rest.forms:REASON_CHARS_MAX",
        "characters of the reason of a rejected item",
    ),
    Limit(
        "qos.core.rest.forms:EXTEND_S_MAX",
        "seconds of one extension of a lock",
    ),
    Limit(
        "qos.core.rest.hornetq.forms:NODE_XML_BYTES_MAX",
        "bytes of the document by which a client of HornetQ makes a queue",
    ),
    Limit(
        "qos.core.rest.hornetq.registrations:REGISTRATION_BYTES_MAX",
        "bytes of the document by which a client of HornetQ asks for push",
    ),
    Limit(
        "qos.core.rest.hornetq.forms:NAME_CHARS_MAX",
        "characters of the name of a subscription",
    ),
    Limit(
        "qos.core.rest.hornetq.registrations:HEADERS_MAX",
        "headers that a push consumer of HornetQ sends to its target",
    ),
    Limit(
        "qos.core.rest.hornetq.registrations:HEADER_CHARS_MAX",
        "characters of such a header",
    ),
    Limit(
        "qos.core.rest.hornetq.registrations:RETRIES_MAX",
        "retries of one delivery of a push consumer of HornetQ",
    ),
    Limit(
        "qos.core.rest.hornetq.registrations:RETRY_WAIT_MS_MAX",
        "milliseconds before such a retry",
    ),
    Limit(
        "qos.core.rest.hornetq.registrations:SESSIONS_MAX",
        "messages of a push consumer of HornetQ on their way at a time",
    ),
    Limit(
        "qos.core.rest.header_room:HEADERS_BYTES_MAX",
        "bytes of the headers of an answer",
    ),
    Limit("qos.core.rest.link_header:LINKS_MAX", "links in the headers of a response"),
    Limit(
        "qos.core.rest.push_targets:URL_CHARS_MAX",
        "characters of a URL that is pushed to",
    ),
    Limit("qos.core.rest.push_targets:_HOST_CHARS_MAX", "characters of its host"),
    Limit(
        "qos.core.rest.push_links:ATOM_LINK_BYTES_MAX",
        "bytes of the Atom link of a push subscriber",
    ),
    Limit("qos.core.rest.push_links:_REL_CHARS_MAX", "characters of its relation"),
    Limit("qos.core.rest.forwarding:REDIRECTS_MAX", "redirects of a push target"),
    Limit(
        "qos.core.rest.forwarding:RETRY_AFTER_S_MAX",
        "seconds for which a push target can put its subscriber off",
    ),
    # -- both
    Limit(
        "qos.xml_reading:NAMESPACE_BYTES_MAX",
        "bytes of a namespace's name in a body or stanza; with more, a body is no XML, "
        "and a stanza is refused",
    ),
    Limit(
        "qos.xml_reading:DEPTH_MAX",
        "elements that may be open at once in a stanza; with more it is refused; in a "
        "body seven fewer",
    ),
    Limit(
        "qos.engine.doors:_LOG_CHARS_MAX",
        "characters of a line of the log that a stranger has caused",
    ),
    Limit(
        "qos.stream.parser:_BYTES_MAX",
        "bytes of a stream after which the names in it are forgotten",
    ),
    Limit(
        "qos.stream.turns:_SLICE_BYTES",
        "bytes of a stream that are handled between two looks at the clock",
    ),
    Limit("qos.xml_text:_NAMES_MAX", "remembered names of elements"),
    Limit("qos.xml_text:_NAME_CHARS_MAX", "characters of a remembered name"),
    Limit(
        "qos.engine.clock:_OUTDATED_MAX",
        "outdated timers, in addition to as many as there are valid ones",
    ),
    Limit("qos.journal.schema:LINE_BYTES_MAX", "bytes of a line of the journal"),
    Limit(
        "qos.cli.writer:NOTES_BYTES_MAX",
        "bytes of lines that wait for stderr; further lines are dropped and counted",
    ),
    Limit(
        "qos.journal.counts:ROUTES_MAX",
        "routes that are counted separately in one window",
    ),
)


def main() -> int:
    """Print the table."""
    rows = [(f"{limit.value:,.10g}", limit) for limit in LIMITS]
    width = max(len(value) for value, _ in rows)
    try:
        for value, limit in rows:
            mark = " (an option)" if limit.is_option else ""
            sys.stdout.write(f"{value:>{width}}  {limit.bounds}{mark}: {limit.name}\n")
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` closed it; else Python complains at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
