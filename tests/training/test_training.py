"""Training of the drafters: generated texts, losses, evaluation and saved weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from engine.drafting.exits import Exit
from engine.drafting.heads import Heads
from engine.models import quantized_weights
from tests.tiny import KINDS
from training.common import load_weights, most_frequent_tokens, save_weights
from training.corpus import TextGenerator, Texts, is_new
from training.distillation import (
    Batch,
    Schedule,
    batches,
    draft_from_layers,
    draft_loss,
    draft_states,
    heads_loss,
    position_weights,
    train,
)
from training.evaluation import acceptance, heads_acceptance
from training.exits import exits_loss, relative_cost, upper_bound
from training.prompts import Prompt

LENGTH = 24
MODELS = Path(__file__).parents[2] / "models"


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(7)
    return KINDS["llama"]().eval().requires_grad_(False)  # as a loaded model


@pytest.fixture(scope="module")
def texts(module) -> Texts:
    generator = torch.Generator().manual_seed(3)
    prompts = [
        Prompt(torch.randint(3, 250, (length,), generator=generator).tolist())
        for length in range(1, 13)
        for _ in range(4)
    ]
    return TextGenerator(module, len(prompts), LENGTH, [1, 2], seed=1).generate(prompts)


def test_greedy_texts_equal_those_of_generate(module, texts):
    rows = texts.greedy.nonzero().flatten().tolist()
    assert rows, "some texts are greedy"
    for row in rows:
        start = int(texts.starts[row])
        ids = texts.tokens[row : row + 1, :start]
        expected = module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_length=LENGTH,
            do_sample=False,
            eos_token_id=None,
        )
        assert texts.tokens[row].tolist() == expected[0].tolist()


def test_states_equal_the_models_hidden_states(module, texts):
    _, *states = module(texts.tokens, output_hidden_states=True).hidden_states
    assert torch.allclose(texts.states, torch.stack(states, dim=2), atol=1e-4)


def test_position_is_new_unless_its_last_three_tokens_occurred_before():
    tokens = torch.tensor([[5, 6, 7, 8, 5, 6, 7, 8], [1, 1, 1, 1, 1, 2, 1, 1]])
    assert is_new(tokens).int().tolist() == [[1, 1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 1, 1, 1]]


def test_generated_request_is_sampled_even_if_its_answer_is_greedy(module):
    prompts = [Prompt([5, 6, 7], generates_request=True)] * 64
    texts = TextGenerator(module, 64, LENGTH, [2], seed=0).generate(prompts)
    assert texts.greedy.any()
    first = texts.tokens[texts.greedy, 3]
    assert len(set(first.tolist())) > 1, "greedy requests would all be equal"


def test_training_reduces_the_loss_of_a_draft_model(module, texts):
    output = module.get_output_embeddings().weight.detach()
    kept, coverage = most_frequent_tokens([texts], 200)
    draft = draft_from_layers(module, [1])
    data = batches([texts], 16, seed=0)
    curve = train(draft, draft_loss(draft, output[kept]), data, Schedule(16, 60, 3e-3))
    assert curve[-1][1] < 0.85 * curve[0][1]
    assert 0.9 < coverage <= 1
    rates = acceptance(draft_states(draft), kept, output, texts)
    assert 0 < rates["sampled"] <= 1 and rates["greedy"] <= rates["covered"] <= 1


def test_draft_model_with_all_layers_is_always_accepted(module, texts):
    output = module.get_output_embeddings().weight.detach()
    everything = torch.arange(len(output))
    draft = draft_from_layers(module, [0, 1])
    rates = acceptance(draft_states(draft), everything, output, texts)
    # bfloat16 may flip a few near ties.
    assert rates["greedy"] > 0.95 and rates["sampled"] > 0.95 and rates["covered"] == 1


def test_training_reduces_the_loss_of_heads(module, texts):
    embedding = module.get_input_embeddings().weight.detach()
    output = module.get_output_embeddings().weight.detach()
    heads = Heads(
        embedding, output, most_frequent_tokens([texts], 200)[0], inner=64, depth=2, layers=[1, 2]
    )
    heads.reset()
    loss = heads_loss(heads)
    everything = Batch(texts.tokens, texts.states, position_weights(texts.tokens))
    before = loss(everything).item()
    train(heads, loss, batches([texts], 16, seed=0), Schedule(16, 120, 3e-3))
    assert loss(everything).item() < 0.8 * before
    rates = heads_acceptance(heads, output, texts)
    for best, top in zip(rates["best"], rates["best_4"], strict=True):
        assert 0 <= best <= top <= 1


def test_loaded_weights_equal_saved_ones_up_to_rounding(tmp_path, module):
    draft = draft_from_layers(module, [0, 1])
    before = {name: weight.clone() for name, weight in draft.state_dict().items()}
    save_weights(draft, torch.arange(7), {"layers": 2}, "x-draft", tmp_path)
    for weight in draft.model.layers.parameters():
        nn.init.zeros_(weight)
    load_weights(draft, "x-draft", tmp_path)
    for name, weight in draft.state_dict().items():
        error = (weight - before[name]).abs().amax(-1)
        assert (error <= before[name].abs().amax(-1) / 127 * 0.51).all(), name


def test_weights_in_the_repository_are_complete_and_below_ten_megabytes():
    report = json.loads((MODELS / "smollm2-training.json").read_text())
    exits = json.loads((MODELS / "smollm2-exits-training.json").read_text())
    heads = {"inner": 1536, "depth": 4, "layers": [10, 20, 30]}
    for kind, about in (("draft", {"layers": 3}), ("heads", heads), ("exits", {"inner": 2048})):
        files = sorted(MODELS.glob(f"smollm2-{kind}-*.safetensors"))
        assert len(files) == int(files[0].stem.rsplit("-", 1)[1])
        kept = load_file(files[0])["kept"]
        assert len(kept.unique()) == len(kept) == report["settings"]["kept"]
        for file in files:
            assert file.stat().st_size < 10_000_000
            assert quantized_weights.load(file)[1] == about
    assert report["draft_acceptance"]["new"] > 0.65
    assert min(report["heads_acceptance"]["best"]) > 0.6
    assert min(rates["greedy"] for rates in exits["acceptance"].values()) > 0.5


def test_exit_is_initialized_as_the_models_norm_and_training_improves_it(module, texts):
    output = module.get_output_embeddings().weight
    every, norm = torch.arange(len(output)), module.base_model.norm
    exits = nn.ModuleDict({"1": Exit(norm, inner=32), "2": Exit(norm, inner=32)})
    early, _ = exits.values()
    states = texts.states[:, :, 0]  # after the first of two layers
    assert torch.equal(early(states), norm(states.float()))

    def accuracy() -> float:
        rates = acceptance(lambda tokens, states: early(states[:, :, 0]), every, output, texts)
        return rates["greedy"]

    before, data = accuracy(), batches([texts], 8, seed=1)
    curve = train(exits, exits_loss(exits, output), data, Schedule(8, 120, 1e-2))
    assert curve[-1][1] < curve[0][1]
    assert accuracy() > before
    assert (
        0
        < relative_cost(module, 1, early, output[:10])
        < relative_cost(module, 2, early, output)
        < 2
    )


@pytest.mark.parametrize(
    ("accuracy", "cost", "speed_up", "length"),
    [
        (0.0, 0.5, 1 / 1.5, 1),
        (1.0, 0.25, 9 / 3, 8),
        (0.5, 0.25, 1.5 / 1.25, 1),
        (0.9, 1.0, 0.95, 1),
    ],
)
def test_upper_bound_is_expected_tokens_per_round_over_its_cost(accuracy, cost, speed_up, length):
    assert upper_bound(accuracy, cost) == (pytest.approx(speed_up, abs=1e-3), length)
