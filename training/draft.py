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
import sys
from pathlib import Path
from typing import Any

# The repository is run from its folder, it is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.drafting.heads import Heads
from training.distilling import Course, batches, draft_loss, heads_loss, learn, small, states_of
from training.lesson import FEW, NAME, arguments, begun, read_back, save, tell
from training.measuring import acceptance, heads_acceptance


def main() -> None:
    options = _options()
    model, training, held_back, output, kept, told = begun(options)

    draft = small(model.module, options.layers)
    course = Course(options.step_texts, options.draft_steps, options.draft_rate)
    given = batches(training, course.texts, options.seed)
    told["draft_loss"] = learn(draft, draft_loss(draft, output[kept]), given, course)
    save(draft, kept, {"layers": len(options.layers)}, f"{NAME}-draft", options.into)
    read_back(draft, f"{NAME}-draft", options.into)
    told["draft_acceptance"] = acceptance(states_of(draft), kept, output, held_back)
    print(told["draft_acceptance"], flush=True)

    module: Any = model.module
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
    tell(told, NAME, options.into)


def _options() -> argparse.Namespace:
    known = arguments(__doc__.splitlines()[0])
    known.add_argument("--layers", type=int, nargs="+", default=[0, 15, 29])
    known.add_argument("--draft-steps", type=int, default=2500)
    known.add_argument("--draft-rate", type=float, default=3e-3)
    known.add_argument("--read", type=int, nargs="+", default=[10, 20, 30], help="by heads")
    known.add_argument("--inner", type=int, default=1536)
    known.add_argument("--depth", type=int, default=4)
    known.add_argument("--heads-steps", type=int, default=5000)
    known.add_argument("--heads-rate", type=float, default=1e-3)
    options = known.parse_args()
    if options.tiny:
        vars(options).update(FEW, draft_steps=4, heads_steps=4)
    return options


if __name__ == "__main__":
    main()
