"""The model writes what `generate` writes, drafts learn from it, and what is kept is what was
learnt."""

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
from training.distilling import (
    Batch,
    Course,
    batches,
    draft_loss,
    heads_loss,
    learn,
    small,
    states_of,
    worth,
)
from training.exits import at_most, exits_loss, share
from training.lesson import commonest, read_back, save
from training.measuring import acceptance, heads_acceptance
from training.prompts import Prompt
from training.writing import Writer, Written, fresh

LENGTH = 24
MODELS = Path(__file__).parents[2] / "models"


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(7)
    return KINDS["llama"]().eval().requires_grad_(False)  # as models are loaded


@pytest.fixture(scope="module")
def written(module) -> Written:
    generator = torch.Generator().manual_seed(3)
    prompts = [
        Prompt(torch.randint(3, 250, (length,), generator=generator).tolist())
        for length in range(1, 13)
        for _ in range(4)
    ]
    return Writer(module, len(prompts), LENGTH, [1, 2], seed=1).write(prompts)


def test_greedy_texts_are_those_of_generate(module, written):
    rows = written.greedy.nonzero().flatten().tolist()
    assert rows, "some texts are written greedily"
    for row in rows:
        start = int(written.starts[row])
        ids = written.tokens[row : row + 1, :start]
        expected = module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_length=LENGTH,
            do_sample=False,
            eos_token_id=None,
        )
        assert written.tokens[row].tolist() == expected[0].tolist()


def test_states_are_the_models_own(module, written):
    _, *states = module(written.tokens, output_hidden_states=True).hidden_states
    assert torch.allclose(written.states, torch.stack(states, dim=2), atol=1e-4)


def test_a_place_is_new_until_three_tokens_repeat():
    tokens = torch.tensor([[5, 6, 7, 8, 5, 6, 7, 8], [1, 1, 1, 1, 1, 2, 1, 1]])
    assert fresh(tokens).int().tolist() == [[1, 1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 1, 1, 1]]


def test_a_made_up_request_is_drawn_and_its_answer_is_not(module):
    prompts = [Prompt([5, 6, 7], made_up=True)] * 64
    written = Writer(module, 64, LENGTH, [2], seed=0).write(prompts)
    assert written.greedy.any()
    first = written.tokens[written.greedy, 3]
    assert len(set(first.tolist())) > 1, "greedy from the start, they would all be the same"


def test_a_draft_learns_what_the_model_says(module, written):
    output = module.get_output_embeddings().weight.detach()
    kept, coverage = commonest([written], 200)
    draft = small(module, [1])
    given = batches([written], 16, seed=0)
    curve = learn(draft, draft_loss(draft, output[kept]), given, Course(16, 60, 3e-3))
    assert curve[-1][1] < 0.85 * curve[0][1]
    assert 0.9 < coverage <= 1
    told = acceptance(states_of(draft), kept, output, written)
    assert 0 < told["sampled"] <= 1 and told["greedy"] <= told["covered"] <= 1


def test_a_draft_of_all_layers_is_kept_entirely(module, written):
    output = module.get_output_embeddings().weight.detach()
    everything = torch.arange(len(output))
    draft = small(module, [0, 1])
    told = acceptance(states_of(draft), everything, output, written)
    # Rounding to 16 bits may turn a few near ties.
    assert told["greedy"] > 0.95 and told["sampled"] > 0.95 and told["covered"] == 1


def test_heads_learn_what_the_model_says(module, written):
    embedding = module.get_input_embeddings().weight.detach()
    output = module.get_output_embeddings().weight.detach()
    heads = Heads(embedding, output, commonest([written], 200)[0], inner=64, depth=2, layers=[1, 2])
    heads.begin()
    loss = heads_loss(heads)
    before = loss(Batch(written.tokens, written.states, worth(written.tokens))).item()
    learn(heads, loss, batches([written], 16, seed=0), Course(16, 120, 3e-3))
    assert loss(Batch(written.tokens, written.states, worth(written.tokens))).item() < 0.8 * before
    told = heads_acceptance(heads, output, written)
    for best, few in zip(told["best"], told["best_4"], strict=True):
        assert 0 <= best <= few <= 1


def test_what_is_kept_is_what_was_learnt_but_for_rounding(tmp_path, module):
    draft = small(module, [0, 1])
    before = {name: weight.clone() for name, weight in draft.state_dict().items()}
    save(draft, torch.arange(7), {"layers": 2}, "x-draft", tmp_path)
    for weight in draft.model.layers.parameters():
        nn.init.zeros_(weight)
    read_back(draft, "x-draft", tmp_path)
    for name, weight in draft.state_dict().items():
        apart = (weight - before[name]).abs().amax(-1)
        assert (apart <= before[name].abs().amax(-1) / 127 * 0.51).all(), name


def test_files_that_come_with_the_repository_are_small_and_whole():
    told = json.loads((MODELS / "smollm2-training.json").read_text())
    exits = json.loads((MODELS / "smollm2-exits-training.json").read_text())
    heads = {"inner": 1536, "depth": 4, "layers": [10, 20, 30]}
    for kind, about in (("draft", {"layers": 3}), ("heads", heads), ("exits", {"inner": 2048})):
        files = sorted(MODELS.glob(f"smollm2-{kind}-*.safetensors"))
        assert len(files) == int(files[0].stem.rsplit("-", 1)[1])
        kept = load_file(files[0])["kept"]
        assert len(kept.unique()) == len(kept) == told["settings"]["kept"]
        for file in files:
            assert file.stat().st_size < 10_000_000
            assert quantized_weights.load(file)[1] == about
    assert told["draft_acceptance"]["new"] > 0.65
    assert min(told["heads_acceptance"]["best"]) > 0.6
    assert min(behind["greedy"] for behind in exits["acceptance"].values()) > 0.5


def test_an_exit_begins_as_the_models_own_end_and_learns_to_say_what_it_says(module, written):
    output = module.get_output_embeddings().weight
    every, norm = torch.arange(len(output)), module.base_model.norm
    exits = nn.ModuleDict({"1": Exit(norm, inner=32), "2": Exit(norm, inner=32)})
    early, _ = exits.values()
    states = written.states[:, :, 0]  # after the first of two layers
    assert torch.equal(early(states), norm(states.float()))

    def right() -> float:
        own = acceptance(lambda tokens, states: early(states[:, :, 0]), every, output, written)
        return own["greedy"]

    before, given = right(), batches([written], 8, seed=1)
    curve = learn(exits, exits_loss(exits, output), given, Course(8, 120, 1e-2))
    assert curve[-1][1] < curve[0][1]
    assert right() > before
    assert 0 < share(module, 1, early, output[:10]) < share(module, 2, early, output) < 2


@pytest.mark.parametrize(
    ("right", "cost", "faster", "length"),
    [
        (0.0, 0.5, 1 / 1.5, 1),
        (1.0, 0.25, 9 / 3, 8),
        (0.5, 0.25, 1.5 / 1.25, 1),
        (0.9, 1.0, 0.95, 1),
    ],
)
def test_what_an_exit_gives_at_most_is_tokens_of_a_pass_over_what_they_cost(
    right, cost, faster, length
):
    assert at_most(right, cost) == (pytest.approx(faster, abs=1e-3), length)
