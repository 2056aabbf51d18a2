"""Figures, one per file: dropping a file in here puts it on the page and into the report.

Knows traces and plotly. Refuses to know strategies, models and pages.
"""

import pkgutil
from importlib import import_module

from visualizers._shared.lines import best_path
from visualizers._shared.style import labels, visible
from visualizers.registry import View, applicable, views

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    if "._" not in _module.name:
        import_module(_module.name)

__all__ = ["View", "applicable", "best_path", "labels", "views", "visible"]
