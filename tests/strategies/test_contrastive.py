"""Contrastive search: the tokens of transformers 4.51.3, and the numbers behind each decision."""

import json
from collections import defaultdict
from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity

from engine.trace import Step, Trace
from playground import Playground
from tests.strategies.make_lookahead_reference import PROMPT, REFERENCE, TOKENS, model
from tests.tiny import tiny

CASES = [
    case
    for case in json.loads(REFERENCE.read_text())["cases"]
    if case["strategy"] == "contrastive_search"
]
KINDS = ["llama", "gpt2", "qwen3", "gemma2", "t5", "bart"]


def search(kind: str, **settings: Any) -> Trace:
    lab = Playground(model(kind))
    [trace] = lab.compare(PROMPT, [("contrastive_search", settings)], max_new_tokens=TOKENS)
    assert trace.error is None
    return trace


def together(trace: Trace) -> dict[int | None, list[Step]]:
    """The candidates at each position, by their parent."""
    found = defaultdict(list)
    for step in trace.steps:
        found[step.parent].append(step)
    return dict(found)


def run_model(kind: str, prompt: list[int], text: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits after a text, (vocab,), and the last hidden state at each token, (length, width)."""
    inputs = {"input_ids": torch.tensor([text])}
    if tiny(kind).is_encoder_decoder:
        inputs = {"input_ids": torch.tensor([prompt]), "decoder_input_ids": inputs["input_ids"]}
    with torch.no_grad():
        output = tiny(kind).module(**inputs, output_hidden_states=True)
    states = output.get("decoder_hidden_states") or output.hidden_states
    return output.logits[0, -1], states[-1][0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['model']}-{case['settings']}")
def test_tokens_equal_those_of_transformers_4_51(case: dict[str, Any]) -> None:
    trace = search(case["model"], **case["settings"])
    assert list(trace.sequences[0].token_ids) == case["token_ids"]


@pytest.mark.parametrize("kind", [*KINDS, "mamba", "mistral-short-window"])
def test_without_a_penalty_it_equals_greedy(kind: str) -> None:
    greedy, trace, narrow = Playground(tiny(kind)).compare(
        PROMPT,
        [
            "greedy",
            ("contrastive_search", {"penalty_alpha": 0.0}),
            ("contrastive_search", {"top_k": 1}),
        ],
        max_new_tokens=TOKENS,
    )
    assert trace.sequences[0].token_ids == greedy.sequences[0].token_ids
    assert narrow.sequences[0].token_ids == greedy.sequences[0].token_ids


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_numbers_equal_those_of_the_model(kind: str) -> None:
    alpha, top_k = 0.6, 5
    trace = search(kind, penalty_alpha=alpha, top_k=top_k)
    prompt = [token.id for token in trace.prompt_tokens]
    start = {"t5": [0], "bart": [2]}.get(kind, prompt)
    path = trace.sequences[0].steps
    assert len(together(trace)) == len(path)
    for parent, steps in together(trace).items():
        text = start + [step.token.id for step in trace.path(parent)]
        logits, _ = run_model(kind, prompt, text)
        if kind == "bart" and len(text) == TOKENS:  # the end is forced
            logits = torch.full_like(logits, -torch.inf).index_fill(0, torch.tensor(2), 0.0)
        probs, tokens = logits.softmax(-1).topk(top_k)
        if probs[-1] > 0:
            assert [step.token.id for step in steps] == tokens.tolist()
        for step, probability in zip(steps, probs.tolist(), strict=True):
            _, states = run_model(kind, prompt, [*text, step.token.id])
            similarity = cosine_similarity(states[-1:], states[:-1])
            notes = step.notes
            score = (1 - alpha) * probability - alpha * float(similarity.max())
            expected = {
                "probability": probability,
                "similarity": float(similarity.max()),
                "score": score,
            }
            assert {name: notes[name] for name in expected} == pytest.approx(expected, abs=1e-4)
            nearest = float(similarity[notes["similar_to"]])
            assert nearest == pytest.approx(float(similarity.max()), abs=1e-4)
            if step.event != "pruned":
                assert notes["since"] == len(start)
                written = similarity[len(start) :].tolist()
                assert notes["similarities"] == pytest.approx(written, abs=1e-3)
            else:
                assert "similarities" not in notes
        [chosen] = [step for step in steps if step.event != "pruned"]
        assert chosen.notes["score"] == max(step.notes["score"] for step in steps)
        assert chosen.id in path


def test_its_numbers_survive_saving_and_loading_the_trace() -> None:
    trace = search("llama", penalty_alpha=0.4, top_k=7)
    assert {len(steps) for steps in together(trace).values()} == {7}
    assert Trace.from_json(trace.to_json()) == trace
    assert trace.nodes == 7 * (len(trace.ticks) - 1) + len(trace.prompt_tokens)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_both_backends_give_the_same_numbers(kind: str) -> None:
    lab = Playground(tiny(kind))
    lab._backends.trie_length = 0
    [plain] = lab.compare(PROMPT, ["contrastive_search"], max_new_tokens=TOKENS)
    trace = search(kind)
    assert plain.sequences[0].token_ids == trace.sequences[0].token_ids
    for ours, theirs in zip(trace.steps, plain.steps, strict=True):
        alike = {name: own for name, own in ours.notes.items() if name != "similarities"}
        assert alike == pytest.approx({name: theirs.notes[name] for name in alike}, abs=1e-4)
        similarity = [step.notes.get("similarities", []) for step in (ours, theirs)]
        assert similarity[0] == pytest.approx(similarity[1], abs=2e-3)


def test_similarity_is_recorded_for_the_last_tokens_only(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = search("llama")
    monkeypatch.setattr("strategies.contrastive_search.RECORDED", 3)
    cut = search("llama")
    start = len(whole.prompt_tokens)
    for place, id in enumerate(whole.sequences[0].steps):
        every, last = whole.steps[id].notes, cut.steps[id].notes
        assert len(every["similarities"]) == place
        assert last["similarities"] == every["similarities"][-3:]
        assert last["since"] == start + max(0, place - 3)
