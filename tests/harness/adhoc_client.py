"""A person at a stock client: slixmpp's own plugins for commands and forms, and no other.

operator = Operator(client, "queue.localhost")
form = await operator.execute("queue")
table = await operator.go_on("complete", node="orders")
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from slixmpp import ClientXMPP
from slixmpp.exceptions import IqError

from waiting import LIMIT_S

__all__ = ["Operator"]

NODE = "xmpp-qos:admin#"


class Operator:
    """Executes commands, one at a time.

    Attributes:
        last: the last `<command/>` that has come.
    """

    def __init__(self, client: ClientXMPP, service: str) -> None:
        client.register_plugin("xep_0050")
        self._adhoc: Any = client.plugin["xep_0050"]
        self._disco: Any = client.plugin["xep_0030"]
        self._forms: Any = client.plugin["xep_0004"]
        self._service = service
        self.last: Any = None

    async def listed(self) -> dict[str, str]:
        """The titles of the commands by their names, without the prefix."""
        answer = await self._adhoc.get_commands(jid=self._service, timeout=LIMIT_S)
        return {
            node.removeprefix(NODE): title
            for jid, node, title in answer["disco_items"]["items"]
            if jid == self._service
        }

    async def execute(self, name: str) -> Any:
        """Begin a command; returns its form."""
        iq = await self._adhoc.send_command(
            self._service, NODE + name, timeout=LIMIT_S, flow=False
        )
        return self._came(iq)

    async def go_on(self, action: str = "execute", **values: object) -> Any:
        """Fill in the form, and go on; returns the next one."""
        before = self.last
        form = copy.copy(before["form"])
        form.reply()
        form.set_values(values)
        iq = await self._adhoc.send_command(
            self._service,
            before["node"],
            action=action,
            payload=form,
            sessionid=before["sessionid"],
            timeout=LIMIT_S,
            flow=False,
        )
        return self._came(iq)

    async def refusal(self, action: str = "execute", **values: object) -> str:
        """Go on, which must be refused; returns the text of the error."""
        with pytest.raises(IqError) as caught:
            await self.go_on(action, **values)
        return str(caught.value.text)

    async def cancel(self) -> None:
        """Cancel the command."""
        iq = await self._adhoc.send_command(
            self._service,
            self.last["node"],
            action="cancel",
            sessionid=self.last["sessionid"],
            timeout=LIMIT_S,
            flow=False,
        )
        self._came(iq)

    @property
    def status(self) -> str:
        """Of the session."""
        return str(self.last["status"])

    @property
    def note(self) -> str:
        """The text of the only note."""
        ((_, text),) = self.last["notes"]
        return str(text)

    @property
    def rows(self) -> list[dict[str, str]]:
        """The rows of a table."""
        return [dict(row) for row in self.last["form"]["items"]]

    @property
    def names(self) -> list[str]:
        """What the lines of a page begin with, as all clients can show it."""
        text = self.values["text"]
        lines = text.splitlines() if isinstance(text, str) else text
        return [line.partition(": ")[0] for line in lines]

    @property
    def values(self) -> dict[str, Any]:
        """The values of a form."""
        return dict(self.last["form"]["values"])

    def options(self, var: str) -> list[str]:
        """The values to choose from."""
        field = self.last["form"].get_fields()[var]
        return [option["value"] for option in field["options"]]

    def _came(self, iq: Any) -> Any:
        self.last = iq["command"]
        return self.last["form"]
