"""Trains a draft model and Medusa heads for the embedded model, and measures their acceptance.

    python training/draft.py [--model smollm2] [--into models]

The model writes texts (``corpus``, from the prompts in ``prompts``). A draft model of a few layers
and draft heads are distilled from its distributions there (``distillation``), saved as int8, read
back and evaluated on texts of held-out prompts (``evaluation``). Texts, their order and the initial
weights are determined by the seed. Needs torch and transformers and a GPU with 141 GB; ``--tiny``
is a quick trial run on any machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

# The scripts run from the repository, which is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.drafting.heads import Heads
from training.common import (
    NAME,
    TINY,
    argument_parser,
    load_weights,
    prepare,
    save_report,
    save_weights,
)
from training.distillation import (
    Schedule,
    batches,
    draft_from_layers,
    draft_loss,
    draft_states,
    heads_loss,
    train,
)
from training.evaluation import acceptance, heads_acceptance


def main() -> None:
    options = _options()
    model, training, held_out, output, kept, report = prepare(options)

    draft = draft_from_layers(model.module, options.layers)
    schedule = Schedule(options.step_texts, options.draft_steps, options.draft_rate)
    data = batches(training, schedule.texts, options.seed)
    report["draft_loss"] = train(draft, draft_loss(draft, output[kept]), data, schedule)
    save_weights(draft, kept, {"layers": len(options.layers)}, f"{NAME}-draft", options.into)
    load_weights(draft, f"{NAME}-draft", options.into)
    report["draft_acceptance"] = acceptance(draft_states(draft), kept, output, held_out)
    print(report["draft_acceptance"], flush=True)

    module: Any = model.module
    embedding = module.get_input_embeddings().weight.detach()
    about = {"inner": options.inner, "depth": options.depth, "layers": options.read}
    heads = Heads(embedding, output, kept, **about).to(model.device)
    heads.reset()
    schedule = Schedule(options.step_texts // 2, options.heads_steps, options.heads_rate)
    data = batches(training, schedule.texts, options.seed + 1)
    report["heads_loss"] = train(heads, heads_loss(heads), data, schedule)
    save_weights(heads, kept, about, f"{NAME}-heads", options.into)
    load_weights(heads, f"{NAME}-heads", options.into)
    report["heads_acceptance"] = heads_acceptance(heads, output, held_out)
    print(report["heads_acceptance"], flush=True)
    save_report(report, NAME, options.into)


def _options() -> argparse.Namespace:
    parser = argument_parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--layers", type=int, nargs="+", default=[0, 15, 29], help="initial layers of the draft"
    )
    parser.add_argument("--draft-steps", type=int, default=2500)
    parser.add_argument("--draft-rate", type=float, default=3e-3)
    parser.add_argument(
        "--read", type=int, nargs="+", default=[10, 20, 30], help="layers that the heads read"
    )
    parser.add_argument("--inner", type=int, default=1536, help="inner width of a head")
    parser.add_argument("--depth", type=int, default=4, help="number of heads")
    parser.add_argument("--heads-steps", type=int, default=5000)
    parser.add_argument("--heads-rate", type=float, default=1e-3)
    options = parser.parse_args()
    if options.tiny:
        vars(options).update(TINY, draft_steps=4, heads_steps=4)
    return options


if __name__ == "__main__":
    main()
