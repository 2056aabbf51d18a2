"""Trains early exits for the embedded model's first layers, and measures how often they are right.

    python training/exits.py [--model smollm2] [--exits 2 4 8] [--into models]

An exit predicts the model's final distribution from the state after some layers. All exits are
distilled together from the same texts as the other drafters (``corpus``), saved as int8, read back
and evaluated on texts of held-out prompts. The report includes an upper bound of the speed-up, from
the accuracy of an exit and the share of the model's weights it reads per token; it assumes that
verifying several tokens costs as much as one, and that nothing else takes time. Needs torch and
transformers and a GPU with 141 GB; ``--tiny`` is a quick trial run on any machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The scripts run from the repository, which is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from engine.drafting.exits import Exit
from training.common import (
    NAME,
    TINY,
    argument_parser,
    load_weights,
    prepare,
    save_report,
    save_weights,
)
from training.distillation import Batch, Schedule, batches, distillation_loss, train
from training.evaluation import acceptance

LONGEST = 8  # drafted tokens per round considered for the upper bound


def main() -> None:
    options = _options()
    model, training, held_out, output, kept, report = prepare(options)
    module: Any = model.module
    norm = module.base_model.norm
    exits = nn.ModuleDict({str(layers): Exit(norm, options.inner) for layers in options.exits})
    schedule = Schedule(options.step_texts, options.steps, options.rate)
    data = batches(training, schedule.texts, options.seed)
    report["loss"] = train(exits, exits_loss(exits, output[kept]), data, schedule)
    save_weights(exits, kept, {"inner": options.inner}, f"{NAME}-exits", options.into)
    load_weights(exits, f"{NAME}-exits", options.into)
    report["acceptance"] = {}
    for place, (layers, exit) in enumerate(exits.items()):
        measured = acceptance(_exit_states(exit, place), kept, output, held_out)
        cost = relative_cost(module, int(layers), exit, output[kept])
        speed_up, length = upper_bound(measured["greedy"], cost)
        estimate = {"cost": round(cost, 3), "at_most": speed_up, "with_drafts_of": length}
        report["acceptance"][layers] = {**measured, **estimate}
        print(layers, report["acceptance"][layers], flush=True)
    save_report(report, f"{NAME}-exits", options.into)


def _exit_states(exit: nn.Module, place: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda tokens, states: exit(states[:, :, place])


def exits_loss(exits: nn.ModuleDict, output: Tensor) -> Callable[[Batch], Tensor]:
    """Return the mean loss of all exits; exit number i reads the states at index i."""

    def loss(batch: Batch) -> Tensor:
        losses = [
            distillation_loss(linear(exit(batch.states[:, :, place]), output), batch, output)
            for place, exit in enumerate(exits.values())
        ]
        return torch.stack(losses).mean()

    return loss


def relative_cost(model: PreTrainedModel, layers: int, exit: nn.Module, output: Tensor) -> float:
    """Return the weights read per drafted token as a share of those of a whole forward pass."""
    body: Any = model.base_model
    layer = _size(body.layers[0])
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers has no types here
    whole = layer * len(body.layers) + _size(head)
    return (layer * layers + _size(exit) + output.numel()) / whole


def upper_bound(accuracy: float, cost: float) -> tuple[float, int]:
    """Return the largest possible speed-up over plain decoding, and the draft length for it."""
    found = []
    for length in range(1, LONGEST + 1):
        tokens = sum(accuracy**place for place in range(length + 1))  # expected per round
        found.append((round(tokens / (1 + length * cost), 3), length))
    return max(found)


def _size(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def _options() -> argparse.Namespace:
    parser = argument_parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--exits", type=int, nargs="+", default=[2, 4, 8], help="layers before each exit"
    )
    parser.add_argument("--inner", type=int, default=2048, help="inner width of an exit")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=4e-3)
    options = parser.parse_args()
    if options.tiny:
        vars(options).update(TINY, steps=4)
    options.read = [*options.exits, -1]
    return options


if __name__ == "__main__":
    main()
