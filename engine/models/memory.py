"""How much memory is free on a device."""

from __future__ import annotations

import importlib
from contextlib import suppress
from pathlib import Path

import torch


def free_memory(device: torch.device) -> int | None:
    """The bytes that can still be allocated on a device, or None where that is unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        psutil = importlib.import_module("psutil")  # comes with accelerate, which is optional
    except ImportError:
        return None
    free = int(psutil.virtual_memory().available)
    with suppress(OSError, ValueError):  # a container may allow less than the machine has
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        free = min(free, limit - int(psutil.Process().memory_info().rss))
    return free
