"""Self-speculative decoding: the model's own first layers draft.

Elhoushi et al. 2024, "LayerSkip: Enabling Early Exit Inference and Self-Speculative Decoding".
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.run import Run
from engine.settings import setting
from engine.strategy import Decoding, strategy
from strategies._drafting import DraftingParams, DraftLength, draft_with_model
from strategies.speculative import speculate


@dataclass(frozen=True)
class Params(DraftingParams):
    """The exit layer, and how it drafts."""

    assistant_early_exit: int | None = setting(
        None,
        "The number of layers that draft. By default the fastest with a trained exit, or half of "
        "the layers.",
        kind=int,
        low=1,
    )
    trained_exit: bool = setting(
        True,
        "Use a trained exit where there is one: smollm2 after 2, 4 and 8 layers. Otherwise the "
        "model's own last norm and output matrix follow the layers, as in transformers.",
    )


@strategy("early_exit", order=11, params=Params, drafts=True, decoder_only=True, num_beams=1)
def early_exit(run: Run, params: Params) -> Decoding:
    """Drafts tokens with the model's first layers and keeps those that the whole model accepts.

    Needs no second model: both share weights and cache. Faster only with a trained exit, or with
    layers trained for early exit; otherwise few tokens are accepted.
    """
    length = DraftLength(params)
    draft = draft_with_model(run, params, length)
    return speculate(run, draft, do_sample=params.do_sample, on_round=length.update)
