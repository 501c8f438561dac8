"""One run: a server, all processes, faults for a while, and then the result."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from campaign.commands import (
    ERRANDS,
    HOME_ACCOUNTS,
    HOME_ROSTERS,
    VAULT,
    Home,
    HomeFiles,
)
from campaign.count import (
    Tally,
    count_items,
    count_messages,
    held_back_s,
    unsettled,
)
from campaign.disk import SmallDisk
from campaign.edges import Edges
from campaign.faults import Faults, Ways
from campaign.files import Files
from campaign.gateways import Gateways
from campaign.growth import Series
from campaign.member import GATEWAY_KINDS, GATEWAY_PUBLISHERS, GATEWAY_WORKERS
from campaign.pipe import PipeReader
from campaign.printed import came_to_pass, count_commands, missing, questions
from campaign.soak import (
    MEASURE_S,
    PAUSE_S_MAX,
    Soak,
    half,
    handled,
    unlimited,
)
from campaign.supervisor import (
    LOCK_S,
    NODE,
    Supervisor,
    Traffic,
    accounts,
    queue_jid,
    rosters,
)
from proxy import Proxy
from qos.cli.status import CommandError, Status
from qos.errors import RequestFailed
from qos.testing.ejabberd import Ejabberd
from qos.testing.prosody import Prosody
from qos.testing.xmpp_server import ServerError, XmppServer
from role import Connect
from role_processes import Processes
from xep_0254.queueing import XEP_0254

__all__ = ["SERVERS", "Result", "Run"]

SERVERS: dict[str, type[XmppServer]] = {"prosody": Prosody, "ejabberd": Ejabberd}

#: Seconds that messages in flight have to end after the faults, and items after their
#: backoff: after thirteen failures it is more than three minutes.
_RUN_OUT_S_MAX = 120.0
_BACKOFF_S_MAX = 900.0

#: Likewise, for a message that was confirmed to its sender.
_PRINT_S_MAX = 20.0

#: The size of the disk for the stores: at the beginning, and for each minute.
_DISK_MB, _DISK_MB_A_MINUTE = 48, 4

#: With a time-out of two seconds each; enough for a machine under load.
_CREATE_TRIES = 15

#: Enough for a machine under load.
_TOGETHER_S_MAX = 120.0

#: Connections and files are new.
_WARM_UP_S = 3.0

#: Seconds between two faults of a campaign.
_PAUSE_S_MAX = 1.6

_LOOK_S = 0.5

#: The accepted messages and items to be counted.
_KEEPS_S = 864_000.0

#: More than any number of kills: an item that met only faults must not become dead.
_NODE_OPTIONS = {
    "queue#lock_timeout": f"{LOCK_S}",
    "queue#max_deliveries": "1000",
    "queue#backoff": "0.05",
    "pubsub#publish_model": "open",
    "pubsub#access_model": "open",
}

#: Access for the owner only.
_VAULT_OPTIONS = {
    "pubsub#publish_model": "publishers",
    "pubsub#access_model": "whitelist",
    "pubsub#max_items": "3",
}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run.

    Attributes:
        server: the name of its server.
        faults: the injected faults, by kind.
        tallies: by subject: messages by their stores, and items.
        small_disk: whether the disk of the stores could be full.
        problems: further problems, a line each.
        seconds: how long there were faults.
        series: the samples of a soak.
    """

    server: str
    faults: Counter[str]
    tallies: dict[str, Tally]
    small_disk: bool
    problems: list[str]
    seconds: float
    series: list[Series] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether the promise was kept, without further problems."""
        kept = all(tally.clean for tally in self.tallies.values())
        return kept and not self.problems


class Run:
    """One run on one server.

    Args:
        server: the name of one of SERVERS.
        folder: an empty one, for all files.
        stores: the kinds of stores, each with a sender and a receiver.
        commands: let the installed commands on one account take part.
        gateways: let publishers and workers take part that speak HTTP and AMQP.
        mutant: a mistake that the commands or the service make; see `mutants`.
        seed: decides the faults.
        seconds: how long there are faults.
        tell: called with the progress.
        elders: members that are not killed in a soak; empty: this is no soak.
        together: a barrier where soaks wait for each other, before they measure the
            possible rate.
    """

    def __init__(
        self,
        server: str,
        folder: Path,
        *,
        stores: tuple[str, ...],
        commands: bool,
        gateways: bool,
        mutant: str,
        seed: int,
        seconds: float,
        tell: Callable[[str], None],
        elders: frozenset[str],
        together: asyncio.Barrier,
    ) -> None:
        size_mb = _DISK_MB + int(_DISK_MB_A_MINUTE * seconds / 60)
        disk = SmallDisk(folder / "stores", size_mb)
        self.files = Files(folder, disk, stores, elders)
        self._home_files: HomeFiles | None = None
        if commands:
            output = SmallDisk(folder / "output", size_mb)
            self._home_files = HomeFiles(folder, output)
        self._gateways = gateways
        self._mutant = mutant
        self._together = together
        self._soak: Soak | None = None
        self._name = server
        self._seed = seed
        self._seconds = seconds
        self._tell = tell
        self._problems: list[str] = []

    async def __call__(self) -> Result:
        """Do the run.

        Raises:
            CommandError: the server is not installed, or does not start.
        """
        try:
            return await self._run()
        except (BaseExceptionGroup, ServerError) as failure:
            error: BaseException = failure
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            if not isinstance(error, ServerError):
                raise error from None
            first = str(error).partition("\n")[0]
            usage = "not installed" in first
            status = Status.USAGE if usage else Status.INTERNAL
            raise CommandError(first, status) from None

    async def _run(self) -> Result:
        files, server = self.files, self._new_server()
        seed = f"{self._seed} {self._name}"
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(files.disk)
            small_disk = files.disk.can_be_full
            await stack.enter_async_context(server)
            clients = await stack.enter_async_context(
                Proxy(server.c2s_port, seed=f"{seed} clients")
            )
            components = await stack.enter_async_context(
                Proxy(server.component_port, seed=f"{seed} components")
            )
            processes = await stack.enter_async_context(
                Processes(files.folder, shown=False)
            )
            home = self._home(server, clients, components)
            members = [] if home is None else home.members
            gateways = None
            if self._gateways:
                gateways = Gateways(files.folder, files, seed=seed)
                await stack.enter_async_context(gateways.http)
                await stack.enter_async_context(gateways.amqp)
                members += gateways.members
            supervisor = Supervisor(
                *(server, clients, components, files, self._traffic, members),
                mutant=self._mutant,
                listening=None if gateways is None else gateways.listening,
            )
            stack.push_async_callback(supervisor.drop)
            more: Ways = {}
            if gateways is not None:
                more = gateways.ways(supervisor)
            if home is not None:
                edges = await self._edges(stack, supervisor, home, clients, seed)
                more = {**more, **edges.ways}
            faults = Faults(
                *(supervisor, server, (clients, components), files.disk, processes),
                seed=seed,
                elders=files.elders,
                pause_s_max=PAUSE_S_MAX if files.elders else _PAUSE_S_MAX,
                more=more,
            )
            await self._begin(supervisor, server, processes)
            if files.elders:
                await self._find_half(supervisor)
                self._soak = Soak(supervisor, files, self._seconds)
            await self._hurt(supervisor, faults)
            await self._run_out(supervisor)
        return self._result(supervisor, faults, small_disk=small_disk)

    def _new_server(self) -> XmppServer:
        files = self.files
        folder = files.folder / "server"
        folder.mkdir()
        return SERVERS[self._name](
            folder,
            accounts={**accounts(files.stores), **HOME_ACCOUNTS},
            rosters={**rosters(files.stores), **HOME_ROSTERS},
            components={
                queue_jid(self._name): "secret of queue",
                self._greedy_domain: "secret of greedy",
                self._crowd_domain: "secret of crowd",
            },
            tls=True,
        )

    def _result(
        self, supervisor: Supervisor, faults: Faults, *, small_disk: bool
    ) -> Result:
        for name, deaths in supervisor.strange_deaths.items():
            how = ", ".join(f"{status} ({n} times)" for status, n in deaths.items())
            self._problems.append(f"{name} has ended by itself, with status {how}")
        self._problems += [f"two processes had {url} open" for url in faults.let_in]
        tallies = dict(self._tallies())
        if self._home_files is not None:
            store = self.files.queue_store
            faults.counts.update(came_to_pass(self._home_files, store))
            self._problems += questions(self._home_files)
        return Result(
            *(self._name, faults.counts, tallies, small_disk, self._problems),
            seconds=self._seconds,
            series=[] if self._soak is None else self._soak.series,
        )

    @property
    def _greedy_domain(self) -> str:
        return f"greedy-{self._name}.example"

    @property
    def _crowd_domain(self) -> str:
        return f"crowd-{self._name}.example"

    def _home(
        self, server: XmppServer, clients: Proxy, components: Proxy
    ) -> Home | None:
        """The installed commands, if they take part."""
        files = self._home_files
        if files is None:
            return None
        return Home(
            *(server, clients, components, files),
            service=queue_jid(self._name),
            domain=self._greedy_domain,
            crowd=self._crowd_domain,
            journals=self.files.journals,
            mutant=self._mutant,
        )

    async def _edges(
        self,
        stack: contextlib.AsyncExitStack,
        supervisor: Supervisor,
        home: Home,
        clients: Proxy,
        seed: str,
    ) -> Edges:
        """The faults of the commands and of their output."""
        files = home.files
        await stack.enter_async_context(files.output)
        _, piped = files.printed
        reader = await stack.enter_async_context(PipeReader(files.fifo, piped))
        return Edges(
            supervisor, home, files.output, reader, clients, seed=f"{seed} edges"
        )

    @property
    def _traffic(self) -> Traffic:
        """The traffic at the beginning."""
        stores = self.files.stores
        if self.files.elders:
            return unlimited(stores, self._seconds)
        return Traffic.some(stores)

    async def _begin(
        self, supervisor: Supervisor, server: XmppServer, processes: Processes
    ) -> None:
        self._tell("starting")
        await supervisor.start(processes, "service")
        # Before the squatter's target queue exists.
        await supervisor.start(processes, "squatter")
        await self._create_nodes(server)
        await supervisor.start(processes, "worker", "publisher", "receiver", "sender")
        await supervisor.start(processes, *GATEWAY_KINDS)
        await supervisor.start(processes, "hub", "listen", "desk", "errand", "greedy")
        await supervisor.start(processes, "crowd")

    async def _create_nodes(self, server: XmppServer) -> None:
        connect = Connect.of_account(server, "boss/1", tls=True)
        async with connect.as_account() as session:
            session.client.register_plugin("xep_0254", {"timeout_s": 2.0})
            session.start()
            plugin = XEP_0254.of(session.client)
            nodes = {NODE: _NODE_OPTIONS}
            if self._home_files is not None:
                nodes |= {ERRANDS: _NODE_OPTIONS, VAULT: _VAULT_OPTIONS}
            await session.online.wait()
            for node, options in nodes.items():
                await session.work(self._insist_on_node(plugin, node, options))

    async def _insist_on_node(
        self, plugin: XEP_0254, node: str, options: Mapping[str, str]
    ) -> None:
        options = {**options, "queue#keep_accepted": f"{_KEEPS_S}"}
        if remembers_s := self._traffic.remembers_s:
            for name in ("queue#keep_accepted", "queue#dedupe_window"):
                options[name] = f"{remembers_s}"
        for _ in range(_CREATE_TRIES):
            try:
                await plugin.create(queue_jid(self._name), node, options)
                return
            except RequestFailed as error:
                if not error.is_temporary:
                    raise
            await asyncio.sleep(0.1)
        text = f"the queue service on {self._name} does not answer"
        raise CommandError(text, Status.INTERNAL)

    async def _find_half(self, supervisor: Supervisor) -> None:
        """Measure the possible rate while all runs do; then go on with half of it."""
        async with asyncio.timeout(_TOGETHER_S_MAX):
            await self._together.wait()
        self._tell("measuring the capacity")
        await asyncio.sleep(_WARM_UP_S)
        before = handled(self.files)
        await asyncio.sleep(MEASURE_S)
        done = Counter(handled(self.files))
        done.subtract(before)
        if not all(done.values()):
            raise CommandError(f"nothing gets done on {self._name}", Status.INTERNAL)
        await supervisor.change(half(supervisor.traffic, done, MEASURE_S))

    async def _hurt(self, supervisor: Supervisor, faults: Faults) -> None:
        hurting = asyncio.create_task(faults.inflict(self._seconds))
        loop = asyncio.get_running_loop()
        began, began_at = loop.time(), time.time()
        try:
            while not hurting.done():
                supervisor.check()
                if self._soak is not None:
                    self._soak.look(loop.time() - began)
                self._tell(
                    f"{loop.time() - began:.0f} of {self._seconds:.0f} s, "
                    f"{faults.counts.total()} faults"
                )
                await asyncio.wait((hurting,), timeout=_LOOK_S)
        finally:
            hurting.cancel()
            await asyncio.wait((hurting,))
        hurting.result()
        if self._soak is not None:
            self._soak.finish(began_at)
            self._problems += self._soak.problems()

    async def _run_out(self, supervisor: Supervisor) -> None:
        """Let all accepted messages and items end."""
        self._tell("waiting for what is under way")
        held_s = await asyncio.to_thread(held_back_s, self.files)
        within_s = _RUN_OUT_S_MAX + min(held_s, _BACKOFF_S_MAX)
        try:
            async with asyncio.timeout(within_s):
                # The hub is still there for the messages of `desk`.
                await supervisor.end(
                    *("publisher", "sender", "desk", "squatter", "greedy", "crowd"),
                    *GATEWAY_PUBLISHERS,
                )
                await supervisor.end("hub")
                # While workers are there to recover prepared effects.
                while await asyncio.to_thread(unsettled, self.files):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)
                await self._print_the_rest()
                await supervisor.end(
                    *("worker", "receiver", "listen", "errand"), *GATEWAY_WORKERS
                )
                await supervisor.end("service")
        except TimeoutError:
            left = [member.name for member in supervisor.members if not member.done]
            self._problems.append(
                f"not at its end {within_s:.0f} s after the last fault: "
                f"{', '.join(left)}"
            )

    async def _print_the_rest(self) -> None:
        """Let `listen` print the confirmed messages, and the worker do what is left.

        Messages and items that are still missing afterwards count as lost.
        """
        files = self._home_files
        if files is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PRINT_S_MAX):
                store = self.files.queue_store
                while await asyncio.to_thread(missing, files, store):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)

    def _tallies(self) -> Iterator[tuple[str, Tally]]:
        files = self.files
        for store in files.stores:
            logs = files.log("sender", store), files.log("receiver", store)
            effects = None
            if files.consumes(store):
                effects = Path(files.store("receiver", store).partition(":")[2])
            yield f"messages, {store}", count_messages(*logs, effects)
        yield "queue items", count_items(files)
        if self._home_files is not None:
            yield from count_commands(self._home_files, files.queue_store).items()
