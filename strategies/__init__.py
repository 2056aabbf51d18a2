"""Decoding strategies, one per file: a file dropped in here is registered everywhere."""

import pkgutil
from importlib import import_module

from engine.strategy import find, registered

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["find", "registered"]
