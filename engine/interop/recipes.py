"""Loads a decoding recipe: a folder with ``custom_generate/generate.py``, as transformers has it.

Loading runs its code, so callers check first that this is allowed. Nothing is downloaded.
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
    """The ``generate`` function of a folder; its requirements are checked first."""
    code = Path(folder).expanduser() / "custom_generate"
    file = code / "generate.py"
    if not file.is_file():
        raise PlaygroundError(
            f"custom_generate is {str(folder)!r}; it must be a folder that contains"
            " custom_generate/generate.py"
        )
    _check_requirements(code / "requirements.txt")
    # Its own package, so that generate.py can import the modules beside it.
    name = f"recipe_{sha256(str(code.resolve()).encode()).hexdigest()[:16]}"
    for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[loaded]  # the code may have changed since
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
    """Raise an error that names every requirement that is not met."""
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
            problems.append(f"{wanted!r} is not a valid requirement ({error})")
            continue
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            problems.append(f"{requirement} is required, but {requirement.name} is not installed")
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            problems.append(f"{requirement} is required, but {installed} is installed")
    if problems:
        raise PlaygroundError(f"custom_generate: {'; '.join(problems)}")
