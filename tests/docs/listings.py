"""The table of all listings of README and guide, and where each of them is run twice.

The listings are found by reading the pages. Those in ```sh are typed, with their page, in
one of SESSIONS. Every other one needs a row of ELSEWHERE or of SHOWN, or is of a language
that is never run; `test_typed.py` fails for one without.
"""

import re
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "ELSEWHERE",
    "NEVER_RUN",
    "SESSIONS",
    "SHOWN",
    "Listing",
    "Session",
    "listings",
]

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


class Listing(NamedTuple):
    """A listing of a page.

    Attributes:
        key: the file that is shown; otherwise the page, the language, and which of the
            page's listings in this language it is, from 1.
        page: its file, from the folder of the project.
        language: as after the backquotes.
        text: of it.
    """

    key: str
    page: str
    language: str
    text: str


def listings() -> list[Listing]:
    """All listings, in the order of the pages."""
    found = []
    for path in PAGES:
        page = str(path.relative_to(ROOT))
        count: dict[str, int] = {}
        fence = r"^```(\S+)(?: +(\S+))?\n(.*?)^```$"
        for each in re.finditer(
            fence, path.read_text("utf-8"), re.DOTALL | re.MULTILINE
        ):
            language, file, text = each[1], each[2], each[3]
            if language == "{literalinclude}":
                key = str((path.parent / file).resolve().relative_to(ROOT))
                text = (ROOT / key).read_text("utf-8")
            else:
                count[language] = count.get(language, 0) + 1
                key = f"{page} {language} {count[language]}"
            found.append(Listing(key, page, language, text))
    return found


class Session(NamedTuple):
    """Pages that are typed on one new machine, with Prosody as Debian ships it.

    Attributes:
        words: of type_page.py.
        packages: that are there besides those of the library.
    """

    words: tuple[str, ...]
    packages: tuple[str, ...] = ()

    @property
    def twice(self) -> tuple[str, ...]:
        """The pages that are typed twice."""
        _, _, after = " ".join(self.words).partition("--twice")
        return tuple(word for word in after.split() if not word.startswith("--"))


_OURS = "tests/docs/pages"
_SERVER = "tests/docs/example_org.md"
_PROGRAMS = (_SERVER, f"{_OURS}/install.md", "tests/docs/programs.md")

SESSIONS = {
    "ten minutes": Session(("--twice", "docs/ten-minutes.md")),
    "commands": Session(
        (
            *(_SERVER, "--twice", "README.md", "--once", "tests/docs/programs.md"),
            *("--twice", "docs/command.md", "docs/queues.md", "docs/trust.md"),
        )
    ),
    "programs": Session(
        (
            *(*_PROGRAMS, f"{_OURS}/operating.md", "--twice", f"{_OURS}/devices.md"),
            *(f"{_OURS}/workers.md", "docs/operations.md"),
        )
    ),
    "doors": Session(
        (
            *(*_PROGRAMS, f"{_OURS}/doors.md", "--twice", "docs/rest.md"),
            *("docs/rest-hornetq.md", "docs/rest-send.md", "docs/queue-growth.md"),
            f"{_OURS}/amqp_programs.md",
        ),
        packages=("aiohttp", "python-qpid-proton"),
    ),
    "your server": Session((*_PROGRAMS, "--twice", f"{_OURS}/your_server.md")),
}

_DEVICES, _WORKERS, _DOORS = (
    f"{_OURS}/{name}.md" for name in ("devices", "workers", "doors")
)
_DRIVER = "tests/docs/guide_programs.py"
_SPARK = "tests/docs/test_spark_pages.py"

#: Where a listing is run that is no page in a shell: a page of SESSIONS that types its
#: lines or names its file, or a program or a test that does so.
ELSEWHERE = {
    "README.md python 1": _DEVICES,  # word for word examples/quickstart.py
    "examples/quickstart.py": _DEVICES,
    "examples/device.py": _DEVICES,
    "examples/controller.py": _DEVICES,
    "docs/code/consumer.py": _DEVICES,
    "docs/code/own_client.py": _DRIVER,
    "docs/code/gateway.py": _DRIVER,
    "docs/messages.md python 1": _DRIVER,
    "docs/messages.md python 2": _DRIVER,
    "docs/components.md python 1": _DRIVER,
    "examples/worker.py": _WORKERS,
    "examples/publisher.py": _WORKERS,
    "docs/code/queue_worker.py": _DRIVER,
    "docs/code/selective_worker.py": _DRIVER,
    "docs/troubleshooting.md sh 1": _DEVICES,
    "docs/code/amqp_orders.py": f"{_OURS}/amqp_programs.md",
    "docs/code/amqp_orders.js": f"{_OURS}/amqp_programs.md",
    "docs/rest.md bash 1": _DOORS,
    "docs/rest.md bash 2": _DOORS,
    "docs/rest.md bash 3": _DOORS,
    "docs/rest.md bash 4": _DOORS,
    "docs/benchmarks.md sh 1": f"{_OURS}/your_server.md",
    "docs/audit.md sh 2": _SPARK,
    "docs/audit.md sh 3": _SPARK,
    "docs/code/read_tables.py": _SPARK,
    "docs/code/p99.py": _SPARK,
    "docs/code/p99_duckdb.sql": "tests/spark/test_percentiles.py",
    "docs/code/p99_spark.sql": "tests/spark/test_percentiles.py",
    "docs/code/vacuum_tables.py": _SPARK,
    "examples/spark_queue.py": _SPARK,
    # Typed by their page, as files or commands that stand in its other listings.
    "docs/code/lamp.py": "docs/ten-minutes.md",
    "docs/code/lamp.service": "docs/ten-minutes.md",
    "docs/code/queue.service": "docs/ten-minutes.md",
    "docs/code/contacts.py": "docs/trust.md",
}

#: The listings that are not run on such a machine, and why.
SHOWN = {
    "docs/code/Containerfile": "an image needs the network: test_operations.py",
    "docs/code/worker.service": "its lines: tests/cli/test_worker_ends.py",
    "docs/code/test_lamp.py": "a test with a server of its own: test_code.py",
    "docs/amqp.md sh 1": "its lines are those of HTTP with another option: pages/doors.md",
    "docs/amqp.md sh 2": "certificates of one's own: tests/cli/test_queue_amqp.py",
    "docs/amqp.md sh 3": "its lines, for this user, are in pages/amqp_programs.md",
    "docs/amqp.md sh 4": "it needs a broker: tests/amqp/test_bridge.py",
    "docs/rest-send.md bash 1": "words are left out of it: pages/doors.md",
    "docs/rest-hornetq.md bash 1": "it needs a creator: tests/rest",
    "docs/benchmarks.md sh 2": "the makers' benchmarks start servers of their own",
    "docs/audit.md sh 1": "it needs a fleet: tests/spark/test_audit.py",
    "docs/components.md sh 1": "it needs a fleet: tests/cli/test_queue_http.py",
}

#: Outputs, pictures, configuration and data, by the language of the listing.
NEVER_RUN = frozenset(
    {
        *("text", "xml", "toml", "yaml", "nginx", "{toctree}", "{include}"),
        "{limits-table}",
        "java",  # docs/amqp.md says that it is not run
    }
)
