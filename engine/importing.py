"""torch, transformers and what stands on them, imported in less time.

transformers reads the source of each of its models, sixteen hundred files, to know what they
define: when it is imported, and once more when the first of them is. Here the first list is used
twice. Knows how transformers lists its models. Refuses to know who imports what.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from engine.garbage import uncollected


@contextmanager
def importing() -> Iterator[None]:
    """Import in here what stays: the garbage collector never looks through it."""
    with uncollected():
        if "transformers.models" not in sys.modules:
            _import_models()
        yield
        gc.freeze()


def _import_models() -> None:
    looking: Any = import_module("transformers.utils.import_utils")
    listing, models = looking.define_import_structure, Path(looking.__file__).parents[1] / "models"

    def listed(path: str, prefix: str | None = None) -> Any:
        if Path(path) != models / "__init__.py" or prefix is not None:
            return listing(path, prefix)
        known = listing(models, prefix="models")  # transformers has asked this, and remembers it
        return {needed: _own_of(modules) for needed, modules in known.items()}

    looking.define_import_structure = listed
    try:
        import_module("transformers.models")
    finally:
        looking.define_import_structure = listing


def _own_of(modules: dict[str, Any]) -> dict[str, Any]:
    """Without what transformers has added that is no model, named as from among the models."""
    return {
        name.removeprefix("models."): defined
        for name, defined in modules.items()
        if name.startswith("models.")
    }
