"""Token for token what transformers 4.51.3 wrote with the embedded model, in float32."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from playground import Playground
from tests.tiny import assert_same_tokens

CASES = json.loads((Path(__file__).parent / "golden.json").read_text())["cases"]


def choice(case: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The strategy transformers would pick for a case's settings."""
    settings = dict(case["config"])
    sampled = settings.pop("do_sample", False)
    if settings.get("num_beams", 1) > 1:
        return ("beam_sample" if sampled else "beam_search"), settings
    return ("sample" if sampled else "greedy"), settings


def batches() -> list[list[dict[str, Any]]]:
    """Cases that can run together, six at a time: that is what comparing is for."""
    together = []
    for _, same in groupby(sorted(CASES, key=lambda case: case["prompt"]), lambda c: c["prompt"]):
        cases = list(same)
        together += [cases[at : at + 6] for at in range(0, len(cases), 6)]
    return together


@pytest.mark.parametrize("cases", batches(), ids=lambda cases: "-".join(c["case"] for c in cases))
def test_a_comparison_writes_what_each_strategy_writes_alone(
    cases: list[dict[str, Any]], embedded: Playground
) -> None:
    first = cases[0]
    traces = embedded.compare(
        first["prompt"],
        [choice(case) for case in cases],
        max_new_tokens=first["max_new_tokens"],
        seed=first["seed"],
    )
    for case, trace in zip(cases, traces, strict=True):
        assert trace.error is None
        assert [token.id for token in trace.prompt_tokens] == case["input_ids"]
        assert_same_tokens(trace, case["sequences"])
        assert [sequence.text for sequence in trace.sequences] == case["texts"]
        if scores := case.get("sequences_scores"):
            # Another machine's float32: equal to five digits.
            reported = [sequence.score for sequence in trace.sequences]
            assert reported == pytest.approx(scores, rel=1e-4)
