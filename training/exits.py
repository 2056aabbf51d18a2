"""Trains exits behind the embedded model's first layers, and measures whether they would pay.

    python training/exits.py [--model smollm2] [--exits 3 6 10 15] [--json FILE]

An exit makes of the state after some layers what the model would say in the end. All learn from the
same texts as other drafts do (``writing``), and are held against texts of prompts they never saw.
What one would give at most follows from how often it is right, and from how much of the model it
runs for a token: passes that judge several tokens are taken to cost no more than for one, and
nothing else to cost anything. Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

# The repository is run from its folder, it is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine import models
from engine.attention import group

# isort: split
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu
from transformers import PreTrainedModel

from training.distilling import Batch, Course, batches, learn, unlike
from training.draft import commonest, written
from training.measuring import TEXTS, Mean
from training.writing import Written, fresh

LONGEST = 8  # tokens of a draft that are thought of


class Exit(nn.Module):
    """What follows the layers that are run: it begins as the model's own norm."""

    def __init__(self, model: PreTrainedModel, inner: int) -> None:
        super().__init__()
        theirs: Any = model.base_model
        width, norm = model.config.hidden_size, theirs.norm
        self.before = nn.RMSNorm(width, norm.variance_epsilon)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.after = nn.RMSNorm(width, norm.variance_epsilon)
        nn.init.zeros_(self.down.weight)
        self.to(norm.weight.device)
        self.after.load_state_dict({"weight": norm.weight.float()})

    def forward(self, states: Tensor) -> Tensor:
        """(…, width) after some layer to (…, width) that the output matrix reads."""
        states = states.float()
        own: Tensor = self.after(states + self.down(silu(self.up(self.before(states)))))
        return own


class Paying(NamedTuple):
    """What an exit is worth."""

    layers: int
    greedy: float  # how often it names the model's own most probable token
    new: float  # the same where texts do not repeat themselves
    cost: float  # of a drafted token, in passes of the model
    faster: float  # at most
    length: int  # with drafts of so many tokens


def main() -> None:
    options = _options()
    gpu = torch.cuda.is_available()
    model = models.load(options.model, dtype="bfloat16" if gpu else "float32")
    if gpu:
        group(model.module)
    module: Any = model.module
    training, held_back = written(model, options)
    output = module.get_output_embeddings().weight.detach()
    kept, _ = commonest(training, options.kept)
    found = []
    for place, layers in enumerate(options.exits):
        leaving = Exit(module, options.inner)
        course = Course(options.step_texts, options.steps, options.rate)
        given = batches(training, course.texts, options.seed)
        learn(leaving, exit_loss(leaving, place, output[kept]), given, course)
        greedy, new = named(leaving, place, kept, output, held_back)
        cost = share(module, layers, leaving, output[kept])
        found.append(Paying(layers, greedy, new, round(cost, 3), *at_most(greedy, cost)))
        print(found[-1]._asdict(), flush=True)
    if options.json:
        told = [each._asdict() for each in found]
        options.json.write_text(json.dumps(told, indent=1) + "\n")


def exit_loss(leaving: Exit, place: int, output: Tensor) -> Callable[[Batch], Tensor]:
    """How unlike the model an exit is that reads the states at some place."""
    return lambda batch: unlike(linear(leaving(batch.states[:, :, place]), output), batch, output)


@torch.inference_mode()
def named(
    leaving: Exit, place: int, kept: Tensor, output: Tensor, texts: Written
) -> tuple[float, float]:
    """How often an exit names what the model takes in greedy texts, and where these are new."""
    greedy, new = Mean(), Mean()
    for at in range(0, len(texts.tokens), TEXTS):
        tokens, states, starts, is_greedy = (part[at : at + TEXTS] for part in texts)
        drafted = kept[linear(leaving(states[:, :, place]), output[kept].float()).argmax(-1)]
        right = drafted == linear(states[:, :, -1], output).argmax(-1)
        answer = torch.arange(tokens.shape[1], device=tokens.device) >= starts[:, None]
        answer &= is_greedy[:, None]
        greedy.add(right, answer)
        new.add(right, answer & fresh(tokens))
    return greedy.rounded, new.rounded


def share(model: PreTrainedModel, layers: int, leaving: Exit, output: Tensor) -> float:
    """What a token costs there, as a share of a pass: of the weights that are read for it."""
    body: Any = model.base_model
    layer = _size(body.layers[0])
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers has no types here
    whole = layer * len(body.layers) + _size(head)
    return (layer * layers + _size(leaving) + output.numel()) / whole


def at_most(right: float, cost: float) -> tuple[float, int]:
    """How many times as fast as plain decoding one can be with drafts of some length, and which."""
    found = []
    for length in range(1, LONGEST + 1):
        tokens = sum(right**at for at in range(length + 1))  # that a pass gives
        found.append((round(tokens / (1 + length * cost), 3), length))
    return max(found)


def _size(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def _options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--model", default="smollm2")
    arguments.add_argument("--exits", type=int, nargs="+", default=[3, 6, 10, 15])
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--parts", type=int, default=2, help="times that texts are written")
    arguments.add_argument("--texts", type=int, default=192, help="written together")
    arguments.add_argument("--length", type=int, default=160)
    arguments.add_argument("--measured", type=int, default=128, help="texts, held back")
    arguments.add_argument("--kept", type=int, default=8192, help="tokens that drafts may use")
    arguments.add_argument("--inner", type=int, default=1536)
    arguments.add_argument("--step-texts", type=int, default=12)
    arguments.add_argument("--steps", type=int, default=160)
    arguments.add_argument("--rate", type=float, default=1e-3)
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    options.read = [*options.exits, -1]
    return options


if __name__ == "__main__":
    main()
