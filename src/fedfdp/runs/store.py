"""Many runs in one folder, each named after its config and the content of its files, so that none is run twice.

It keeps no results of its own: all it knows is read from the run folders.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedfdp.core import files
from fedfdp.core.errors import RunError
from fedfdp.runs.build import launch, pinned
from fedfdp.runs.config import Config
from fedfdp.runs.folder import CONFIG, IDENTITY, RunFolder
from fedfdp.runs.session import Update

HASH_DIGITS = 10


def short_hash(config: Config) -> str:
    """The first digits of a resolved config's fingerprint."""
    return config.fingerprint()[:HASH_DIGITS]


class Store:
    """The runs below one folder, found by their configs. Configs must be resolved, so that equal runs have equal ones.

    A run on files that were edited is another run. Where a config has no `data.content` yet, every call reads the
    files to compute it: pass `pinned` configs.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, config: Config) -> Path:
        (config,) = pinned([config])
        return self.root / f"{config.name}-{short_hash(config)}"

    def run(self, config: Config) -> RunFolder:
        return RunFolder(self.path(config))

    def finished(self, config: Config) -> bool:
        return self.run(config).finished

    def complete(self, config: Config, on_update: Callable[[Update], None] | None = None) -> RunFolder:
        """The finished run of a config: found, continued from its checkpoint, or run from the start.

        While another process works on the same run, this waits until that process ends.
        """
        (config,) = pinned([config])
        folder = self.run(config)
        with self._alone(folder.path):
            if not folder.finished:
                launch(config, out=folder.path, resume=self._begun(folder.path), on_update=on_update)
        return folder

    def runs(self) -> list[RunFolder]:
        """Every run below the root, by name, finished or not."""
        return [RunFolder(path.parent) for path in sorted(self.root.glob(f"**/{IDENTITY}"))]

    def _begun(self, path: Path) -> bool:
        """Whether there is a run to continue. Removes what a process left that was killed while making the folder."""
        if (path / IDENTITY).is_file():
            return True
        if path.exists():
            foreign = [p.name for p in path.iterdir() if p.name != CONFIG and not p.name.startswith(".")]
            if foreign:
                raise RunError(f"{path} holds {foreign[0]} but no run; move it away or give another --out")
            shutil.rmtree(path)
        return False

    @contextmanager
    def _alone(self, path: Path) -> Iterator[None]:
        """One process at a time for each run; its lock is released when that process ends, however it ends."""
        folder = RunFolder(self.root)
        with folder.writing():
            (self.root / ".locks").mkdir(parents=True, exist_ok=True)
            with files.locked(self.root / ".locks" / path.name, wait=True):
                yield


def find_runs(places: list[Path]) -> list[RunFolder]:
    """The runs that are these folders or lie below them."""
    found = []
    for place in places:
        below = Store(place).runs()
        if not below:
            raise RunError(
                f"{place} holds no run: there is no {IDENTITY} in it or below; give a run or a sweep's folder"
            )
        found += below
    return found
