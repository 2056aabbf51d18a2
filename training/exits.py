"""Trains exits behind the embedded model's first layers, and measures how often they are right.

    python training/exits.py [--model smollm2] [--exits 2 4 8] [--into models]

An exit makes of the state after some layers what the model would say in the end. All learn together
from the same texts as other drafts do (``writing``), are kept in eight bits, read back and held
against texts of prompts they never saw. What one gives at most follows from how often it is right,
and from how much of the model it runs for a token: passes that judge several tokens are taken to
cost no more than for one, and nothing else to cost anything. Needs torch and transformers, and a
GPU of 141 GB, or ``--tiny`` to see that it works.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The repository is run from its folder, it is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.drafting.exits import Exit
from training.distilling import Batch, Course, batches, learn, unlike
from training.lesson import FEW, NAME, arguments, begun, read_back, save, tell
from training.measuring import acceptance

# isort: split
import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

LONGEST = 8  # tokens of a draft that are thought of


def main() -> None:
    options = _options()
    model, training, held_back, output, kept, told = begun(options)
    module: Any = model.module
    norm = module.base_model.norm
    exits = nn.ModuleDict({str(layers): Exit(norm, options.inner) for layers in options.exits})
    course = Course(options.step_texts, options.steps, options.rate)
    given = batches(training, course.texts, options.seed)
    told["loss"] = learn(exits, exits_loss(exits, output[kept]), given, course)
    save(exits, kept, {"inner": options.inner}, f"{NAME}-exits", options.into)
    read_back(exits, f"{NAME}-exits", options.into)
    told["acceptance"] = {}
    for place, (layers, leaving) in enumerate(exits.items()):
        right = acceptance(_behind(leaving, place), kept, output, held_back)
        cost = share(module, int(layers), leaving, output[kept])
        faster, length = at_most(right["greedy"], cost)
        estimate = {"cost": round(cost, 3), "at_most": faster, "with_drafts_of": length}
        told["acceptance"][layers] = {**right, **estimate}
        print(layers, told["acceptance"][layers], flush=True)
    tell(told, f"{NAME}-exits", options.into)


def _behind(leaving: nn.Module, place: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda tokens, states: leaving(states[:, :, place])


def exits_loss(exits: nn.ModuleDict, output: Tensor) -> Callable[[Batch], Tensor]:
    """How unlike the model exits are that read its states, the first the first of them, and so on:
    all together."""

    def loss(batch: Batch) -> Tensor:
        states = enumerate(exits.values())
        losses = [
            unlike(linear(leaving(batch.states[:, :, place]), output), batch, output)
            for place, leaving in states
        ]
        return torch.stack(losses).mean()

    return loss


def share(model: PreTrainedModel, layers: int, leaving: nn.Module, output: Tensor) -> float:
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
    known = arguments(__doc__.splitlines()[0])
    known.add_argument("--exits", type=int, nargs="+", default=[2, 4, 8], help="after layers")
    known.add_argument("--inner", type=int, default=2048)
    known.add_argument("--steps", type=int, default=5000)
    known.add_argument("--rate", type=float, default=4e-3)
    options = known.parse_args()
    if options.tiny:
        vars(options).update(FEW, steps=4)
    options.read = [*options.exits, -1]
    return options


if __name__ == "__main__":
    main()
