"""Python's garbage collector, kept away while things are made that stay.

It looks through whatever there is each time that much was added, and so takes a seventh of the time
in which torch and transformers are imported or a model is loaded, to find nothing. Knows the
collector. Refuses to know what is imported or loaded.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect nothing meanwhile."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
