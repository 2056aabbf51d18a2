"""docs/upgrading.md lists every private interface that the code uses."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.documentation import REPOSITORY

PACKAGES = ("engine", "strategies", "visualizers", "playground", "training", "benchmarks", "tools")
NAMEDTUPLE = {"_replace", "_asdict", "_fields"}  # public in spite of the underscore


def sources() -> dict[Path, ast.Module]:
    files = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}


def defined(tree: ast.Module) -> set[str]:
    """Return the names that a file defines: functions, classes, variables and attributes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr if isinstance(node.value, ast.Name) else "")
    return names


def test_every_private_name_of_a_library_is_documented() -> None:
    documented = set(re.findall(r"\w+", (REPOSITORY / "docs/upgrading.md").read_text("utf-8")))
    trees = sources()
    ours = NAMEDTUPLE.union(*map(defined, trees.values()))
    missing = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}: {node.attr}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and re.match(r"_(?!_)", node.attr)
        and node.attr not in ours
        and node.attr not in documented
    ]
    assert not missing, "describe these in docs/upgrading.md:\n" + "\n".join(missing)


def test_every_private_import_of_a_library_is_documented() -> None:
    documented = (REPOSITORY / "docs/upgrading.md").read_text("utf-8")
    missing = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}: {alias.name}"
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module not in (None, "__future__")
        for alias in node.names
        if str(node.module).split(".")[0] not in (*PACKAGES, "tests")
        and re.search(r"(^|\.)_(?!_)", f"{node.module}.{alias.name}")
        and f"{alias.name}`" not in documented
    ]
    assert not missing, "describe these in docs/upgrading.md:\n" + "\n".join(missing)
