"""A Bayesian detector that a visitor uploads as two files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engine.errors import PlaygroundError
from engine.models.model import Model
from engine.settings import Limits
from engine.watermark import config
from engine.watermark.bayesian import bayesian
from engine.watermark.detection import Detection

FILE_TYPES = [".json", ".safetensors"]


def notes(
    model: Model, text: str | Sequence[int], paths: Sequence[str], found: Detection, limits: Limits
) -> list[str]:
    """What the uploaded detector says about a text; empty if none was uploaded."""
    if not paths or found.layers is None:
        return []
    fields = {name: found.settings[name] for name in config.settings_for("synthid")}
    try:
        with tempfile.TemporaryDirectory() as folder:
            _copy(paths, Path(folder), limits)
            result = bayesian(model, text, folder, limits=limits, **fields)
    except PlaygroundError as error:
        return [f"The uploaded detector failed: {error}"]
    return [
        f"The uploaded detector gives a probability of {result.probability:.4f} for a watermark, "
        f"from {result.tokens_scored} tokens."
    ]


def _copy(paths: Sequence[str], folder: Path, limits: Limits) -> None:
    """Copy the files to a folder, under the names that transformers expects."""
    names = {".json": "config.json", ".safetensors": "model.safetensors"}
    files = {path.suffix: path for path in map(Path, paths)}
    if len(paths) != len(names) or set(files) != set(names):
        raise PlaygroundError("upload config.json and model.safetensors together")
    for suffix, file in files.items():
        if not file.is_file():
            raise PlaygroundError(f"{file.name} is no longer on the server; upload it again")
        if file.stat().st_size > limits.upload_bytes:
            raise PlaygroundError(
                f"{file.name} is too large; at most {limits.upload_bytes:,} bytes are allowed"
            )
        shutil.copyfile(file, folder / names[suffix])
