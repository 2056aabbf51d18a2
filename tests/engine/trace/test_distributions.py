"""Recorded distributions against the same numbers computed directly."""

import pickle
from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    WatermarkLogitsProcessor,
)

from engine.trace import Candidate, Step, Trace
from engine.trace import distributions as observe
from engine.trie.backend import NodeOutput
from playground import Playground
from tests.tiny import SIZE, tiny

SAMPLED = {"temperature": 1.3, "top_k": 40, "top_p": 0.8, "min_p": 0.05}
CASES: dict[str, tuple[tuple[str, dict[str, Any]], list[LogitsProcessor]]] = {
    "warpers": (
        ("sample", SAMPLED),
        [
            TemperatureLogitsWarper(1.3),
            TopKLogitsWarper(40),
            TopPLogitsWarper(0.8),
            MinPLogitsWarper(0.05),
        ],
    ),
    "n-grams": (
        ("greedy", {"no_repeat_ngram_size": 1}),
        [NoRepeatNGramLogitsProcessor(1)],
    ),
}


def text_before(trace: Trace, step: Step) -> list[int]:
    """The tokens of the prompt and of the path to a step, without its own."""
    prompt = [token.id for token in trace.prompt_tokens]
    return prompt + [earlier.token.id for earlier in trace.path(step.parent)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("model", ["tiny", "embedded"])
def test_recorded_cuts_equal_those_of_a_direct_call_of_each_processor(
    name: str, model: str, embedded: Playground
) -> None:
    lab = embedded if model == "embedded" else Playground(tiny("llama"))
    choice, processors = CASES[name]
    [trace] = lab.compare("one two one two one", [choice], max_new_tokens=6, seed=2)
    cut_somewhere = False
    for step in trace.steps:
        ids = torch.tensor([text_before(trace, step)])
        with torch.no_grad():
            scores = lab.model.module(ids).logits[:, -1].float()
        surprisal = -scores.log_softmax(-1).double()
        probs = surprisal.neg().exp()
        mean = (probs * surprisal).sum()
        variance = float((probs * (surprisal - mean).square()).sum())
        recorded = step.distribution
        assert recorded.raw_varentropy == pytest.approx(variance, rel=1e-3)
        for stage, processor in enumerate(processors):
            before, scores = scores.softmax(-1), processor(ids, scores)
            kept = scores > -torch.inf
            cut = bool(((before > 0) & ~kept).any())
            assert recorded.kept_after[stage] == int(kept.sum())
            lowest = float(before[kept].min()) if cut else None
            assert recorded.cutoffs[stage] == (pytest.approx(lowest, rel=1e-3) if cut else None)
            cut_somewhere |= cut
        assert len(recorded.cutoffs) == len(processors) and recorded.kept == recorded.kept_after[-1]
    assert cut_somewhere


def test_a_processor_that_cuts_no_token_has_no_cutoff() -> None:
    [trace] = Playground(tiny("llama")).compare("hi", [("sample", {"temperature": 0.5})])
    shaped = [step.distribution for step in trace.steps]
    assert {distribution.processors[0] for distribution in shaped} == {"temperature"}
    assert all(distribution.cutoffs[0] is None for distribution in shaped)


def test_a_processor_that_keeps_only_tokens_cut_before_has_no_cutoff() -> None:
    class Revives(LogitsProcessor):
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            return torch.full_like(scores, -torch.inf).index_fill(-1, torch.tensor([9]), 0.0)

    settings = {"suppress_tokens": [9], "logits_processor": [Revives()]}
    [trace] = Playground(tiny("llama")).compare("hi", [("greedy", settings)], max_new_tokens=2)
    recorded = trace.steps[0].distribution
    cutoffs = dict(zip(recorded.processors, recorded.cutoffs, strict=True))
    kept = dict(zip(recorded.processors, recorded.kept_after, strict=True))
    assert trace.steps[0].token.id == 9
    assert kept == {"revives": 1, "suppress_tokens": SIZE - 1} and cutoffs["revives"] is None
    assert cutoffs["suppress_tokens"] is not None


def test_a_run_without_processors_has_a_varentropy_and_no_cutoffs() -> None:
    [trace] = Playground(tiny("llama")).compare("hi", ["greedy"], max_new_tokens=3)
    for step in trace.steps:
        assert step.distribution.kept_after == () and step.distribution.cutoffs == ()
        assert step.distribution.raw_varentropy > 0


def test_varentropy_is_zero_for_uniform_and_for_certain_distributions() -> None:
    certain = torch.full((1, 64), -torch.inf)
    certain[0, 5] = 3.0
    outputs = NodeOutput.of(torch.cat([torch.zeros(1, 64), certain]))
    assert outputs.varentropy.tolist() == pytest.approx([0, 0], abs=1e-9)


@pytest.mark.parametrize("scheme", ["lefthash", "selfhash"])
@pytest.mark.parametrize(
    "choice", ["greedy", "sample", ("beam_search", {"num_beams": 3})], ids=lambda c: str(c)[:12]
)
def test_green_tokens_are_those_on_the_list_that_transformers_draws(
    scheme: str, choice: Any
) -> None:
    mark = {"greenlist_ratio": 0.4, "bias": 0.3, "seeding_scheme": scheme, "context_width": 1}
    lab = Playground(tiny("llama"))
    [trace] = lab.compare("one two", [choice], max_new_tokens=24, seed=5, watermarking_config=mark)
    processor = WatermarkLogitsProcessor(vocab_size=SIZE, device="cpu", **mark)
    flags = []
    for step in trace.steps:
        text = text_before(trace, step)
        if scheme == "selfhash":  # a token seeds its own list; the top 40 are tried
            listed = processor._get_greenlist_ids(torch.tensor([*text, step.token.id]))
            expected = step.token.id in listed.tolist() and step.rank <= 40
        else:
            expected = step.token.id in processor._get_greenlist_ids(torch.tensor(text)).tolist()
        assert step.notes["green"] is expected
        flags.append(expected)
    assert True in flags and False in flags


@pytest.mark.parametrize("bias", [-0.3, 0.0, 1e-9])
@pytest.mark.parametrize("custom", [False, True])
def test_green_tokens_are_those_on_the_green_list_whatever_the_bias(
    bias: float, custom: bool
) -> None:
    mark = {"greenlist_ratio": 0.5, "bias": bias, "seeding_scheme": "lefthash"}
    choice: Any = ("custom", {"custom_generate": greedy_code}) if custom else "greedy"
    [trace] = Playground(tiny("llama")).compare(
        "one two", [choice], max_new_tokens=16, watermarking_config=mark
    )
    processor = WatermarkLogitsProcessor(vocab_size=SIZE, device="cpu", **mark)
    flags = [step.notes["green"] for step in trace.steps]
    assert flags == [
        step.token.id
        in processor._get_greenlist_ids(torch.tensor(text_before(trace, step))).tolist()
        for step in trace.steps
    ]
    assert True in flags and False in flags


def greedy_code(
    model: Any, input_ids: Any, logits_processor: Any, stopping_criteria: Any, **_: Any
) -> Any:
    while not stopping_criteria(input_ids, None).all():
        scores = logits_processor(input_ids, model(input_ids).logits[:, -1])
        input_ids = torch.cat([input_ids, scores.argmax(-1, keepdim=True)], dim=-1)
    return input_ids


def test_runs_without_a_green_list_have_no_green_notes() -> None:
    lab = Playground(tiny("llama"))
    synthid = {"ngram_len": 3, "keys": [1, 2, 3], "sampling_table_size": 256}
    plain, other = lab.compare(
        "hi", ["greedy", ("greedy", {"watermarking_config": synthid})], max_new_tokens=4
    )
    assert not any("green" in step.notes for step in (*plain.steps, *other.steps))


def test_custom_code_has_green_notes_too() -> None:
    def greedy(model: Any, input_ids: Any, logits_processor: Any, **kwargs: Any) -> Any:
        for _ in range(5):
            with torch.no_grad():
                logits = model(input_ids).logits[:, -1]
            # Log-probabilities are lower than logits: compare before and after the watermark only.
            scores = logits_processor(input_ids, logits.log_softmax(-1))
            input_ids = torch.cat([input_ids, scores.argmax(-1, keepdim=True)], dim=-1)
        return input_ids

    mark = {"greenlist_ratio": 0.4, "bias": 0.1, "seeding_scheme": "lefthash"}
    own, ours = Playground(tiny("llama")).compare(
        "one two",
        [("custom", {"custom_generate": greedy}), "greedy"],
        max_new_tokens=5,
        watermarking_config=mark,
    )
    flags = [step.notes["green"] for step in ours.steps]
    assert [step.notes["green"] for step in own.steps] == flags
    assert True in flags and False in flags


def test_candidates_are_built_on_first_access_and_behave_as_a_tuple(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    def watched(*recorded: Any) -> tuple[Candidate, ...]:
        made.append(1)
        return candidates(*recorded)

    candidates = observe._candidates
    monkeypatch.setattr(observe, "_candidates", watched)
    [trace] = Playground(tiny("llama")).compare("a b", [("sample", {"top_k": 5})], max_new_tokens=3)
    assert not made
    first, *_ = (step.distribution for step in trace.steps)
    assert first is not None
    whole = tuple(first.candidates)
    assert made == [1] and len(first.candidates) == len(whole)
    assert first.candidates == whole and whole == first.candidates != whole[1:]
    assert first.candidates[0] == whole[0] and first.candidates[1:3] == whole[1:3]
    assert hash(first.candidates) == hash(whole) and repr(first.candidates) == repr(whole)
    again = pickle.loads(pickle.dumps(first))
    assert again == first and type(again.candidates) is tuple
    assert made == [1]
    assert Trace.from_json(trace.to_json()) == trace
