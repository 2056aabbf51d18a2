"""Speculative decoding with a draft model that has another tokenizer.

Timor et al. 2025, "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for
Heterogeneous Vocabularies": the draft is decoded to text and tokenized for the target.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.run import Run
from engine.settings import setting
from engine.strategy import Decoding, strategy
from strategies._drafting import DraftingParams, DraftLength, draft_across_tokenizers
from strategies.speculative import speculate


@dataclass(frozen=True)
class Params(DraftingParams):
    """The draft model, and how it drafts."""

    assistant_model: str = setting(
        "stories15m", "The draft model: an embedded one, a folder or a Hub id."
    )


@strategy(
    "universal_speculative", order=12, params=Params, drafts=True, decoder_only=True, num_beams=1
)
def universal_speculative(run: Run, params: Params) -> Decoding:
    """Speculative decoding with a draft model of any vocabulary.

    The draft is passed on as text and tokenized for the large model.
    """
    length = DraftLength(params)
    draft = draft_across_tokenizers(run, params, length)
    return speculate(run, draft, do_sample=params.do_sample, on_round=length.update)
