"""Self-speculative decoding: the model's own first layers draft.

Elhoushi et al. 2024, "LayerSkip: Enabling Early Exit Inference and Self-Speculative Decoding".
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.run import Run
from engine.settings import setting
from engine.strategy import Decoding, strategy
from strategies._drafting import Drafting, Pace, by_model
from strategies._speculation import speculate


@dataclass(frozen=True)
class Params(Drafting):
    """After how many layers the draft leaves the model, and how it drafts."""

    assistant_early_exit: int | None = setting(
        None,
        "How many of the model's layers draft; without a number, as many as pay with an exit that "
        "was trained, or else half of them.",
        kind=int,
        low=1,
    )
    trained_exit: bool = setting(
        True,
        "Leave the layers by what was trained to follow them, where something was: smollm2 behind "
        "2, 4 and 8. Else by the model's own last norm and output matrix, as in transformers.",
    )


@strategy("early_exit", order=11, params=Params, drafts=True, decoder_only=True, num_beams=1)
def early_exit(run: Run, params: Params) -> Decoding:
    """Lets the model's first layers write ahead and keeps what the whole model agrees with.

    Needs no second model: both share weights and cache. Pays only where something was trained to
    follow the layers, or they themselves to be left early; elsewhere few drafts are kept.
    """
    pace = Pace(params)
    return speculate(run, by_model(run, params, pace), do_sample=params.do_sample, heard=pace.heard)
