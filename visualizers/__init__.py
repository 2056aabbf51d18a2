"""Figures of traces and of the labs' results, one per file.

Every module in this package or below it is imported here, so a file with a function decorated by
`visualizers.registry.view` is on the page and in the report as soon as it exists. Modules whose
name starts with an underscore are not imported: they hold helpers of the figures beside them.
"""

import pkgutil
from importlib import import_module

from visualizers.registry import View, applicable, views
from visualizers.shared.runs import best_path, labels
from visualizers.shared.style import visible

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    if "._" not in _module.name:
        import_module(_module.name)

__all__ = ["View", "applicable", "best_path", "labels", "views", "visible"]
