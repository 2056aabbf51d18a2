"""Whether a token is green, according to a processor that is in use."""

from __future__ import annotations

import pytest
import torch
from transformers import WatermarkLogitsProcessor

from engine.watermark import green_list

VOCABULARY = 60


@pytest.mark.parametrize("scheme", ["lefthash", "selfhash"])
def test_tokens_are_green_that_the_processor_raises(scheme: str) -> None:
    processor = WatermarkLogitsProcessor(
        VOCABULARY, "cpu", greenlist_ratio=0.4, bias=5.0, seeding_scheme=scheme, context_width=2
    )
    prefix = [7, 3, 11]
    scores = torch.zeros(1, VOCABULARY)
    scores[0, :30] = torch.arange(30, 0, -1)  # selfhash tries the most probable tokens only
    raised = processor(torch.tensor([prefix]), scores) > scores
    for token in range(30):
        assert green_list.is_green(processor, prefix, token) == raised[0, token], token
    assert green_list.is_green(processor, [7], 3) is None


def test_the_processor_is_not_built_again_and_its_generator_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Its table of a million numbers takes longer than everything else.
    processor = WatermarkLogitsProcessor(VOCABULARY, "cpu")
    state = processor.rng.get_state()
    monkeypatch.setattr(green_list, "WatermarkLogitsProcessor", None)
    green_list.is_green(processor, [1, 2], 3)
    assert torch.equal(processor.rng.get_state(), state)
