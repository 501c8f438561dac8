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
        found: object = importlib.import_module(module)
        names = constant.split(".", 1)
        found = getattr(found, names[0])
        if len(names) == 1:
            assert isinstance(found, int | float)
            return found
        return _default(found, names[1])

    @property
    def is_option(self) -> bool:
        """Whether the user can set it."""
        return "." in self.name.partition(":")[2]


def _default(options: object, name: str) -> float:
    """The default of an option."""
    if is_dataclass(options):
        (field,) = [each for each in fields(options) if each.name == name]
        return float(field.default)  # type: ignore[arg-type]  # it is a number
    assert isinstance(options, tuple)
    (field,) = [each for each in options if each.var == name]
    if field.default is None:
        return float(field.most)
    return float(field.default) if field.default else math.inf


#: Ordered by who causes the load: any peer, a peer that answers us, a user of a queue.
LIMITS: Final = (
    # -- a message that is received
    Limit("xep_qos.settings:Settings.quota_messages", "messages held of one account"),
    Limit("xep_qos.settings:Settings.quota_bytes", "bytes held of one account"),
    Limit("xep_qos.settings:Settings.quota_total_messages", "messages held of all"),
    Limit("xep_qos.settings:Settings.quota_total_bytes", "bytes held of all"),
    Limit(
        "xep_qos.settings:Settings.quota_domain_messages",
        "messages held of one foreign domain",
    ),
    Limit(
        "xep_qos.settings:Settings.quota_domain_bytes",
        "bytes held of one foreign domain",
    ),
    Limit("xep_qos.settings:Settings.hold_ttl_s", "seconds that a message is held"),
    Limit("xep_qos.settings:Settings.tombstones_max", "ended messages remembered"),
    Limit("xep_qos.settings:Settings.tombstone_ttl_s", "seconds that they are"),
    Limit(
        "qos.core.strings:ID_CHARS_MAX",
        "characters of a msgId, mark, hold or iq id",
    ),
    Limit("qos.core.strings:_TEXT_CHARS_MAX", "characters of an error's text"),
    Limit("qos.core.message.batch:ELEMENTS_MAX", "requests in a batch"),
    Limit("qos.core.message.batch:BYTES_MAX", "bytes of answers in a batch"),
    Limit("qos.engine.inbox:_WAITING_MAX", "requests that wait for a write of theirs"),
    Limit("xep_qos.guard:_WAITING_MAX", "requests that wait for a decision on trust"),
    Limit("xep_qos.guard:_WAITING_BYTES_MAX", "bytes of their payloads"),
    Limit("xep_qos.guard:_ROOMS_MAX", "rooms remembered by their occupants"),
    Limit("xep_qos.stanza:_ROOM_DIGITS_MAX", "digits of the room that a peer says"),
    Limit("xep_qos.discovery:_PRESENT_MAX", "peers remembered as available"),
    Limit("xep_qos.capabilities:_KEPT_MAX", "lists of features kept (XEP-0115)"),
    Limit("xep_qos.capabilities:_KEPT_BYTES_MAX", "bytes of each of them"),
    Limit("qos.client.messages:PLAIN_MAX", "plain messages that wait for a loop"),
    Limit("qos.client.messages:PLAIN_BYTES_MAX", "their bytes"),
    # -- reports about peers
    Limit(
        "xep_qos.endpoint:_SAID_MAX", "accounts of whom it is said that nobody takes"
    ),
    Limit(
        "qos.core.rate:SOURCES_MAX", "accounts reported for themselves in an interval"
    ),
    Limit("xep_qos.settings:Settings.event_interval_s", "seconds between two reports"),
    Limit("xep_0337.event_logging:_WARNING_INTERVAL_S", "the same of malformed events"),
    Limit("xep_0337.event_logging:MESSAGE_CHARS_MAX", "characters of an event's text"),
    Limit("xep_0337.event_logging:STACK_TRACE_CHARS_MAX", "of its stack trace"),
    Limit("xep_0337.event_logging:MODULE_CHARS_MAX", "of its module"),
    # -- a message that is sent
    Limit("xep_qos.settings:Settings.outbox_messages_max", "messages outstanding"),
    Limit("xep_qos.settings:Settings.outbox_bytes_max", "bytes outstanding"),
    Limit("xep_qos.settings:Settings.window_max", "messages under way to one account"),
    Limit(
        "qos.engine.in_flight:_IDLE_FLOWS_MAX", "accounts whose window is remembered"
    ),
    Limit("xep_qos.settings:Settings.outcomes_max", "outcomes remembered"),
    Limit("xep_qos.settings:Settings.outcome_ttl_s", "seconds that they are"),
    Limit("xep_qos.settings:Settings.stanza_bytes_max", "bytes of a stanza of ours"),
    Limit("xep_qos.settings:Settings.batch_max", "requests in a batch of ours"),
    Limit(
        "qos.core.message.batch:_UNDER_WAY_MAX", "batches unanswered while more gathers"
    ),
    Limit(
        "qos.core.message.batch:_UNANSWERED_MAX", "batches whose answer is recognised"
    ),
    # -- a queue service
    Limit("qos.core.queue.service:QueueBounds.nodes", "nodes of a service"),
    Limit("qos.core.queue.service:QueueBounds.nodes_per_account", "of one account"),
    Limit(
        "qos.core.queue.service:QueueBounds.nodes_per_domain", "of one foreign domain"
    ),
    Limit("qos.core.queue.owner_requests:_AFFILIATIONS_MAX", "affiliations of a node"),
    Limit(
        "qos.core.queue.service:QueueBounds.subscriptions", "subscriptions of a service"
    ),
    Limit(
        "qos.core.queue.service:QueueBounds.subscriptions_per_account", "of one account"
    ),
    Limit(
        "qos.core.queue.service:QueueBounds.subscriptions_per_domain",
        "of one foreign domain",
    ),
    Limit(
        "qos.core.queue.node:_DORMANT_S", "seconds that a dormant subscription stays"
    ),
    Limit(
        "qos.core.queue.subscriber_requests:_PAGE_MAX", "items in an answer to a browse"
    ),
    Limit("qos.core.queue.service:_RESOURCES_MAX", "devices of an account remembered"),
    Limit("qos.core.queue.node_options:NODE_FIELDS.queue#max_items", "items that wait"),
    Limit("qos.core.queue.node_options:NODE_FIELDS.queue#max_bytes", "their bytes"),
    Limit("qos.core.queue.node_options:NODE_FIELDS.queue#max_deliveries", "deliveries"),
    Limit(
        "qos.core.queue.node_options:NODE_FIELDS.queue#dedupe_window",
        "seconds of an id",
    ),
    Limit(
        "qos.core.queue.node_options:QUEUE_REQUESTS_MAX",
        "items that a worker has at a time",
    ),
    Limit("qos.core.queue.node_options:BATCH_MAX", "items in one event"),
    Limit("qos.core.queue.node_options:_ITEMS_MAX", "items that an owner can let wait"),
    Limit("qos.core.queue.node_options:_BYTES_MAX", "bytes that an owner can let wait"),
    Limit(
        "qos.core.queue.item_lifecycle:HOLD_S_MAX",
        "seconds that a lock can be extended",
    ),
    Limit(
        "qos.core.queue.item_lifecycle:_HISTORY_MAX",
        "failures in the history of an item",
    ),
    Limit(
        "qos.core.queue.item_lifecycle:_EXCLUDED_MAX", "workers that an item excludes"
    ),
    Limit("qos.engine.queue_engine:_SENT_MAX", "events whose bounce is recognised"),
    Limit("xep_0254.service:_ID_CHARS_MAX", "characters of an id that is answered"),
    Limit("xep_0254.requests:NODE_CHARS_MAX", "characters of the name of a node"),
    Limit("xep_0254.requests:_JID_CHARS_MAX", "characters of a JID in a request"),
    Limit(
        "xep_0254.requests:EXTEND_S_MAX", "seconds that a lock is extended at a time"
    ),
    Limit("xep_0254.request_items:ITEM_BYTES_MAX", "bytes of an item"),
    Limit(
        "xep_0254.request_items:ITEM_ID_CHARS_MAX", "characters of the id of an item"
    ),
    Limit("xep_0254.request_items:TOKEN_CHARS_MAX", "characters of a token"),
    Limit("xep_0254.request_items:ITEMS_MAX", "items in a request"),
    Limit("xep_0254.request_items:IDS_BYTES_MAX", "bytes of their ids"),
    Limit("xep_0254.request_items:REASON_CHARS_MAX", "characters of a worker's reason"),
    Limit("xep_0254.request_items:TIME_S_MAX", "seconds of a ttl or a delay"),
    Limit("xep_0254.service_stanza:ANSWER_BYTES_MAX", "bytes of items in an answer"),
    Limit(
        "xep_0254.service_stanza:_HISTORY_BYTES_MAX", "bytes of a history in an answer"
    ),
    Limit("xep_0254.service_stanza:_ECHO_BYTES_MAX", "bytes of a request in an error"),
    Limit("xep_0254.events:EVENT_BYTES_MAX", "bytes of items in an event"),
    Limit("xep_0254.elements:_NUMBER_CHARS_MAX", "characters of a number"),
    Limit("xep_0254.elements:_LEGAL_CHARS_MAX", "characters of a text in an error"),
    # -- both
    Limit("qos.xml_text:_NAMES_MAX", "names of elements remembered"),
    Limit("qos.xml_text:_NAME_CHARS_MAX", "characters of one that is"),
    Limit(
        "qos.engine.clock:_OUTDATED_MAX", "outdated timers, beside as many as there are"
    ),
    Limit("qos.journal.schema:LINE_BYTES_MAX", "bytes of a line of the journal"),
    Limit("qos.journal.counts:ROUTES_MAX", "routes counted apart in a window of one"),
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
