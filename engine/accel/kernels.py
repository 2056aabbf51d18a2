"""Kernels of our own: loaded where there is a GPU for them, used where they give what torch gives.

Knows how to come by them and what to do where they fail. Refuses to know what they compute.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


def kernels(name: str, *, there: bool = True) -> Any:
    """A module of kernels; None where there is nothing to run them, nor Triton to make them."""
    # By name: whoever takes this file elsewhere, as a recipe for transformers does, leaves them.
    try:
        return importlib.import_module(f"engine.accel.{name}") if there else None
    except ImportError:
        return None


def tried(few: T, many: T, attempt: Callable[[T], None], what: str) -> T:
    """What is done in few kernels of our own, if an attempt with it succeeds; else the same in many
    of torch's, and the log says why."""
    try:
        attempt(few)
    except Exception as error:  # whatever a card or its Triton cannot do
        log.warning("%s in many kernels, the few have failed: %s", what, error)
        return many
    return few
