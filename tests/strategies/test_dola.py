"""DoLa: the tokens of transformers 4.51.3, the candidate layers, and the recorded numbers."""

import json
import math
from typing import Any

import pytest
import torch

from engine.trace import Trace
from playground import Playground, PlaygroundError
from strategies.dola import candidate_layers
from tests.draft_models import deep
from tests.strategies.make_lookahead_reference import PROMPT, REFERENCE, TOKENS, model
from tests.tiny import tiny

CASES = [case for case in json.loads(REFERENCE.read_text())["cases"] if case["strategy"] == "dola"]
# By hand from the paper and from transformers 4.51.3: which layers "low" and "high" are. Where the
# output matrix is tied to the embedding, the embedding (layer 0) is not a candidate.
LOW = {
    1: ([0], [0]),  # layers: (output matrix of its own, tied)
    2: ([0], [1]),
    3: ([0], [2]),  # tied, 4.51.3 finds none and fails
    4: ([0], [2]),
    6: ([0, 2], [2]),
    30: ([0, 2, 4, 6, 8, 10, 12, 14], [2, 4, 6, 8, 10, 12, 14]),
    40: ([0, 2, 4, 6, 8, 10, 12, 14, 16, 18], [2, 4, 6, 8, 10, 12, 14, 16, 18]),
    41: ([0, 2, 4, 6, 8, 10, 12, 14, 16, 18], [2, 4, 6, 8, 10, 12, 14, 16, 18]),
    48: ([0, 2, 4, 6, 8, 10, 12, 14, 16, 18], [2, 4, 6, 8, 10, 12, 14, 16, 18]),
}
HIGH = {
    1: [0],
    2: [1],
    3: [1],
    4: [2],
    6: [3, 5],
    30: [15, 17, 19, 21, 23, 25, 27, 29],
    40: [20, 22, 24, 26, 28, 30, 32, 34, 36, 38],
    41: [21, 23, 25, 27, 29, 31, 33, 35, 37, 39],
    48: [28, 30, 32, 34, 36, 38, 40, 42, 44, 46],
}


def dola(kind: Any, seed: int = 3, **settings: Any) -> Trace:
    lab = Playground(model(kind) if isinstance(kind, str) else kind)
    [trace] = lab.compare(PROMPT, [("dola", settings)], max_new_tokens=TOKENS, seed=seed)
    assert trace.error is None
    return trace


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['model']}-{case['settings']}")
def test_tokens_equal_those_of_transformers_4_51(case: dict[str, Any]) -> None:
    trace = dola(case["model"], case["seed"], **case["settings"])
    assert list(trace.sequences[0].token_ids) == case["token_ids"]


@pytest.mark.parametrize("layers", LOW)
def test_low_and_high_are_the_layers_of_the_paper(layers: int) -> None:
    own, tied = LOW[layers]
    assert candidate_layers("low", layers, tied=False) == own
    assert candidate_layers("low", layers, tied=True) == tied
    for either in (False, True):
        assert candidate_layers("high", layers, tied=either) == HIGH[layers]


def test_listed_layers_from_the_last_one_on_are_ignored() -> None:
    assert candidate_layers([5, 0, 3, 6, 9], 6, tied=True) == [5, 0, 3]
    with pytest.raises(
        PlaygroundError, match="dola_layers is \\[6, 9\\]; the model's last layer is 6"
    ):
        candidate_layers([6, 9], 6, tied=True)


@pytest.mark.parametrize("layers", ["middle", [], [-1], [1.5], [True], 3, None])
def test_invalid_layers_are_rejected(layers: Any) -> None:
    if layers is None:
        assert dola("llama", dola_layers=None).settings["dola_layers"] == "low"
        return
    with pytest.raises(PlaygroundError, match="dola_layers"):
        dola("llama", dola_layers=layers)


def test_encoder_decoder_models_are_rejected() -> None:
    with pytest.raises(PlaygroundError, match="dola needs a decoder-only model"):
        dola("t5")


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_shallow_models_have_a_candidate_layer(layers: int, tied: bool) -> None:
    for name in ("low", "high"):
        trace = dola(deep(layers, tied=tied), dola_layers=name)
        expected = candidate_layers(name, layers, tied)
        assert {step.notes["layer"] for step in trace.steps} <= set(expected)


@pytest.mark.parametrize("kind", ["untied", "tied", "gpt2"])
@pytest.mark.parametrize("layers", ["high", [0, 1, 3, 4, 5, 7]])
def test_recorded_numbers_equal_those_of_the_model(kind: str, layers: Any) -> None:
    trace = dola(kind, dola_layers=layers, top_k=20)
    module = model(kind).module
    ids = [token.id for token in trace.prompt_tokens]
    chosen = set()
    for step in trace.steps:
        text = ids + [above.token.id for above in trace.path(step.parent)]
        with torch.no_grad():
            output = module(torch.tensor([text]), output_hidden_states=True)
            at = [state[0, -1] for state in output.hidden_states]
            candidates_here = [int(layer) for layer in step.notes["divergences"]]
            early = torch.stack([module.lm_head(at[layer]) for layer in candidates_here])
        p, q = (logits.double().log_softmax(-1) for logits in (output.logits[0, -1], early))
        # The divergence of each from the mean of both, in nats.
        mean = (p.exp() + q.exp()) / 2
        apart = ((mean * (mean.log() - p)).sum(-1) + (mean * (mean.log() - q)).sum(-1)) / 2
        divergences = list(step.notes["divergences"].values())
        assert divergences == pytest.approx(apart.tolist(), abs=1e-3)
        assert step.notes["layer"] == candidates_here[divergences.index(max(divergences))]
        chosen.add(step.notes["layer"])

        base = q[candidates_here.index(step.notes["layer"])]
        contrast = torch.where(p >= p.max() + math.log(0.1), p - base, -torch.inf)
        order = contrast.argsort(descending=True).tolist()
        candidates = step.notes["candidates"]
        tokens = [row[0] for row in candidates]
        left = min(10, int((contrast > -torch.inf).sum()))
        assert tokens[:left] == order[:left]
        assert {*tokens} == {*order[:left], *p.topk(5).indices.tolist()}
        for token, *at_layers, after in candidates:
            assert at_layers == pytest.approx(q[:, token].tolist(), rel=1e-4, abs=1e-3)
            assert after == pytest.approx(float(p[token]), abs=1e-3)
        assert step.notes["cut"] == [token for token in tokens if contrast[token] == -torch.inf]
        used = contrast.softmax(-1)
        spelled = {candidate.token.id for candidate in step.distribution.candidates}
        assert {token for token in tokens if used[token] > 1e-30} <= spelled
        assert step.token.id == order[0]
        assert step.final == pytest.approx(float(contrast.log_softmax(-1)[order[0]]), abs=1e-3)
        assert step.raw == pytest.approx(float(p[order[0]]), abs=1e-3)
        assert step.distribution.processors[0] == "dola"
    assert kind == "gpt2" or len(chosen) > 1
    assert Trace.from_json(trace.to_json()) == trace


def test_sampling_with_top_k_1_equals_the_maximum() -> None:
    ways = [{}, {"do_sample": True, "top_k": 1}, {"do_sample": True, "temperature": 5.0}]
    best, one, other = (dola("untied", **way).sequences[0].token_ids for way in ways)
    assert one == best != other


def test_an_improbable_sampled_token_is_recorded() -> None:
    trace = dola("untied", do_sample=True, temperature=50.0)
    for step in trace.steps:
        assert step.token.id in [row[0] for row in step.notes["candidates"]]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_both_backends_give_the_same_contrast(kind: str) -> None:
    lab = Playground(tiny(kind))
    lab._backends.trie_length = 0
    [plain] = lab.compare(PROMPT, ["dola"], max_new_tokens=TOKENS)
    trace = dola(kind)
    assert plain.sequences[0].token_ids == trace.sequences[0].token_ids
    for ours, theirs in zip(trace.steps, plain.steps, strict=True):
        assert ours.notes["divergences"] == pytest.approx(theirs.notes["divergences"], abs=1e-4)
