"""Recipes: transformers copies only files imported as ``from .module import name``."""

import ast
import importlib.util
import inspect
import sys

import pytest

from playground.export import recipe
from strategies import registered

RECIPES = [id for id, strategy in registered().items() if recipe._is_recipe(strategy)]


def absolute_names(source: str) -> list[str]:
    """What a module imports from this repository, as dotted names."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in names if name.split(".")[0] in ("engine", "strategies", "playground")]


def is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is a module, not a package
        return False


@pytest.mark.parametrize("id", RECIPES)
def test_decoding_code_imports_names_and_never_modules(id: str) -> None:
    module = sys.modules[registered()[id].decode.__module__]
    for part in recipe._parts(module):
        for name in absolute_names(inspect.getsource(part)):
            assert not is_module(name), (
                f"{part.__name__} imports the module {name}: write `from {name} import ...` with"
                " the names it needs, or transformers cannot load the recipe"
            )


@pytest.mark.parametrize("id", RECIPES)
def test_recipe_has_relative_imports_only(id: str, tmp_path) -> None:
    recipe.write(id, tmp_path)
    for path in (tmp_path / "custom_generate").glob("*.py"):
        assert absolute_names(path.read_text(encoding="utf-8")) == [], path.name
