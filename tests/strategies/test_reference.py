"""Token for token what transformers 4.51.3 wrote with the tiny models, where later ones cannot."""

import json
from typing import Any

import pytest

from playground import Playground
from tests.strategies.make_reference import REFERENCE
from tests.tiny import tiny

CASES = json.loads(REFERENCE.read_text())


def ended(ids: list[int], ends: list[int]) -> list[int]:
    """Tokens up to the end; transformers 4 writes the first end token in place of any other."""
    at = next((at for at, id in enumerate(ids) if id in ends), None)
    return ids if at is None else [*ids[:at], ends[0]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['strategy']}-{case['kind']}")
def test_tokens_and_scores_equal_those_of_transformers_4(case: dict[str, Any]) -> None:
    [trace] = Playground(tiny(case["kind"])).compare(
        case["prompt"], [(case["strategy"], case["settings"])]
    )
    assert trace.error is None
    assert len(trace.sequences) == len(case["sequences"])
    ends = case["settings"].get("eos_token_id", [2])
    scores = case["scores"] or [sequence.score for sequence in trace.sequences]
    for sequence, ids, score in zip(trace.sequences, case["sequences"], scores, strict=True):
        # Another version sums in another order, and T5's logits are large.
        assert sequence.score == (score if score is None else pytest.approx(score, rel=1e-3))
        if score is not None:  # excluded texts have no score
            assert ended(list(sequence.token_ids), ends) == ended(ids, ends)
