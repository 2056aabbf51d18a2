"""What every training begins and ends with: the model, what it wrote, and what is kept.

Knows the options that trainings share, and the files in ``models/``. Refuses to know what learns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine.accel.grouped_attention import group
from engine.models import loading, quantized_weights
from engine.models.model import Model

# isort: split
import torch
from torch import Tensor, nn

from training.prompts import Prompts
from training.writing import Writer, Written

FILE = 9_500_000  # bytes at most in one
NAME = "smollm2"
FEW = {"parts": 1, "texts": 16, "length": 48, "measured": 8, "step_texts": 4}  # ``--tiny``


class Lesson(NamedTuple):
    """What there is to learn from, and what is told of it."""

    model: Model
    training: list[Written]
    held_back: Written
    output: Tensor  # (vocabulary, width) the model's output matrix
    kept: Tensor  # (kept,) the tokens that drafts may use, commonest first
    told: dict[str, Any]


def begun(options: argparse.Namespace) -> Lesson:
    """Have the model write."""
    model = loading.load(options.model, dtype="bfloat16")
    if model.device.type == "cuda":
        group(model.module)
    training, held_back = written(model, options)
    kept, coverage = commonest(training, options.kept)
    untold = ("model", "into")
    told = {
        "settings": {name: value for name, value in vars(options).items() if name not in untold},
        "torch": torch.__version__,
        "tokens_written": sum(part.tokens.numel() for part in training),
        "share_of_tokens_kept": round(coverage, 4),
    }
    module: Any = model.module
    output = module.get_output_embeddings().weight.detach()
    options.into.mkdir(exist_ok=True, parents=True)
    return Lesson(model, training, held_back, output, kept, told)


def arguments(about: str) -> argparse.ArgumentParser:
    """The options that every training has."""
    known = argparse.ArgumentParser(description=about)
    known.add_argument("--model", default=NAME)
    known.add_argument("--into", type=Path, default=Path(__file__).parents[1] / "models")
    known.add_argument("--seed", type=int, default=1)
    known.add_argument("--parts", type=int, default=14, help="times that texts are written")
    known.add_argument("--texts", type=int, default=4096, help="written together")
    known.add_argument("--length", type=int, default=256)
    known.add_argument("--measured", type=int, default=1024, help="texts, held back")
    known.add_argument("--kept", type=int, default=8192, help="tokens that drafts may use")
    known.add_argument("--step-texts", type=int, default=128)
    known.add_argument("--tiny", action="store_true", help="to see that it works")
    return known


def written(model: Model, options: argparse.Namespace) -> tuple[list[Written], Written]:
    """What the model writes: to learn from, and for measuring."""
    writer = Writer(model.module, options.texts, options.length, options.read, options.seed)
    sources = [
        Prompts(model.tokenizer, options.seed + held_back, held_back=held_back)
        for held_back in (False, True)
    ]
    parts = []
    for number in range(options.parts + 1):
        since = time.perf_counter()
        source = sources[number == options.parts]
        parts.append(writer.write([source.draw() for _ in range(options.texts)]))
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        print(f"part {number + 1} written in {time.perf_counter() - since:.1f} s", flush=True)
    *training, held_back = parts
    return training, Written(*(part[: options.measured] for part in held_back))


def commonest(training: list[Written], count: int) -> tuple[Tensor, float]:
    """The tokens that occur most, and the share of all text that they are."""
    counts = sum(part.tokens.flatten().bincount(minlength=1 << 16) for part in training)
    assert isinstance(counts, Tensor)
    kept = counts.argsort(descending=True, stable=True)[:count]
    return kept, float(counts[kept].sum() / counts.sum())


def save(module: nn.Module, kept: Tensor, about: Mapping[str, Any], name: str, into: Path) -> None:
    """Write a module's own weights, in as many files as it takes."""
    for old in into.glob(f"{name}-*.safetensors"):
        old.unlink()
    parts: list[dict[str, Tensor]] = [{"kept": kept.int()}]
    room = FILE - 4 * len(kept)
    for key, weight in module.state_dict().items():
        if "embed_tokens" in key:  # the model's own
            continue
        if weight.numel() > room:
            parts.append({})
            room = FILE
        parts[-1][key] = weight.float()
        room -= weight.numel() * (1 if weight.ndim == 2 else 4)
    for number, part in enumerate(parts, 1):
        file = into / f"{name}-{number}-of-{len(parts)}.safetensors"
        quantized_weights.save(part, about, file)
        file.chmod(0o644)  # safetensors writes for the owner alone


def read_back(module: nn.Module, name: str, folder: Path) -> None:
    """Put the weights into a module that were kept of it."""
    weights: dict[str, Tensor] = {}
    for file in sorted(folder.glob(f"{name}-*.safetensors")):
        weights |= quantized_weights.load(file)[0]
    weights.pop("kept")
    missing, unknown = module.load_state_dict(weights, strict=False)
    assert not unknown and all("embed_tokens" in key for key in missing), (missing, unknown)


def tell(told: Mapping[str, Any], name: str, into: Path) -> None:
    """Write what is told of a training beside what came of it."""
    (into / f"{name}-training.json").write_text(json.dumps(told, indent=1) + "\n")
