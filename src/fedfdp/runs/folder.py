"""A run on disk: config, ledger, checkpoint, metrics, summary, model.

Files are replaced whole. Only metrics and ledger are appended to: a torn last line is passed over or repaired.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, unquote

import safetensors.torch
import tomli_w
import torch
from torch import Tensor

from fedfdp.core import files, records
from fedfdp.core.errors import RunError

CONFIG, METRICS, CHECKPOINT = "config.toml", "metrics.jsonl", "checkpoint"
SUMMARY, MODEL, LEDGER, IDENTITY = "summary.json", "model.safetensors", "ledger.jsonl", "run.json"
JOINING = "joining.json"  # whether the holders are better off than alone
OWN = "own"  # the folder of the clients' own models, where a method has them
PRIVACY_JSON, PRIVACY_PAGE, CLIENTS = "privacy.json", "privacy.md", "clients.json"
LIVE, STOP, LOCK = "live.json", "stop", ".lock"

Json: TypeAlias = dict[str, Any]  # what a file of JSON or TOML holds
R = TypeVar("R")


def own_file(client: str) -> str:
    """Where a client's own model is kept; what a file system may not take in a name is written as %xx."""
    return f"{OWN}/{quote(client, safe=' ')}.safetensors"


class RunFolder:
    """One run's folder. Only one process at a time writes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # Reading --------------------------------------------------------------------------------------------------------

    @classmethod
    def find(cls, path: Path) -> "RunFolder":
        """The run in this folder."""
        if not (path / IDENTITY).is_file():
            raise RunError(f"{path} is not a run folder: it has no {IDENTITY}; give the folder of a fedfdp run")
        return cls(path)

    def config(self) -> Json:
        """The settings that the run was started with."""
        try:
            return tomllib.loads((self.path / CONFIG).read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise RunError(f"{self.path / CONFIG} cannot be read: {error}; start the run anew elsewhere") from None

    def identity(self) -> Json:
        """Digests of settings, data, model, loss and method, by which a run is recognised when it is resumed."""
        return self._json(IDENTITY)

    @property
    def finished(self) -> bool:
        """Whether summary and model are there."""
        return (self.path / SUMMARY).is_file()

    def summary(self) -> Json:
        """What a finished run came to; a RunError where it is not finished."""
        if not self.finished:
            raise RunError(f"{self.path} is not finished; continue it with: fedfdp run --resume {self.path}")
        return self._json(SUMMARY)

    def clients(self) -> Json | None:
        """Who takes part and what they hold; None in folders of runs that did not note it."""
        return self._json(CLIENTS) if (self.path / CLIENTS).is_file() else None

    def privacy(self) -> Json | None:
        """The privacy statement; None where there is no privacy, or none was written yet."""
        return self._json(PRIVACY_JSON) if (self.path / PRIVACY_JSON).is_file() else None

    def joining(self) -> Json | None:
        """Each holder with the run's model and with its own; None where it was not compared."""
        return self._json(JOINING) if (self.path / JOINING).is_file() else None

    def live(self) -> Json | None:
        """What the run last said of itself (`runs/live.py`); None in folders of runs that did not."""
        return self._json(LIVE) if (self.path / LIVE).is_file() else None

    @property
    def running(self) -> bool:
        """Whether a process is at work on the run now."""
        return files.held(self.path / LOCK)

    @property
    def stop_asked(self) -> bool:
        """Whether the run is to end after the round that it is in."""
        return (self.path / STOP).exists()

    def metrics(self) -> list[Json]:
        """One entry per evaluation; a torn last line, of a run that was killed while writing it, is passed over."""
        path = self.path / METRICS
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        found = []
        for line in lines:
            with contextlib.suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found

    def own_models(self) -> dict[str, Path]:
        """The clients that have a model of their own, each with its file."""
        found = sorted((self.path / OWN).glob("*.safetensors"))
        return {unquote(path.name.removesuffix(".safetensors")): path for path in found}

    def _json(self, name: str) -> Json:
        try:
            content: Json = json.loads((self.path / name).read_text(encoding="utf-8"))
            return content
        except (OSError, json.JSONDecodeError) as error:
            raise RunError(f"{self.path / name} cannot be read: {error}; start the run anew elsewhere") from None

    # Writing --------------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path, config: Mapping[str, object], identity: Mapping[str, str]) -> "RunFolder":
        """A new run. A folder that holds one already, or anything else, is left alone."""
        cls.check_free(path)
        folder, whole = cls(path), path.resolve()
        beside = whole.with_name(f".{whole.name}.{os.getpid()}")  # moved into place with both files or not at all
        with folder.writing():
            whole.parent.mkdir(parents=True, exist_ok=True)
            try:
                beside.mkdir()
                cls(beside).write(CONFIG, tomli_w.dumps(config).encode())
                cls(beside).write(IDENTITY, json.dumps(identity, indent=2).encode())
                os.replace(beside, whole)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
        return folder

    @staticmethod
    def check_free(path: Path) -> None:
        """Raises unless a new run can have this folder."""
        if (path / IDENTITY).exists():
            raise RunError(f"{path} holds a run already; continue it with --resume {path}, or give another --out")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunError(f"{path} is not an empty folder; give another --out")

    def check_identity(self, identity: Mapping[str, str]) -> None:
        """Raises unless the folder belongs to this very run."""
        stored = self.identity()
        for key, value in identity.items():
            if stored.get(key) != value:
                was, now = str(stored.get(key))[:12], str(value)[:12]
                differs = f"belongs to another run: its {key} is {was}, not {now}"
                fix = "resume it with the settings it was started with, or give another --out"
                if key == "data":
                    differs = f"was started on other records: their fingerprint was {was}, now it is {now}"
                    fix = "put those back to resume it, or start a new run"
                if key == "streams":
                    differs = "was started by a version of fedfdp that draws other numbers, or with another randomness"
                    fix = "finish it with that version, or start a new run"
                if key in ("model", "loss", "method", "engine"):
                    differs = f"was started with another {key}: its code, or what that holds, is not the same"
                    fix = f"resume it with that {key} and the same version of Python, or start a new run"
                raise RunError(f"{self.path} {differs}; {fix}")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from writing to the same run."""
        with self.writing(), contextlib.ExitStack() as stack:
            try:
                stack.enter_context(files.locked(self.path / LOCK, wait=False))
            except BlockingIOError:
                raise RunError(f"{self.path} is being written by another process; wait for it or stop it") from None
            yield

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Turns a full disk or a missing permission into an error of one line."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            fix = f"make room and continue with --resume {self.path}, or give another --out"
            raise RunError(f"{error.filename or self.path} cannot be written: {reason}; {fix}") from None

    def write(self, name: str, content: bytes) -> None:
        """The whole file or nothing."""
        files.write_whole(self.path / name, content)

    def remove(self, *names: str) -> None:
        """Deletes these files, as far as they are there."""
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def write_live(self, said: Json) -> None:
        """Replaces what the run says of itself; after a power failure it may be older than the rest."""
        files.write_whole(self.path / LIVE, json.dumps(said).encode(), sync=False)

    def ask_to_stop(self) -> None:
        """Asks the run to end after the round that it is in; it can be resumed."""
        with self.writing():
            (self.path / STOP).touch()

    def forget_stop(self) -> None:
        """Takes that back."""
        (self.path / STOP).unlink(missing_ok=True)

    def save_checkpoint(self, progress: object) -> None:
        """Writes all that is needed to go on, with a checksum."""
        payload = records.to_bytes(progress)
        self.write(CHECKPOINT, hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)

    def load_checkpoint(self, kind: type[R]) -> R | None:
        """The last checkpoint, or None where there is none yet."""
        path = self.path / CHECKPOINT
        if not path.exists():
            return None
        expected, _, payload = path.read_bytes().partition(b"\n")
        if hashlib.sha256(payload).hexdigest().encode() != expected:
            raise RunError(f"{path} is corrupt (its checksum does not fit); start the run anew with another --out")
        return records.from_bytes(kind, payload)

    def append_metrics(self, entry: Json) -> None:
        """Adds one evaluation."""
        with open(self.path / METRICS, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def forget_metrics_after(self, round: int) -> None:
        """Drops evaluations later than the checkpoint: they are made again."""
        kept = [json.dumps(entry) + "\n" for entry in self.metrics() if entry["round"] <= round]
        self.write(METRICS, "".join(kept).encode())

    def keep_own(self, client: str, weights: dict[str, Tensor]) -> None:
        """Writes a client's own model."""
        (self.path / OWN).mkdir(exist_ok=True)
        self.write(own_file(client), safetensors.torch.save(weights))

    def finish(self, summary: Json, weights: dict[str, Tensor]) -> None:
        """Writes the model, then the summary, which marks the run as finished."""
        # Each tensor by itself: weights that share memory cannot be stored.
        apart = {name: t.clone(memory_format=torch.contiguous_format) for name, t in weights.items()}
        self.write(MODEL, safetensors.torch.save(apart))
        self.write(SUMMARY, json.dumps(summary, indent=2).encode())
