"""What the training scripts share: options, the texts to train on, and the files in ``models/``."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from engine.accel.grouped_attention import group
from engine.models import loading, quantized_weights
from engine.models.model import Model
from training.corpus import TextGenerator, Texts
from training.prompts import Prompts

MAX_FILE_BYTES = 9_500_000
NAME = "smollm2"
TINY = {"parts": 1, "texts": 16, "length": 48, "measured": 8, "step_texts": 4}  # for ``--tiny``


class TrainingData(NamedTuple):
    """The target model, its texts, and the report so far."""

    model: Model
    training: list[Texts]
    held_out: Texts
    output: Tensor  # (vocabulary, width) the model's output matrix
    kept: Tensor  # (kept,) the tokens that drafters may use, most frequent first
    report: dict[str, Any]


def prepare(options: argparse.Namespace) -> TrainingData:
    """Load the model and let it write the training texts."""
    model = loading.load(options.model, dtype="bfloat16")
    if model.device.type == "cuda":
        group(model.module)
    training, held_out = generate_texts(model, options)
    kept, coverage = most_frequent_tokens(training, options.kept)
    settings = {key: value for key, value in vars(options).items() if key not in ("model", "into")}
    report = {
        "settings": settings,
        "torch": torch.__version__,
        "tokens_written": sum(part.tokens.numel() for part in training),
        "share_of_tokens_kept": round(coverage, 4),
    }
    module: Any = model.module
    output = module.get_output_embeddings().weight.detach()
    options.into.mkdir(exist_ok=True, parents=True)
    return TrainingData(model, training, held_out, output, kept, report)


def argument_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every training script."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default=NAME)
    parser.add_argument("--into", type=Path, default=Path(__file__).parents[1] / "models")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parts", type=int, default=14, help="batches of texts to generate")
    parser.add_argument("--texts", type=int, default=4096, help="texts per batch")
    parser.add_argument("--length", type=int, default=256, help="tokens per text")
    parser.add_argument("--measured", type=int, default=1024, help="texts for the evaluation")
    parser.add_argument("--kept", type=int, default=8192, help="vocabulary size of the drafters")
    parser.add_argument("--step-texts", type=int, default=128, help="texts per training step")
    parser.add_argument("--tiny", action="store_true", help="a quick trial run")
    return parser


def generate_texts(model: Model, options: argparse.Namespace) -> tuple[list[Texts], Texts]:
    """Generate the texts for training and, from held-out prompts, those for evaluation."""
    generator = TextGenerator(
        model.module, options.texts, options.length, options.read, options.seed
    )
    sources = [
        Prompts(model.tokenizer, options.seed + held_out, held_out=held_out)
        for held_out in (False, True)
    ]
    parts = []
    for number in range(options.parts + 1):
        start = time.perf_counter()
        source = sources[number == options.parts]
        parts.append(generator.generate([source.draw() for _ in range(options.texts)]))
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        print(f"part {number + 1} generated in {time.perf_counter() - start:.1f} s", flush=True)
    *training, held_out = parts
    return training, Texts(*(part[: options.measured] for part in held_out))


def most_frequent_tokens(training: list[Texts], count: int) -> tuple[Tensor, float]:
    """Return the most frequent tokens, and their share of all tokens."""
    counts = sum(part.tokens.flatten().bincount(minlength=1 << 16) for part in training)
    assert isinstance(counts, Tensor)
    kept = counts.argsort(descending=True, stable=True)[:count]
    return kept, float(counts[kept].sum() / counts.sum())


def save_weights(
    module: nn.Module, kept: Tensor, about: Mapping[str, Any], name: str, into: Path
) -> None:
    """Save a module's own weights, split into files below the size limit."""
    for old in into.glob(f"{name}-*.safetensors"):
        old.unlink()
    parts: list[dict[str, Tensor]] = [{"kept": kept.int()}]
    room = MAX_FILE_BYTES - 4 * len(kept)
    for key, weight in module.state_dict().items():
        if "embed_tokens" in key:  # shared with the target model
            continue
        if weight.numel() > room:
            parts.append({})
            room = MAX_FILE_BYTES
        parts[-1][key] = weight.float()
        room -= weight.numel() * (1 if weight.ndim == 2 else 4)
    for number, part in enumerate(parts, 1):
        file = into / f"{name}-{number}-of-{len(parts)}.safetensors"
        quantized_weights.save(part, about, file)
        file.chmod(0o644)  # safetensors makes files private


def load_weights(module: nn.Module, name: str, folder: Path) -> None:
    """Load the saved, quantized weights into a module."""
    weights: dict[str, Tensor] = {}
    for file in sorted(folder.glob(f"{name}-*.safetensors")):
        weights |= quantized_weights.load(file)[0]
    weights.pop("kept")
    missing, unknown = module.load_state_dict(weights, strict=False)
    assert not unknown and all("embed_tokens" in key for key in missing), (missing, unknown)


def save_report(report: Mapping[str, Any], name: str, into: Path) -> None:
    """Write settings, loss curves and acceptance rates beside the weights."""
    (into / f"{name}-training.json").write_text(json.dumps(report, indent=1) + "\n")
