"""The file format of the trained weights in ``models/``: int8 with one scale per row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

_SCALE = ".scale"
_MAX = 127


def save(tensors: Mapping[str, Tensor], about: Mapping[str, Any], file: Path) -> None:
    """Write matrices as int8 with row scales, other tensors as they are, ``about`` as metadata."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.ndim == 2 and tensor.is_floating_point():
            scale = tensor.abs().amax(1).clamp(min=1e-8) / _MAX  # (rows,)
            stored[name] = (tensor / scale[:, None]).round().to(torch.int8).contiguous().cpu()
            stored[name + _SCALE] = scale.to(torch.float32).contiguous().cpu()
        else:
            stored[name] = tensor.contiguous().cpu()
    save_file(stored, file, metadata={"about": json.dumps(about)})


def names(file: Path) -> set[str]:
    """Return the names of the tensors in a file without reading them."""
    with safe_open(file, framework="pt") as stored:
        return {name.removesuffix(_SCALE) for name in stored.keys()}  # noqa: SIM118  # not a mapping


def load(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file: tensors with matrices as float32, and the metadata."""
    with safe_open(file, framework="pt") as stored:
        about: dict[str, Any] = json.loads(stored.metadata()["about"])
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118  # not a mapping
    scales = {name for name in tensors if name.endswith(_SCALE)}
    restored = {
        name: tensor.float() * tensors[name + _SCALE][:, None]
        if name + _SCALE in scales
        else tensor
        for name, tensor in tensors.items()
        if name not in scales
    }
    return restored, about
