"""A cache of JSON values on disk, keyed by the model and everything else a value depends on.

Files are written atomically, and one that cannot be read counts as missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import transformers

from engine.models.embedded import cache_folder
from engine.models.model import Model

_VERSION = 1  # of the values: increment it when their meaning changes


class DiskCache:
    """The cached values of one model. Without a folder nothing is cached."""

    def __init__(self, model: Model, folder: Path | None) -> None:
        self._folder = folder
        self._model = _identity(model) if folder else {}

    def get(self, key: Mapping[str, Any]) -> Any:
        """The value under this key, or None."""
        if self._folder is None:
            return None
        with suppress(OSError, ValueError, KeyError):
            return json.loads(self._file(key).read_text("utf-8"))["value"]
        return None

    def put(self, key: Mapping[str, Any], value: Any) -> None:
        """Store a JSON value; a folder that cannot be written is ignored."""
        if self._folder is None:
            return
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"key": {**self._model, **key}, "value": value}, file)
            os.replace(name, self._file(key))

    def _file(self, key: Mapping[str, Any]) -> Path:
        assert self._folder is not None
        text = json.dumps({**self._model, **key}, sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def default_folder() -> Path:
    """The default folder for calibrations."""
    return cache_folder() / "calibrations"


def _identity(model: Model) -> dict[str, Any]:
    """Identifies a model: another one may have the same name, but not the same weights."""
    parameters = list(model.module.parameters())
    digest = hashlib.sha256()
    for weights in (parameters[0], parameters[-1]):
        digest.update(weights.detach().flatten()[:4096].to("cpu", torch.float32).numpy().tobytes())
    return {
        "form": _VERSION,
        "model": model.name,
        "weights": digest.hexdigest(),
        "dtype": str(parameters[0].dtype),
        "device": model.device.type,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
    }
