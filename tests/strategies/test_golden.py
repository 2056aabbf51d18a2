"""Token for token what transformers 4.51.3 wrote with the embedded model, in float32."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.watermark.detector import detect
from playground import Limits, Playground
from tests.tiny import assert_same_tokens

SIGNS = {
    "num_beam_groups": "diverse_beam_search",
    "force_words_ids": "constrained_beam_search",
    "penalty_alpha": "contrastive_search",
    "dola_layers": "dola",
    "prompt_lookup_num_tokens": "prompt_lookup",
    "assistant_early_exit": "early_exit",
}
CASES = json.loads((Path(__file__).parent / "golden.json").read_text())["cases"]


def choice(case: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The strategy transformers would pick for a case's settings."""
    settings = dict(case["config"])
    if "assistant_early_exit" in settings:
        # Drafts do not change the text, and shorter drafts take less time here.
        settings |= {"num_assistant_tokens": 2, "num_assistant_tokens_schedule": "constant"}
    for sign, strategy in SIGNS.items():
        if sign in settings:
            return strategy, settings
    sampled = settings.pop("do_sample", False)
    if settings.get("num_beams", 1) > 1:
        return ("beam_sample" if sampled else "beam_search"), settings
    return ("sample" if sampled else "greedy"), settings


PROMPTS = list(dict.fromkeys(case["prompt"] for case in CASES))


# Without accelerations one prompt, with every strategy: three would take minutes.
@pytest.mark.parametrize(
    ("prompt", "accel"), [*((prompt, "on") for prompt in PROMPTS), (PROMPTS[0], "off")]
)
def test_a_comparison_gives_the_tokens_of_transformers_with_and_without_accelerations(
    prompt: str, accel: str, embedded: Playground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAYGROUND_ACCEL", accel)
    # In one comparison, in which all runs share forward passes.
    cases = [case for case in CASES if case["prompt"] == prompt]
    first = cases[0]
    lab = Playground(embedded.model, limits=Limits(strategies=len(cases)))
    assert ("fused layers" in lab.backend_status.accelerations) == (accel == "on")
    traces = lab.compare(
        prompt,
        [choice(case) for case in cases],
        max_new_tokens=first["max_new_tokens"],
        seed=first["seed"],
    )
    for case, trace in zip(cases, traces, strict=True):
        assert trace.error is None, case["case"]
        assert [token.id for token in trace.prompt_tokens] == case["input_ids"]
        # 4.51.3 let a lookup's last draft run past max_new_tokens; later versions cut it there.
        length = case["max_new_tokens"]
        assert_same_tokens(trace, [tokens[:length] for tokens in case["sequences"]])
        for sequence, text in zip(trace.sequences, case["texts"], strict=True):
            assert text.startswith(sequence.text)
        if scores := case.get("sequences_scores"):
            # Computed on another machine: float32 scores agree to five digits.
            reported = [sequence.score for sequence in trace.sequences]
            assert reported == pytest.approx(scores, rel=1e-4)


MARKED = [case for case in CASES if "detection" in case]


@pytest.mark.parametrize("case", MARKED, ids=lambda case: f"{case['case']}-{case['prompt'][:9]}")
def test_a_watermark_is_found_with_the_same_figures(
    case: dict[str, Any], embedded: Playground
) -> None:
    mark = dict(case["config"]["watermarking_config"])
    scheme = mark.pop("seeding_scheme")
    found = detect(embedded.model, case["sequences"][0], scheme=scheme, **mark)
    theirs = {name: value[0] for name, value in case["detection"].items()}
    assert (found.tokens_scored, found.green_tokens, found.marked) == (
        theirs["num_tokens_scored"],
        theirs["num_green_tokens"],
        theirs["prediction"],
    )
    assert found.green_fraction == pytest.approx(theirs["green_fraction"])
    assert found.z_score == pytest.approx(theirs["z_score"])
    assert found.p_value == pytest.approx(theirs["p_value"], abs=1e-12)
