"""The rights of a request, looked at before its body is read.

A handler looks again, at the moment when it does something: rights may change while a
body comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.requests import (
    Refusal,
    may_not_publish,
    no_node,
)
from qos.rest.calls import Call
from qos.rest.paths import url
from qos.rest.route import Need

__all__ = ["check_right", "may_not_subscribe", "why_not_here"]


def check_right(need: Need, call: Call) -> None:
    """Check that a user has the right that a route needs.

    Args:
        need: of the route.
        call: without its body.

    Raises:
        Refusal: the user has not.
    """
    check = _CHECKS.get(need)
    if check is not None:
        check(call)


def may_not_subscribe(name: str, account: str) -> Refusal:
    """The account knows the node, but may not subscribe to it."""
    return Refusal(
        f"{account} may not subscribe to {name!r}", condition="forbidden", type="auth"
    )


def _see(call: Call) -> None:
    call.rights()


def _publish(call: Call) -> None:
    if not call.rights().publish:
        raise may_not_publish(call.node, call.account)


def _subscribe(call: Call) -> None:
    if not call.rights().subscribe:
        raise may_not_subscribe(call.node, call.account)


def _settle(call: Call) -> None:
    """A user keeps its locks when it has lost its rights."""
    engine = call.services.engine
    jid = consumer_jid(call.account, "http", call.path["etag"].partition(".")[0])
    if engine.rights(call.node, jid) is None and not engine.held(call.node, jid):
        raise no_node(call.node)


def _create(call: Call) -> None:
    if not call.services.engine.creates(call.account):
        text = f"{call.account} may not create nodes here"
        raise Refusal(text, condition="forbidden", type="auth")


#: The other needs are looked at by the handler of the route; see `Handler.first`.
_CHECKS: Mapping[Need, Callable[[Call], None]] = {
    Need.SEE: _see,
    Need.PUBLISH: _publish,
    Need.SUBSCRIBE: _subscribe,
    Need.SETTLE: _settle,
    Need.CREATE: _create,
}


def why_not_here(call: Call) -> str:
    """The error if the URL is one of a queue, but the node a topic, or vice versa; '': none."""
    node = call.path.get("node", "")
    node_type = call.services.engine.node_type(node)
    if node_type in {None, "topic" if call.topic else "queue"}:
        return ""
    if call.services.engine.rights(node, call.jid) is None:
        # The handler answers as for a node that is not there.
        return ""
    node_url = call.below(url(str(node_type), node=node))
    return f"{node!r} is a {node_type}: its URL is {node_url}"
