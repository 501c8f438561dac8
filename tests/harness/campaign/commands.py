"""The installed commands side by side on one account, and the device they talk to.

::

    hub      sends to the account `home`, to its bare JID, to `lamp` and to `desk`;
             and receives what `desk` sends
    listen   `xmpp-qos listen` as home/lamp
    desk     one command after the other as home/desk: `send --lines`, `send --body`,
             `send --xml` with items for a queue, `outbox resend`, `outbox list`,
             `inbox list`, `queue publish`
    errand   `xmpp-qos worker` as home/errand
    greedy   a foreign domain that takes all room that it can get
    squatter an account that names the queue `vault` of another as its dead-letter node
    crowd    a foreign domain that sends presence to all who receive

Each command is started again whenever it has ended. The stdout of `listen` alternates,
two lives each, between a file on a disk of its own, which can be full, and a pipe,
whose reader can stop. This module knows nothing of the faults and of the results.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from campaign.disk import SmallDisk
from campaign.member import Member
from command_roles import Shipped
from hostile_roles import Crowd, Greedy, Squatter
from message_roles import End
from proxy import Proxy
from qos.cli.status import Status
from qos.testing.xmpp_server import XmppServer, mutual
from role import Connect

__all__ = [
    "BY_MESSAGE",
    "ERRANDS",
    "HOME_ACCOUNTS",
    "HOME_ROSTERS",
    "TRAP",
    "VAULT",
    "Home",
    "HomeFiles",
]

#: The queue of the worker command.
ERRANDS = "errands"

#: The prefix of the ids of items that `desk` publishes by assured messages.
BY_MESSAGE = "by-message-"

#: A queue to which nobody publishes, and the queue of the squatter.
VAULT, TRAP = "vault", "trap"

HOME_ACCOUNTS = {name: f"secret of {name}" for name in ("home", "hub", "squatter")}
HOME_ROSTERS = mutual(("home", "hub"))

#: A line of `listen` is then up to 7 kB: more than a pipe accepts at once (PIPE_BUF).
_PADDING = 3000

#: With the window of the hub this makes some ten messages a second, in batches.
_BURST, _BURST_EVERY_S = 6, 0.6

_LINES, _LINE_EVERY_S = 30, 0.1
_ITEMS = 5

#: Further exit statuses: a signal, a bad outcome of `send`, and an stdout that cannot
#: be written.
_ENDS = frozenset(
    {
        *(-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP),
        *(Status.DONE, Status.NOT_DELIVERED, Status.IN_DOUBT),
        *(Status.UNREACHABLE, Status.STORE),
        *(Status.OUTPUT, Status.INTERRUPTED, Status.PIPE),
        # As a shell reports SIGHUP.
        128 + signal.SIGHUP,
    }
)

#: The commands of `desk`, in order.
_DESK = (
    "send --lines",
    "send --xml",
    "outbox resend",
    "queue publish",
    "send --xml",
    "send --body",
    "inbox list",
    "send --lines",
    "send --xml",
    "outbox list",
    "inbox list of lamp",
)


@dataclass(frozen=True, slots=True)
class HomeFiles:
    """The files of the commands, and of their stdout.

    Attributes:
        folder: for stores and logs.
        output: the disk of the files to which stdout is appended.
    """

    folder: Path
    output: SmallDisk

    @property
    def printed(self) -> tuple[Path, Path]:
        """The stdout of `listen`: the file, and the data from the pipe."""
        return self.output.folder / "listen.out", self.folder / "listen-pipe.out"

    @property
    def fifo(self) -> Path:
        """The pipe, which stays when `listen` has ended."""
        return self.folder / "listen.fifo"

    @property
    def desk_printed(self) -> Path:
        """The stdout of all commands of `desk`."""
        return self.output.folder / "desk.out"

    @property
    def errand_printed(self) -> Path:
        """The stdout of the worker command."""
        return self.output.folder / "errand.out"

    @property
    def done(self) -> Path:
        """The ids of the items that the worker's command has done, a line each."""
        return self.folder / "errands.log"

    @property
    def refused(self) -> Path:
        """The log of the greedy member.

        A line for each life in which it was refused room.
        """
        return self.folder / "greedy.log"

    @property
    def crowd(self) -> Path:
        """The log of the crowd; see hostile_roles."""
        return self.folder / "crowd.log"

    @property
    def hub(self) -> Path:
        """The log of the hub; see message_roles."""
        return self.folder / "hub.log"

    def store(self, name: str) -> str:
        """The URL of a member's store."""
        return f"sqlite:{self.folder / name}.sqlite"


class Home:
    """Makes the members.

    Args:
        server: their server.
        clients: the proxy between the server and the clients.
        components: the proxy between the server and the greedy domain.
        files: their files.
        service: the JID of the queue service.
        domain: the greedy one, a component of the server.
        crowd: the domain of the crowd, likewise.
        journals: the folder for the journals of all that send or receive.
        mutant: a mistake that all commands make, or ''.

    Attributes:
        files: likewise.
    """

    def __init__(
        self,
        server: XmppServer,
        clients: Proxy,
        components: Proxy,
        files: HomeFiles,
        *,
        service: str,
        domain: str,
        crowd: str,
        journals: Path,
        mutant: str,
    ) -> None:
        self._server = server
        self._port = clients.port
        self.files = files
        self._components = components
        self._service = service
        self._domain = domain
        self._crowd_domain = crowd
        self._journals = journals
        self._mutant = mutant
        self.hub = Member("hub", "hub", self._hub, files.store("hub"))
        self.listen = Member(
            *("listen", "listen", self._listen, files.store("lamp")),
            usual=_ENDS,
            restarts=True,
        )
        self.desk = Member(
            *("desk", "desk", self._desk),
            usual=_ENDS,
            ends_with=frozenset(
                {Status.DONE, Status.NOT_DELIVERED, Status.IN_DOUBT},
            ),
            restarts=True,
            finishes=True,
        )
        self.errand = Member(
            *("errand", "errand", self._errand),
            usual=_ENDS,
            restarts=True,
        )

        self.greedy = Member("greedy", "greedy", self._greedy)
        self.squatter = Member("squatter", "squatter", self._squatter)
        self.crowd = Member("crowd", "crowd", self._crowd)

    @property
    def members(self) -> list[Member]:
        """All of them."""
        return [
            *(self.hub, self.listen, self.desk, self.errand),
            *(self.greedy, self.squatter, self.crowd),
        ]

    @property
    def into_pipe(self) -> bool:
        """Whether the stdout of `listen` is the pipe in its present life."""
        return _into_pipe(self.listen.lives)

    def _jid(self, user: str, resource: str = "") -> str:
        bare = f"{user}@{self._server.domain}"
        return f"{bare}/{resource}" if resource else bare

    def _connect(self, name: str) -> Connect:
        return Connect.of_account(self._server, name, port=self._port, tls=True)

    def _hub(self, life: int) -> End:
        return End(
            connect=self._connect("hub/1"),
            role="sender",
            number=life,
            store=self.files.store("hub"),
            log=str(self.files.hub),
            smacks=life % 2 == 0,
            to=(self._jid("home", "lamp"), self._jid("home")),
            to_nobody=self._jid("home", "desk"),
            burst=_BURST,
            padding=_PADDING,
            pause_s=_BURST_EVERY_S,
            fickle=True,
            journal=str(self._journals / "hub"),
        )

    # -- the commands ------------------------------------------------------

    def _listen(self, life: int) -> Shipped:
        # `into_pipe` asks about the present life.
        in_file, _ = self.files.printed
        into_pipe = _into_pipe(life)
        return self._shipped(
            ("listen", *self._login("lamp"), *self._stored("lamp")),
            "lamp",
            self.files.fifo if into_pipe else in_file,
            # A line that was torn off in the pipe is printed again, but in the file.
            begins_line_in="" if into_pipe else str(self.files.fifo),
            unbuffered=life % 2 == 0,
        )

    def _errand(self, _life: int) -> Shipped:
        script = 'cat >/dev/null; echo "$QOS_ITEM_ID" >> "$1"'
        command = ("--", "sh", "-c", script, "sh", str(self.files.done))
        words = ("worker", self._service, ERRANDS, *self._login("errand"), *command)
        return self._shipped(words, "errand", self.files.errand_printed)

    def _desk(self, life: int) -> Shipped:
        what = "outbox resend" if self.desk.ending else _DESK[life % len(_DESK)]
        login, stored = self._login("desk"), self._stored("desk")
        lines: tuple[str, ...] = ()
        match what:
            case "send --lines":
                lines = tuple(f"assured desk {life}-{n}" for n in range(_LINES))
                words = ("send", self._jid("hub"), "--lines", *login, *stored)
            case "send --body":
                body = f"assured desk {life}-body"
                words = ("send", self._jid("hub", "1"), *login, *stored, "--body", body)
            case "send --xml":
                file = str(self._publish(f"{BY_MESSAGE}{life}"))
                words = ("send", self._service, *login, *stored, "--xml", file)
            case "outbox resend":
                words = ("outbox", "resend", *login, *stored)
            case "queue publish":
                lines = tuple(f"{life}-{n}" for n in range(_ITEMS))
                words = ("queue", "publish", self._service, ERRANDS, "--lines", *login)
            case "inbox list of lamp":
                words = ("inbox", "list", *self._of("lamp"))
            case _:
                words = (*what.split(), *self._of("desk"))
        return self._shipped(
            words,
            "desk",
            self.files.desk_printed,
            lines=lines,
            unbuffered=life % 2 == 0,
        )

    def _publish(self, item_id: str) -> Path:
        """Write a message that publishes this item into a file."""
        file = self.files.folder / f"{item_id}.xml"
        file.write_text(
            "<message><pubsub xmlns='http://jabber.org/protocol/pubsub'>"
            f"<publish node='{ERRANDS}'><item id='{item_id}'><by-message xmlns='urn:x'/>"
            "</item></publish></pubsub></message>"
        )
        return file

    def _greedy(self, _life: int) -> Greedy:
        port = self._components.port
        return Greedy(
            connect=Connect.of_component(self._server, self._domain, port=port),
            to=(self._service, self._jid("home", "lamp"), self._service),
            log=str(self.files.refused),
        )

    def _crowd(self, _life: int) -> Crowd:
        port = self._components.port
        return Crowd(
            connect=Connect.of_component(self._server, self._crowd_domain, port=port),
            to=(self._service, self._jid("home", "lamp"), self._jid("hub", "1")),
            log=str(self.files.crowd),
        )

    def _squatter(self, _life: int) -> Squatter:
        return Squatter(
            connect=self._connect("squatter/1"),
            service=self._service,
            trap=TRAP,
            prey=VAULT,
            owner=self._jid("boss"),
        )

    def _shipped(
        self,
        words: tuple[str, ...],
        name: str,
        stdout: Path,
        *,
        begins_line_in: str = "",
        lines: tuple[str, ...] = (),
        unbuffered: bool = False,
    ) -> Shipped:
        return Shipped(
            connect=self._connect(f"home/{name}"),
            words=words,
            stdout=str(stdout),
            stderr=str(self.files.folder / f"{name}.err"),
            begins_line_in=begins_line_in,
            lines=lines,
            line_every_s=_LINE_EVERY_S,
            unbuffered=unbuffered,
            mutant=self._mutant,
        )

    def _login(self, resource: str) -> tuple[str, ...]:
        return (
            *("--jid", self._jid("home", resource)),
            *("--host", self._server.address, "--port", str(self._port)),
            *("--ca-file", str(self._server.ca_file)),
            *("--retry-first", "0.1", "--retry-max", "0.5"),
        )

    def _stored(self, name: str) -> tuple[str, ...]:
        journal = str(self._journals / name)
        return ("--store", self.files.store(name), "--journal", journal)

    def _of(self, name: str) -> tuple[str, ...]:
        """The options of a command that does not connect."""
        return ("--jid", self._jid("home", name), "--store", self.files.store(name))


def _into_pipe(life: int) -> bool:
    """Whether `listen` prints into the pipe in this life: two lives of every four."""
    return life % 4 >= 2
