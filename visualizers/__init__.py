"""Figures, one per file: dropping a file in here puts it on the page and into the report.

Knows traces and plotly. Refuses to know strategies, models and pages.
"""

import pkgutil
from importlib import import_module

from visualizers._lines import best_path
from visualizers._register import View, applicable, views
from visualizers._style import labels, visible

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_"):
        import_module(f"{__name__}.{_module.name}")

__all__ = ["View", "applicable", "best_path", "labels", "views", "visible"]
