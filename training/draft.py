"""Trains what drafts for the embedded model, and measures how much of it the model keeps.

    python training/draft.py [--model smollm2] [--into models]

The model writes texts (``writing``, on the prompts of ``prompts``), a draft model of a few layers
and draft heads learn what it says there (``distilling``), both are kept in eight bits, read back
and held against texts of prompts they never saw (``measuring``). Texts, order and first weights
follow from the seed. Needs torch and transformers, and a GPU of 141 GB, or ``--tiny`` to see that
it works.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# The repository is run from its folder, it is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine import models, small_weights
from engine.attention import group
from engine.heads import Heads
from engine.model import Model

# isort: split
import torch
from torch import Tensor, nn

from training.distilling import (
    Course,
    batches,
    draft_loss,
    heads_loss,
    learn,
    small,
    states_of,
)
from training.measuring import acceptance, heads_acceptance
from training.prompts import Prompts
from training.writing import Writer, Written

FILE = 9_500_000  # bytes at most in one
NAME = "smollm2"


def main() -> None:
    options = _options()
    model = models.load(options.model, dtype="bfloat16")
    if model.device.type == "cuda":
        group(model.module)
    told: dict[str, Any] = {"settings": settings_told(options), "torch": torch.__version__}
    training, held_back = written(model, options)
    module: Any = model.module
    output = module.get_output_embeddings().weight.detach()
    kept, coverage = commonest(training, options.kept)
    told["tokens_written"] = sum(part.tokens.numel() for part in training)
    told["share_of_tokens_kept"] = round(coverage, 4)
    options.into.mkdir(exist_ok=True, parents=True)

    draft = small(model.module, options.layers)
    course = Course(options.step_texts, options.draft_steps, options.draft_rate)
    given = batches(training, course.texts, options.seed)
    told["draft_loss"] = learn(draft, draft_loss(draft, output[kept]), given, course)
    save(draft, kept, {"layers": len(options.layers)}, f"{NAME}-draft", options.into)
    read_back(draft, f"{NAME}-draft", options.into)
    told["draft_acceptance"] = acceptance(states_of(draft), kept, output, held_back)
    print(told["draft_acceptance"], flush=True)

    embedding = module.get_input_embeddings().weight.detach()
    about = {"inner": options.inner, "depth": options.depth, "layers": options.read}
    heads = Heads(embedding, output, kept, **about).to(model.device)
    heads.begin()
    course = Course(options.step_texts // 2, options.heads_steps, options.heads_rate)
    given = batches(training, course.texts, options.seed + 1)
    told["heads_loss"] = learn(heads, heads_loss(heads), given, course)
    save(heads, kept, about, f"{NAME}-heads", options.into)
    read_back(heads, f"{NAME}-heads", options.into)
    told["heads_acceptance"] = heads_acceptance(heads, output, held_back)
    print(told["heads_acceptance"], flush=True)
    (options.into / f"{NAME}-training.json").write_text(json.dumps(told, indent=1) + "\n")


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
        small_weights.save(part, about, file)
        file.chmod(0o644)  # safetensors writes for the owner alone


def read_back(module: nn.Module, name: str, folder: Path) -> None:
    """Put the weights into a module that were kept of it."""
    weights: dict[str, Tensor] = {}
    for file in sorted(folder.glob(f"{name}-*.safetensors")):
        weights |= small_weights.load(file)[0]
    weights.pop("kept")
    missing, unknown = module.load_state_dict(weights, strict=False)
    assert not unknown and all("embed_tokens" in key for key in missing), (missing, unknown)


def _options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--model", default=NAME)
    arguments.add_argument("--into", type=Path, default=Path(__file__).parents[1] / "models")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--parts", type=int, default=14, help="times that texts are written")
    arguments.add_argument("--texts", type=int, default=4096, help="written together")
    arguments.add_argument("--length", type=int, default=256)
    arguments.add_argument("--measured", type=int, default=1024, help="texts, held back")
    arguments.add_argument("--kept", type=int, default=8192, help="tokens that drafts may use")
    arguments.add_argument("--layers", type=int, nargs="+", default=[0, 15, 29])
    arguments.add_argument("--step-texts", type=int, default=128)
    arguments.add_argument("--draft-steps", type=int, default=2500)
    arguments.add_argument("--draft-rate", type=float, default=3e-3)
    arguments.add_argument("--read", type=int, nargs="+", default=[10, 20, 30], help="by heads")
    arguments.add_argument("--inner", type=int, default=1536)
    arguments.add_argument("--depth", type=int, default=4)
    arguments.add_argument("--heads-steps", type=int, default=5000)
    arguments.add_argument("--heads-rate", type=float, default=1e-3)
    arguments.add_argument("--tiny", action="store_true", help="to see that it works")
    options = arguments.parse_args()
    if options.tiny:
        few = {"parts": 1, "texts": 16, "length": 48, "measured": 8, "step_texts": 4}
        vars(options).update(few, draft_steps=4, heads_steps=4)
    return options


def settings_told(options: argparse.Namespace) -> dict[str, Any]:
    """What of the options says how something was trained."""
    return {key: value for key, value in vars(options).items() if key not in ("model", "into")}


if __name__ == "__main__":
    main()
