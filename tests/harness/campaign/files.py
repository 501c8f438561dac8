"""The files of the processes of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from campaign.disk import SmallDisk
from campaign.member import GATEWAY_PUBLISHERS, GATEWAY_WORKERS, Kind

__all__ = ["Files"]


@dataclass(frozen=True)
class Files:
    """The files of the processes of a run.

    Attributes:
        folder: for logs and journals.
        disk: for stores.
        stores: the kinds of stores, each with a sender and a receiver.
        elders: names of members whose stores are outside that disk, which is full at
            times: otherwise they would not live long.
    """

    folder: Path
    disk: SmallDisk
    stores: tuple[str, ...]
    elders: frozenset[str] = frozenset()

    @property
    def queue_store(self) -> Path:
        """The store of the service."""
        return self._home("service") / "queue.sqlite"

    @property
    def published(self) -> Path:
        """The ids of the items that the publisher was told are published."""
        return self.folder / "published.log"

    def published_by(self, kind: Kind) -> Path:
        """Likewise, of a publisher of `gateways`."""
        return self.folder / f"{kind}.log"

    def notebook(self, kind: Kind) -> Path:
        """The notebook of a worker of `gateways`."""
        return self.folder / f"{kind}.log"

    @property
    def all_published(self) -> set[str]:
        """The ids of all items that somebody was told are published."""
        paths = [self.published, *map(self.published_by, GATEWAY_PUBLISHERS)]
        return {
            name for path in paths if path.exists() for name in path.read_text().split()
        }

    @property
    def notebooks(self) -> list[Path]:
        """The notebooks of all workers that work through a gateway."""
        return [self.notebook(kind) for kind in GATEWAY_WORKERS]

    @property
    def work_records(self) -> Path:
        """The work of the workers; see WorkRecord."""
        return self.folder / "work.log"

    @property
    def journals(self) -> Path:
        """The folder with a journal of each member."""
        return self.folder / "journals"

    def log(self, role: str, store: str) -> Path:
        """The log of a sender or a receiver."""
        return self.folder / f"{role}-{store}.log"

    def store(self, role: str, store: str) -> str:
        """The URL of the store of a sender or a receiver."""
        return f"{store}:{self._home(f'{role}-{store}') / f'{role}.{store}'}"

    def consumes(self, store: str) -> bool:
        """Whether a receiver has a consumer, with tables in its store.

        Elders have none: the application's tables grow all the time.
        """
        return store == "sqlite" and f"receiver-{store}" not in self.elders

    def effects(self, worker: str) -> Path:
        """The database of a worker's application."""
        return self._home(worker) / f"{worker}.db"

    def _home(self, name: str) -> Path:
        return self.folder if name in self.elders else self.disk.folder
