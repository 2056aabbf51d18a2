"""Speculative decoding with a draft model.

Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding"; Chen et al.
2023, "Accelerating Large Language Model Decoding with Speculative Sampling".
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.run import Run
from engine.settings import setting
from engine.strategy import Decoding, strategy
from strategies._drafting import Drafting, Pace, by_model
from strategies._speculation import speculate
from strategies.universal_speculative import by_respelling


@dataclass(frozen=True)
class Params(Drafting):
    """Who drafts, and how."""

    assistant_model: str | None = setting(
        None,
        "The draft model: an embedded one, a folder or a Hub id. Without one the draft that was "
        "trained for the model, if there is one; else, and where it is named itself, the model "
        "drafts for itself, which shows how it works and saves nothing.",
        kind=str,
    )


@strategy("speculative", order=9, params=Params, drafts=True, num_beams=1)
def speculative(run: Run, params: Params) -> Decoding:
    """Lets a small model write ahead and keeps what the large one agrees with.

    One pass of the large model judges a whole draft. The text is the one greedy decoding would
    give, or, drawn, one from the very distribution that sampling has.
    """
    pace = Pace(params)
    draft = by_respelling if run.draft.respelling.needed else by_model
    return speculate(run, draft(run, params, pace), do_sample=params.do_sample, heard=pace.heard)
