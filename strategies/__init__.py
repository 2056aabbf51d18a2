"""Decoding strategies, one per file: dropping a file in here registers it everywhere.

Knows torch and the engine. Refuses to know caches, devices, figures and pages.
"""

import pkgutil
from importlib import import_module

from engine.strategy import find, registered

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["find", "registered"]
