"""Loads Triton kernels where there is a GPU for them, and falls back to torch where they fail."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from engine.accel import enabled

log = logging.getLogger(__name__)

T = TypeVar("T")

failures: dict[str, str] = {}  # kernels that are not used although there is a GPU, and why


def kernels(name: str, *, there: bool = True) -> Any:
    """A module of Triton kernels; None without a GPU or Triton, or with accelerations off."""
    if not enabled() or not there:
        return None
    # Imported by name: an exported `custom_generate` folder leaves these modules out.
    try:
        return importlib.import_module(f"engine.accel.{name}")
    except ImportError as error:
        if name not in failures:
            log.warning("%s is not used: %s", name, error)
        failures[name] = str(error)
        return None


def checked(fused: T, reference: T, check: Callable[[T], None], what: str) -> T:
    """The implementation in Triton kernels if it passes a check, else the reference in torch."""
    try:
        check(fused)
    except Exception as error:  # a GPU or its Triton may fail in many ways
        failures[what] = str(error)
        log.warning("%s in torch, the Triton kernels failed: %s", what, error)
        return reference
    return fused
