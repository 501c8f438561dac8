"""The creation of a queue that a program needs: once, and only as its own.

Creating comes first and looking second, so that two programs of one account may start
at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from qos import arguments
from qos.core.queue.node_options import NODE_FIELDS, BadOption
from qos.errors import InvalidArgument, RequestRefused
from xep_0254.queueing import XEP_0254

__all__ = ["Creation", "node_options"]

log = logging.getLogger(__name__)

#: The options of a queue by both of their names, such as `ttl` and `queue#ttl`.
_SHORT = {field.var.partition("#")[2]: field for field in NODE_FIELDS}
_FIELDS = _SHORT | {field.var: field for field in NODE_FIELDS}

#: The answers to an account that asks for the options of a queue and is no owner of it;
#: the second if the queue is hidden from this account.
_NOT_OWNED = frozenset({"forbidden", "item-not-found"})


class Creation:
    """The creation of one queue, which may have been done before.

    Args:
        plugin: of a client of the future owner.
        service: the queue service.
        node: the queue.
        options: by the full names of their fields; None: do not create the queue.

    Attributes:
        is_done: there is nothing left to do.
    """

    def __init__(
        self,
        plugin: XEP_0254,
        service: str,
        node: str,
        options: Mapping[str, str] | None,
    ) -> None:
        self.is_done = options is None
        self._plugin = plugin
        self._service = service
        self._node = node
        self._options = options or {}
        self._lock = asyncio.Lock()

    async def make(self) -> None:
        """Create the queue, unless this is done; one attempt.

        Raises:
            RequestRefused: also if the queue is there and belongs to another account.
            NoAnswer: it may have been created.
        """
        if self.is_done:
            return
        async with self._lock:
            if self.is_done:
                return
            try:
                await self._plugin.create(self._service, self._node, self._options)
            except RequestRefused as error:
                if error.condition != "conflict":
                    raise
                await self._check_existing()
            self.is_done = True

    async def _check_existing(self) -> None:
        """Check that the queue that is there is ours; tell which options are others."""
        try:
            options = await self._plugin.configuration(self._service, self._node)
        except RequestRefused as error:
            if error.condition not in _NOT_OWNED:
                raise
            raise RequestRefused(
                "conflict",
                to=self._service,
                what=f"create {self._node!r}",
                type="cancel",
                text="it is there, and this account is no owner of it; leave out `create` "
                "to use it, or choose another name",
                by=self._service,
            ) from None
        differing = [
            f"{name} is {options[name]!r}, not {value!r}"
            for name, value in self._options.items()
            if options.get(name, value) != value
        ]
        if differing:
            text = "; ".join(differing)
            log.warning("%r was there, and keeps its options: %s", self._node, text)


def node_options(create: object) -> dict[str, str] | None:
    """The options of `create`, by the full names of their fields.

    Raises:
        InvalidArgument: it is neither a boolean nor options that a queue can have.
    """
    if isinstance(create, bool):
        return {} if create else None
    if not isinstance(create, Mapping):
        expected = "True, False, or a dict of options of the queue"
        raise InvalidArgument("create", create, expected)
    return dict(_node_option(name, value) for name, value in create.items())


def _node_option(name: object, value: object) -> tuple[str, str]:
    field = _FIELDS.get(name) if isinstance(name, str) else None
    if field is None:
        expected = f"a dict of options of a queue, which are {', '.join(_SHORT)}"
        raise InvalidArgument("create", {name: value}, expected)
    try:
        return field.var, field.check(arguments.text(f"create[{name!r}]", value))
    except BadOption as error:
        expected = "options that a queue can have"
        raise InvalidArgument(
            "create", {name: value}, expected, why=str(error)
        ) from None
