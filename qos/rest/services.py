"""The services of the gateway that the handlers of requests use."""

from __future__ import annotations

import asyncio
from typing import Protocol

from qos.core.payers import TokenBuckets
from qos.core.rest.one_off import OneOffLinks
from qos.rest.pull.registry import PullConsumers
from qos.rest.push.pushers import Pushers
from qos.rest.targets import Targets
from qos.rest.waiting import ConsumerHost
from xep_qos.relay import Relay

__all__ = ["Services"]


class Services(ConsumerHost, Protocol):
    """All that requests are served with.

    Attributes:
        closing: the gateway stops, and takes no more requests.
        readers: an event of each request that waits for a message of a topic; each is set
            when the gateway closes.
        link_headers: HornetQ's dialect has its links in the header Link, and not each in
            a header of its own.
        property_headers: of a message in HornetQ's dialect, which become properties; in
            lower case.
        base: the URL that clients have for the service, which whole links begin with;
            '': as each request says.
        prefix: its path, which all other links begin with; ''.
        relay: sends assured messages; None: nobody may send any.
        targets: who may be sent to.
        sends: the rate of all messages that are sent.
        sends_of_accounts: that of each account, half of it.
        pull_consumers: of HornetQ's dialect.
        pushers: the push subscribers.
    """

    closing: bool
    readers: set[asyncio.Event]
    link_headers: bool
    property_headers: frozenset[str]
    base: str
    prefix: str
    relay: Relay | None
    targets: Targets | None
    sends: TokenBuckets
    sends_of_accounts: TokenBuckets
    pull_consumers: PullConsumers
    pushers: Pushers

    @property
    def one_off(self) -> OneOffLinks:
        """The one-off links of this store."""
