"""Speculative decoding gives the model's own text and records every drafted token."""

import math
from collections import Counter, defaultdict
from itertools import product
from typing import Any

import pytest
import torch

from engine.trace import EVENTS, Step, Trace
from playground import Limits, Playground
from tests.draft_models import draft, readable
from tests.tiny import generate, tiny

PROMPT = "Hello there, hello"
SURE = {"assistant_confidence_threshold": 0.0}
DRAFTED, OWN = ("accepted", "rejected", "ignored"), ("chosen", "resampled", "bonus")
ENCODER_DECODERS = ["t5", "bart"]
FURTHER = ["gpt2", "qwen3", "gemma2", "mistral-short-window", *ENCODER_DECODERS]
SHARED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "repetition": {"repetition_penalty": 1.4},
    "n-grams": {"no_repeat_ngram_size": 2},
    "end tokens": {"eos_token_id": [2, *range(60, 80)]},
    "no end": {"min_new_tokens": 12, "eos_token_id": [2, *range(60, 120)]},
    "bias": {"sequence_bias": [[[41], 4.0], [[70, 71], -3.0]]},
    "watermark": {"watermarking_config": {"greenlist_ratio": 0.25, "bias": 2.5}},
}


def drafters(kind: str, **settings: Any) -> list[tuple[str, dict[str, Any]]]:
    """Every way to draft for a tiny model."""
    models = [None, *(draft(kind, how) for how in ("good", "bad", "adversarial"))]
    ways = [("speculative", {**settings, "assistant_model": model}) for model in models]
    ways += [("speculative", {**SURE, **settings, "num_assistant_tokens": 5})]
    own = {name: settings[name] for name in ("do_sample", "top_k") if name in settings}
    ways += [("prompt_lookup", own), ("prompt_lookup", {**own, "max_matching_ngram_size": 1})]
    if kind not in ENCODER_DECODERS:
        ways += [("early_exit", settings), ("early_exit", {**SURE, **settings})]
        ways += [("universal_speculative", {**settings, "assistant_model": readable(True)})]
    return ways


def compare(kind: str, choices: list[Any], prompt: str = PROMPT, **shared: Any) -> list[Trace]:
    lab = Playground(tiny(kind), limits=Limits(strategies=20))
    traces = lab.compare(prompt, choices, **{"max_new_tokens": 20, **shared})
    assert [trace.error for trace in traces] == [None] * len(choices)
    return traces


def fates(trace: Trace) -> Counter[str]:
    return Counter(step.notes["verdict"] for step in trace.steps)


def rounds(trace: Trace) -> dict[int, list[Step]]:
    """The steps of each round, drafted ones first, in the order of the text."""
    found = defaultdict(list)
    for step in sorted(trace.steps, key=lambda step: len(trace.path(step.id))):
        found[step.notes["round"]].append(step)
    return {
        number: sorted(of, key=lambda s: s.notes["verdict"] in OWN) for number, of in found.items()
    }


@pytest.mark.parametrize(
    ("kind", "name"),
    [*product(["llama"], SHARED), *product(FURTHER, ["nothing", "n-grams", "no end"])],
)
def test_every_drafter_gives_the_greedy_text(kind: str, name: str) -> None:
    length = (
        12 if kind in ENCODER_DECODERS else 20
    )  # without a cache, each token needs a pass over the text
    greedy, *others = compare(
        kind, ["greedy", *drafters(kind)], **SHARED[name], max_new_tokens=length
    )
    for trace in others:
        assert trace.sequences[0].token_ids == greedy.sequences[0].token_ids
        assert (trace.text, trace.stop) == (greedy.text, greedy.stop)


def test_drafting_works_for_models_without_a_cache() -> None:
    greedy, *others = compare("mamba", ["greedy", *drafters("mamba")[:5]])
    assert {trace.text for trace in others} == {greedy.text}


def test_max_new_tokens_is_exact() -> None:
    [whole] = compare("gpt2", ["greedy"])
    for length in range(1, 20):
        for trace in compare("gpt2", drafters("gpt2")[::2], max_new_tokens=length):
            assert trace.sequences[0].token_ids == whole.sequences[0].token_ids[:length]
            assert trace.stop.rule == "length"


def test_a_text_may_end_in_the_middle_of_a_draft() -> None:
    lab = Playground(readable())
    [whole] = lab.compare(PROMPT, ["greedy"], max_new_tokens=20)
    other_vocabulary = {**SURE, "assistant_model": readable(True), "num_assistant_tokens": 12}
    ways = ["greedy", ("universal_speculative", other_vocabulary), ("speculative", SURE)]
    for ending in (
        {"stop_strings": whole.text[5:8]},
        {"eos_token_id": whole.sequences[0].token_ids[7]},
    ):
        greedy, *others = lab.compare(PROMPT, ways, max_new_tokens=20, **ending)
        assert len(greedy.sequences[0].token_ids) <= 8
        for trace in others:
            assert (trace.text, trace.stop) == (greedy.text, greedy.stop)
        # This draft model does not know the end: tokens that it drafts after it are ignored.
        assert fates(others[0])["ignored"] > 0 and fates(others[0])["rejected"] == 0
        assert trace.steps[trace.sequences[0].steps[-1]].event == "returned"


@pytest.mark.parametrize("do_sample", [False, True])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "t5"])
def test_a_model_accepts_all_of_its_own_drafts(kind: str, do_sample: bool) -> None:
    itself = [("speculative", {**SURE, "do_sample": do_sample, "assistant_model": tiny(kind)})]
    for trace in compare(kind, [*itself, ("speculative", {**SURE, "do_sample": do_sample})]):
        assert set(fates(trace)) == {"accepted", "bonus"}
        assert trace.forward_passes <= 2
        for step in trace.steps:
            if step.notes["verdict"] == "accepted":
                assert step.notes["p"] == pytest.approx(step.notes["q"], rel=1e-3)


@pytest.mark.parametrize("top_k", [1, 0])
def test_sampling_equals_greedy_only_with_top_k_1(top_k: int) -> None:
    sampled = {"do_sample": True, "top_k": top_k}
    ways = [("sample", {"top_k": top_k}), *drafters("llama", **sampled)]
    greedy, *others = compare("llama", ["greedy", *ways], seed=5)
    for trace in others:
        assert (trace.text == greedy.text) is (top_k == 1)


def test_a_token_with_probability_zero_is_never_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda self, **kwargs: self.zero_())
    sampled = {**SURE, "do_sample": True, "top_k": 1, "assistant_model": draft("llama", "bad")}
    [greedy, trace] = compare("llama", ["greedy", ("speculative", sampled)])
    assert trace.text == greedy.text and fates(trace)["rejected"] > 0


@pytest.fixture(scope="module", params=[False, True], ids=["greedy", "sampled"])
def traces(request: pytest.FixtureRequest) -> list[Trace]:
    ways = drafters("llama", do_sample=request.param, top_k=0)
    return compare("llama", ways, max_new_tokens=30, seed=2)


def test_outcomes_of_drafted_tokens_add_up(traces: list[Trace]) -> None:
    for trace in traces:
        assert set(fates(trace)) <= {*DRAFTED, *OWN}
        for number, steps in rounds(trace).items():
            verdicts = [step.notes["verdict"] for step in steps]
            drafted = [fate for fate in verdicts if fate in DRAFTED]
            own = verdicts[len(drafted) :]
            kept = verdicts.count("accepted")
            # Accepted tokens, then at most one rejected token, then ignored ones.
            rejected = ["rejected"] * verdicts.count("rejected")
            assert drafted == ["accepted"] * kept + rejected + ["ignored"] * verdicts.count(
                "ignored"
            )
            assert len(rejected) <= 1
            ended = trace.stop.rule == "end_token" and number == max(rounds(trace))
            follows = ("resampled" if rejected else "bonus") if drafted else "chosen"
            assert own == [follows] or (ended and own == [])
        written = sum(fates(trace)[fate] for fate in ("accepted", *OWN))
        assert written == len(trace.sequences[0].token_ids)


def test_every_drafted_token_is_a_step_on_its_own_branch(traces: list[Trace]) -> None:
    for trace in traces:
        path = trace.sequences[0].steps
        assert [trace.steps[id].token.id for id in path] == list(trace.sequences[0].token_ids)
        assert [step.id for step in trace.path(path[-1])] == list(path)
        for step in trace.steps:
            fate = step.notes["verdict"]
            assert (step.id in path) is (fate in ("accepted", *OWN))
            assert step.event in EVENTS
            event = {"ignored": "drafted"}.get(fate, fate)
            assert step.event == ("returned" if step.id == path[-1] else event)
            above = step.parent is not None and trace.steps[step.parent].notes["verdict"]
            assert above not in ("rejected", "ignored") or fate == "ignored"
        assert Trace.from_json(trace.to_json()) == trace


def test_the_model_makes_one_pass_a_round_and_the_draft_model_one_a_token(
    traces: list[Trace],
) -> None:
    for number, trace in enumerate(traces):
        drafted = sum(fates(trace)[fate] for fate in DRAFTED)
        # The first run evaluates the prompt, which gives the first round its token.
        known = rounds(trace)[1][0].event == "chosen"
        assert trace.forward_passes == len(rounds(trace)) + (number == 0) - known
        if trace.strategy in ("speculative", "early_exit"):
            # Likewise the draft model's first token comes from its pass over the prompt.
            assert drafted - trace.draft_passes in (0, 1)
        assert (trace.draft_passes > 0) is (trace.strategy != "prompt_lookup")


def test_recorded_p_q_and_draws_explain_every_decision(traces: list[Trace]) -> None:
    trace = traces[2]
    assert trace.settings["assistant_model"] == draft("llama", "bad").name
    ids = [token.id for token in trace.prompt_tokens]
    for step in trace.steps:
        notes, fate, token = step.notes, step.notes["verdict"], step.token.id
        text = torch.tensor([ids + [above.token.id for above in trace.path(step.parent)]])
        p, q = (
            model.module(text).logits[0, -1].softmax(-1).detach()
            for model in (tiny("llama"), draft("llama", "bad"))
        )
        sampled = trace.settings["do_sample"]
        assert ("draw" in notes) is (sampled and fate in ("accepted", "rejected"))
        assert ("residual" in step.distribution.processors) is (sampled and fate == "resampled")
        if fate in OWN:
            used = (p - q).clamp(min=0) if sampled and fate == "resampled" else p
            assert math.exp(step.final) == pytest.approx(float(used[token] / used.sum()), rel=1e-3)
            assert "p" not in notes and "q" not in notes
            continue
        assert (notes["p"], notes["q"]) == pytest.approx((float(p[token]), float(q[token])), 1e-3)
        if fate != "ignored":
            passes = notes["draw"] < notes["p"] / notes["q"] if sampled else step.rank == 1
            assert (fate == "accepted") is passes


@pytest.mark.parametrize("schedule", ["constant", "heuristic_transient"])
@pytest.mark.parametrize("how", ["good", "bad", "adversarial"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_seeded_samples_equal_those_of_assisted_generation(
    kind: str, how: str, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"num_assistant_tokens": 5, "num_assistant_tokens_schedule": schedule}
    draft_model = draft(kind, how)
    for name, value in settings.items():  # transformers reads them from the draft model
        monkeypatch.setattr(draft_model.module.generation_config, name, value)
    # Without the padding token, which transformers' draft model would mask.
    shared = {"suppress_tokens": [0], "do_sample": True, "top_k": 0}
    ways = [("speculative", {**settings, **shared, "assistant_model": draft_model})]
    [trace] = compare(kind, ways, seed=6)
    arguments = {**shared, "assistant_model": draft_model.module, "max_new_tokens": 20}
    expected, _ = generate(tiny(kind), PROMPT, arguments, 6)
    assert [list(trace.sequences[0].token_ids)] == expected


@pytest.mark.parametrize("kind", ["llama", "gpt2", "t5"])
def test_seeded_samples_equal_those_of_prompt_lookup_in_transformers(kind: str) -> None:
    settings = {"do_sample": True, "top_k": 0, "temperature": 0.5, "suppress_tokens": [2]}
    shared = {**settings, "prompt_lookup_num_tokens": 5, "max_new_tokens": 30}
    [trace] = compare(kind, [("prompt_lookup", shared)], seed=4)
    expected, _ = generate(tiny(kind), PROMPT, {**shared, "max_matching_ngram_size": 2}, 4)
    # Near the end transformers also samples for copied tokens past the length limit.
    assert list(trace.sequences[0].token_ids[:25]) == expected[0][:25]


def test_drafts_are_reported_live() -> None:
    lab = Playground(tiny("llama"))
    way = ("speculative", {**SURE, "assistant_model": draft("llama", "good")})
    stories: dict[int, list[str]] = defaultdict(list)
    for update in lab.stream(PROMPT, [way], max_new_tokens=12):
        for step in update.steps:
            stories[step.id].append(step.event)
    assert ["drafted", "accepted"] in stories.values()
    assert ["drafted", "rejected"] in stories.values()
    assert ["drafted", "drafted"] in stories.values()  # ignored
