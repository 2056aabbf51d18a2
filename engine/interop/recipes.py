"""Loads decoding code that somebody else wrote: a folder with ``custom_generate/generate.py``.

Knows how such folders look and what they may need. Runs their code, so whoever calls this must have
been allowed to. Refuses to fetch anything.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from engine.errors import PlaygroundError


def load(folder: str | Path) -> Callable[..., Any]:
    """The folder's ``generate`` function, its requirements checked first."""
    code = Path(folder).expanduser() / "custom_generate"
    file = code / "generate.py"
    if not file.is_file():
        raise PlaygroundError(
            f"custom_generate is {str(folder)!r}; a recipe is a folder that holds"
            " custom_generate/generate.py"
        )
    _check_requirements(code / "requirements.txt")
    # A package of its own, so that generate.py may import what lies beside it.
    name = f"recipe_{sha256(str(code.resolve()).encode()).hexdigest()[:16]}"
    for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[loaded]  # the code may have changed
    package = ModuleType(name)
    package.__path__ = [str(code)]
    spec = importlib.util.spec_from_file_location(f"{name}.generate", file)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules |= {name: package, spec.name: module}
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PlaygroundError(
            f"custom_generate: {file} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    generate: Callable[..., Any] | None = getattr(module, "generate", None)
    if generate is None or not callable(generate):
        raise PlaygroundError(f"custom_generate: {file} has no function generate")
    return generate


def _check_requirements(file: Path) -> None:
    """Refuse what is not installed as required, naming every such requirement."""
    if not file.is_file():
        return
    problems = []
    for line in file.read_text(encoding="utf-8").splitlines():
        wanted = line.split("#")[0].strip()
        if not wanted:
            continue
        try:
            requirement = Requirement(wanted)
        except InvalidRequirement as error:
            problems.append(f"{wanted!r} is no requirement ({error})")
            continue
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            problems.append(f"{requirement} is required, and {requirement.name} is not installed")
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            problems.append(f"{requirement} is required, installed is {installed}")
    if problems:
        raise PlaygroundError(f"custom_generate: {'; '.join(problems)}")
