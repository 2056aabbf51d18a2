"""A trained detector that a visitor brings: two files in, what it thinks of a text out.

Knows files and where they came from. Refuses to know how a detector works: the engine loads it,
safetensors only, and says what is wrong with it.
"""

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

KINDS = [".json", ".safetensors"]
BUTTON = "Bring a Bayesian detector"


def notes(
    model: Model, text: str | Sequence[int], paths: Sequence[str], found: Detection, limits: Limits
) -> list[str]:
    """What the detector in these files thinks of a text, in words; none where none was brought."""
    if not paths or found.layers is None:
        return []
    fields = {name: found.settings[name] for name in config.settings_for("synthid")}
    try:
        with tempfile.TemporaryDirectory() as folder:
            _gather(paths, Path(folder), limits)
            told = bayesian(model, text, folder, limits=limits, **fields)
    except PlaygroundError as error:
        return [f"The detector you brought says nothing: {error}"]
    return [
        f"The detector you brought gives a mark the probability {told.probability:.4f}, on "
        f"{told.tokens_scored} tokens."
    ]


def _gather(paths: Sequence[str], folder: Path, limits: Limits) -> None:
    """Put the files side by side, under the names they are looked for."""
    names = {".json": "config.json", ".safetensors": "model.safetensors"}
    files = {path.suffix: path for path in map(Path, paths)}
    if len(paths) != len(names) or set(files) != set(names):
        raise PlaygroundError("bring its two files together, config.json and model.safetensors")
    for suffix, file in files.items():
        if not file.is_file():
            raise PlaygroundError(f"{file.name} is no longer here; bring it again")
        if file.stat().st_size > limits.upload_bytes:
            raise PlaygroundError(f"{file.name} has more than {limits.upload_bytes:,} bytes")
        shutil.copyfile(file, folder / names[suffix])
