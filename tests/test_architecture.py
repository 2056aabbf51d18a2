"""The structure of the code: which package may import which, and no import cycles."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("engine", "strategies", "visualizers", "playground")
FILES = sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py"))

ALLOWED = {
    "engine": {"engine"},
    "strategies": {"engine", "strategies"},
    "visualizers": {"engine", "visualizers"},
    "playground": set(PACKAGES),
}

# What a figure may read: traces, rounds of a speculative run, and results of a detector.
RECORDS = ("engine.trace", "engine.watermark")
# A trace can be read and written without torch.
STANDARD_LIBRARY_ONLY = ("engine.errors", "engine.trace.types", "engine.trace.file_format")


def module_name(path: Path) -> str:
    """Return the dotted name of a file's module."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the modules a file imports anywhere: in functions and under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}: use absolute imports"
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = members & MODULES.keys()
            # `from package import module` imports that module; anything else is in the package.
            found |= modules
            if modules != members:
                found.add(node.module)
    return frozenset(found)


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_follow_the_direction_of_the_packages(path: Path) -> None:
    package, *inner = path.relative_to(REPOSITORY).parts
    modules = imports(path)
    roots = {module.split(".")[0] for module in modules}
    assert roots & set(PACKAGES) <= ALLOWED[package]
    assert "gradio" not in roots or inner[0] == "ui"
    assert "plotly" not in roots or package == "visualizers" or inner[0] in ("ui", "export")
    if package == "visualizers":
        of_engine = {module for module in modules if module.split(".")[0] == "engine"}
        assert all(module.startswith(RECORDS) for module in of_engine), of_engine


@pytest.mark.parametrize("name", STANDARD_LIBRARY_ONLY)
def test_traces_need_only_the_standard_library(name: str) -> None:
    pending, seen = [name], set()
    while pending:
        module = pending.pop()
        if module in seen:
            continue
        seen.add(module)
        for imported in imports(MODULES[module]):
            if imported in MODULES:
                pending.append(imported)
            else:
                assert imported.split(".")[0] in sys.stdlib_module_names, f"{module}: {imported}"


def dependencies(name: str) -> set[str]:
    """Return the modules of ours that importing a module imports directly.

    To import ``a.b`` also runs ``a/__init__.py``, unless the importing module is inside ``a``.
    """
    found = set()
    for imported in imports(MODULES[name]) & MODULES.keys():
        parents = [imported.rsplit(".", depth)[0] for depth in range(imported.count(".") + 1)]
        found |= {parent for parent in parents if not f"{name}.".startswith(f"{parent}.")}
        found.add(imported)
    return found


def test_there_are_no_import_cycles() -> None:
    graph = {name: dependencies(name) for name in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " -> ".join(reversed(error.args[1])))


def test_python_api_and_command_line_need_no_page_and_no_figures() -> None:
    absent = ["gradio", "plotly", "pandas", "gguf", "scipy", "jinja2"]
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({absent}))\n"
        "from playground import Playground\n"
        "import playground.__main__\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)
