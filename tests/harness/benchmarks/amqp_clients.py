"""The AMQP 1.0 clients that a benchmark lets work, by the names of their libraries.

What each of them does is in `benchmarks.amqp_proton`, and in `amqp_rhea.js` beside it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.brokered import Program, PythonProgram
from qos.testing.processes import Child, NotInstalled, find_program

__all__ = ["CLIENTS", "rhea_version"]

_RHEA = Path(__file__).with_name("amqp_rhea.js")


class _RheaProgram:
    """See benchmarks.brokered.Program; for Node.js."""

    def check(self) -> None:
        """See Program."""
        find_program("node", "nodejs")
        if _rhea_modules() is None:
            raise NotInstalled(
                "there is no rhea for Node.js: npm install rhea, in this folder or in "
                "another whose node_modules is in NODE_PATH"
            )

    async def start(self, *, name: str, folder: Path) -> Child:
        """See Program."""
        return await _NodeChild.start(
            _RHEA,
            name=name,
            folder=folder,
            environment={"NODE_PATH": str(_rhea_modules())},
        )


CLIENTS: Mapping[str, Program] = {
    "rhea": _RheaProgram(),
    "proton": PythonProgram(
        module="benchmarks.amqp_proton", needs="proton", extra="amqp"
    ),
}


class _NodeChild(Child):
    """A program for Node.js, which executes commands as a `Child` does."""

    @staticmethod
    def _command(program: str, *arguments: str) -> tuple[str, ...]:
        node = find_program("node", "nodejs")
        return (*Child.mortal(), node, program, *arguments)


def rhea_version() -> str | None:
    """The version of rhea that is used; None: there is none."""
    modules = _rhea_modules()
    if modules is None:
        return None
    found = json.loads((modules / "rhea" / "package.json").read_text("utf-8"))
    return str(found["version"])


def _rhea_modules() -> Path | None:
    """The folder that has rhea; None: there is none."""
    for folder in _node_modules():
        if (folder / "rhea" / "package.json").is_file():
            return folder.absolute()
    return None


def _node_modules() -> Iterator[Path]:
    for each in filter(None, os.environ.get("NODE_PATH", "").split(os.pathsep)):
        yield Path(each)
    yield Path("node_modules")
