"""Weights in eight bits, a scale for each row: how those that come with the repository are kept.

Knows the file. Refuses to know what the weights are for.
"""

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
_MOST = 127


def save(tensors: Mapping[str, Tensor], about: Mapping[str, Any], file: Path) -> None:
    """Write matrices in eight bits and everything else as it is, with what there is to say."""
    kept: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.ndim == 2 and tensor.is_floating_point():
            scale = tensor.abs().amax(1).clamp(min=1e-8) / _MOST  # (rows,)
            kept[name] = (tensor / scale[:, None]).round().to(torch.int8).contiguous().cpu()
            kept[name + _SCALE] = scale.to(torch.float32).contiguous().cpu()
        else:
            kept[name] = tensor.contiguous().cpu()
    save_file(kept, file, metadata={"about": json.dumps(about)})


def names(file: Path) -> set[str]:
    """Of what ``save`` wrote, read no more than the names."""
    with safe_open(file, framework="pt") as stored:
        return {name.removesuffix(_SCALE) for name in stored.keys()}  # noqa: SIM118  # as below


def load(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``save`` wrote: matrices as float32, and what there is to say."""
    with safe_open(file, framework="pt") as stored:
        about: dict[str, Any] = json.loads(stored.metadata()["about"])
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118  # its keys are a method alone
    scales = {name for name in tensors if name.endswith(_SCALE)}
    whole = {
        name: tensor.float() * tensors[name + _SCALE][:, None]
        if name + _SCALE in scales
        else tensor
        for name, tensor in tensors.items()
        if name not in scales
    }
    return whole, about
