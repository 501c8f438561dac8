"""Deliberate faults of the tables of push: what is known of a request, and when.

Each row that decides whether a message is unsent, decided or tried once more has one; see
`mutant`.
"""

from __future__ import annotations

from typing import Final

from simulation.mutant import Mutant

__all__ = ["PUSH_TABLES"]

_PROGRESS: Final = "core/rest/test_push_progress.py"
_FORWARDING: Final = "core/rest/test_forwarding.py"
_RETRIES: Final = "core/rest/test_push_retries.py"

PUSH_TABLES = (
    Mutant(
        "unsent-request-counts-as-sent",
        "qos.core.rest.push_progress",
        "(Stage.UNSENT, Step.CUT): Stage.UNSENT",
        "(Stage.UNSENT, Step.CUT): Stage.SENT",
        "A request of which no byte has left is unsent.",
        test=f"{_PROGRESS}::test_until_its_first_byte_has_left_a_request_is_unsent",
    ),
    Mutant(
        "sent-request-counts-as-unsent",
        "qos.core.rest.push_progress",
        "(Stage.UNSENT, Step.CONNECTS): Stage.SENT",
        "(Stage.UNSENT, Step.CONNECTS): Stage.UNSENT",
        "From the first byte to the status line nobody knows.",
        test=f"{_PROGRESS}::test_between_the_first_byte_and_the_status_nobody_knows",
    ),
    Mutant(
        "kept-connection-counts-as-new",
        "qos.core.rest.push_progress",
        "(Stage.UNSENT, Step.REUSES): Stage.ON_KEPT",
        "(Stage.UNSENT, Step.REUSES): Stage.SENT",
        "A request that a kept connection ends is made once more.",
        test=f"{_PROGRESS}::test_a_kept_connection_that_ends_before_the_status_is_replaced_once",
    ),
    Mutant(
        "cut-kept-connection-is-not-replaced",
        "qos.core.rest.push_progress",
        "(Stage.ON_KEPT, Step.CUT): Stage.AGAIN",
        "(Stage.ON_KEPT, Step.CUT): Stage.SENT",
        "A request that a kept connection ends is made once more.",
        test=f"{_PROGRESS}::test_a_kept_connection_that_ends_before_the_status_is_replaced_once",
    ),
    Mutant(
        "stale-kept-connection-is-an-answer",
        "qos.core.rest.push_progress",
        "(Stage.ON_KEPT, Step.STALE): Stage.AGAIN",
        "(Stage.ON_KEPT, Step.STALE): Stage.ANSWERED",
        "408 on a kept connection is no answer to this request.",
        test=f"{_PROGRESS}::test_a_target_that_waited_for_a_request_has_not_had_this_one",
    ),
    Mutant(
        "status-on-kept-connection-decides-nothing",
        "qos.core.rest.push_progress",
        "(Stage.ON_KEPT, Step.STATUS): Stage.ANSWERED",
        "(Stage.ON_KEPT, Step.STATUS): Stage.SENT",
        "The status line decides.",
        test=f"{_PROGRESS}::test_from_the_status_line_on_a_request_is_decided",
    ),
    Mutant(
        "new-connection-is-replaced-too",
        "qos.core.rest.push_progress",
        "(Stage.AGAIN, Step.CONNECTS): Stage.SENT",
        "(Stage.AGAIN, Step.CONNECTS): Stage.ON_KEPT",
        "A request is made once more, and not for ever.",
        test=f"{_PROGRESS}::test_a_kept_connection_that_ends_before_the_status_is_replaced_once",
    ),
    Mutant(
        "lost-kept-connection-has-sent-nothing",
        "qos.core.rest.push_progress",
        "(Stage.AGAIN, Step.CUT): Stage.SENT",
        "(Stage.AGAIN, Step.CUT): Stage.UNSENT",
        "What went out on a connection that has ended may have arrived.",
        test=f"{_PROGRESS}::test_without_a_new_connection_the_outcome_of_the_kept_one_stays_unknown",
    ),
    Mutant(
        "cut-after-sending-is-tried-again",
        "qos.core.rest.push_progress",
        "(Stage.SENT, Step.CUT): Stage.SENT",
        "(Stage.SENT, Step.CUT): Stage.AGAIN",
        "A request on a new connection is not made once more.",
        test=f"{_PROGRESS}::test_a_kept_connection_that_ends_before_the_status_is_replaced_once",
    ),
    Mutant(
        "stale-new-connection-is-no-answer",
        "qos.core.rest.push_progress",
        "(Stage.SENT, Step.STALE): Stage.ANSWERED",
        "(Stage.SENT, Step.STALE): Stage.AGAIN",
        "408 on a new connection is an answer like any other.",
        test=f"{_PROGRESS}::test_a_target_that_waited_for_a_request_has_not_had_this_one",
    ),
    Mutant(
        "status-decides-nothing",
        "qos.core.rest.push_progress",
        "(Stage.SENT, Step.STATUS): Stage.ANSWERED",
        "(Stage.SENT, Step.STATUS): Stage.SENT",
        "The status line decides.",
        test=f"{_PROGRESS}::test_from_the_status_line_on_a_request_is_decided",
    ),
    Mutant(
        "cut-after-the-status-makes-it-unknown",
        "qos.core.rest.push_progress",
        "(Stage.ANSWERED, Step.CUT): Stage.ANSWERED",
        "(Stage.ANSWERED, Step.CUT): Stage.SENT",
        "Nothing after the status line changes the outcome.",
        test=f"{_PROGRESS}::test_from_the_status_line_on_a_request_is_decided",
    ),
    Mutant(
        "interim-end-is-unsent",
        "qos.core.rest.push_progress",
        "unsent=progress.stage is Stage.UNSENT",
        "unsent=progress.stage is not Stage.SENT",
        "A request that went out on a kept connection is not unsent.",
        test=f"{_PROGRESS}::test_between_the_first_byte_and_the_status_nobody_knows",
    ),
    Mutant(
        "unsent-is-failed",
        "qos.core.rest.forwarding",
        "Fate.UNSENT if answer.unsent else Fate.FAILED",
        "Fate.FAILED",
        "A message of which no byte has left has not failed.",
        test=f"{_FORWARDING}::test_u7_where_there_was_no_connection_nothing_has_failed",
    ),
    Mutant(
        "unknown-is-unsent",
        "qos.core.rest.forwarding",
        "Fate.UNSENT if answer.unsent else Fate.FAILED",
        "Fate.UNSENT",
        "A message whose outcome nobody knows has failed.",
        test=f"{_FORWARDING}::test_without_a_reply_the_message_has_failed_and_its_link_stays",
    ),
    Mutant(
        "proxy-without-a-target-is-a-failure",
        "qos.core.rest.forwarding",
        "_UNREACHED = frozenset({502, 504})",
        "_UNREACHED = frozenset({504})",
        "A proxy that does not reach the target makes no message dead.",
        test=f"{_FORWARDING}::test_u7_the_status_decides_about_the_message",
    ),
    Mutant(
        "message-fails-for-want-of-a-link",
        "qos.core.rest.forwarding",
        "return replace(verdict, fate=Fate.UNSENT)",
        "return verdict",
        "A message that waits for a link has not left.",
        test=f"{_FORWARDING}::test_a_message_that_waits_for_a_link_has_not_left",
    ),
    Mutant(
        "unsent-is-not-tried-again",
        "qos.core.rest.push_retries",
        "_RETRIED = frozenset({Fate.FAILED, Fate.UNSENT})",
        "_RETRIED = frozenset({Fate.FAILED})",
        "A retry follows an attempt that had no connection.",
        test=f"{_RETRIES}::test_only_what_has_failed_or_was_not_sent_is_tried_again",
    ),
    Mutant(
        "failure-is-forgotten-by-a-retry",
        "qos.core.rest.push_retries",
        "Fate.FAILED if Fate.FAILED in fates else last.fate",
        "last.fate",
        "A message that has brought its target down has failed.",
        test=f"{_RETRIES}::test_the_last_attempt_decides_but_a_failure_stays_one",
    ),
    Mutant(
        "one-retry-too-many",
        "qos.core.rest.push_retries",
        "len(fates) <= subscriber.max_retries",
        "len(fates) <= subscriber.max_retries + 1",
        "There are so many retries, and no more.",
        test=f"{_RETRIES}::test_only_what_has_failed_or_was_not_sent_is_tried_again",
    ),
)
