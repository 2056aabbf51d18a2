"""Trained drafters: found by the target's embeddings, which they share."""

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine.errors import PlaygroundError
from engine.models import trained
from engine.models.model import Model
from engine.trie.early_exit import first_layers
from tests.draft_models import train
from tests.tiny import SHAPE, SIZE, TOKENS, generate, tiny

KEPT = 150


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A tiny Llama under an unknown name, with files trained for it."""
    torch.manual_seed(7)
    module = LlamaForCausalLM(LlamaConfig(**SHAPE, **TOKENS)).eval()
    model = replace(tiny("llama"), name="some/folder", module=module)
    train(model, tmp_path, monkeypatch, kept=KEPT)
    return model


def test_draft_model_shares_embeddings_and_has_its_own_layers(target: Model) -> None:
    draft = trained.draft(target)
    assert draft.name == "tiny-draft" and trained.draft_names()[-1] == draft.name
    ours, theirs = draft.module, target.module
    assert ours.get_input_embeddings() is theirs.get_input_embeddings()
    assert ours.config.num_hidden_layers == len(ours.model.layers) == 1
    assert theirs.config.num_hidden_layers == 2 and not theirs.config.tie_word_embeddings
    mine = ours.model.layers[0].mlp.up_proj.weight
    torch.testing.assert_close(mine, theirs.model.layers[0].mlp.up_proj.weight, rtol=0, atol=0.02)
    assert (ours.dtype, ours.device, ours.training) == (theirs.dtype, theirs.device, False)
    assert trained.draft(target) is draft


def test_tokens_outside_the_reduced_vocabulary_have_probability_zero(
    target: Model,
) -> None:
    draft = trained.draft(target)
    ids = torch.tensor([[5, 9, 7, 40, 41]])
    with torch.no_grad():
        logits = draft.module(ids).logits[0]
        states = draft.module.model(ids).last_hidden_state[0]
        expected = target.module.lm_head(states)
    assert logits.shape == (5, SIZE)
    torch.testing.assert_close(logits[:, -KEPT:], expected[:, -KEPT:])
    assert logits[:, :-KEPT].isfinite().all()
    assert logits.softmax(-1)[:, :-KEPT].count_nonzero() == 0


@pytest.mark.parametrize("do_sample", [False, True])
def test_transformers_accepts_the_draft_model(target: Model, do_sample: bool) -> None:
    settings = {"max_new_tokens": 12, "do_sample": do_sample, "top_k": 0}
    drafted, _ = generate(
        target, "Hello", {**settings, "assistant_model": trained.draft(target).module}, 1
    )
    alone, _ = generate(target, "Hello", settings, 1)
    assert len(drafted[0]) == 12 and (do_sample or drafted == alone)


def test_heads_are_read_from_all_files(target: Model) -> None:
    heads = trained.heads(target)
    assert heads is not None and heads.depth == 2 and trained.heads(target) is heads
    assert heads.logits(torch.randn(3, 32)).shape == (3, KEPT)
    after = heads.state(1, torch.randn(3, 32), torch.tensor([5, 6, 7]))
    assert after.shape == (3, 32) and after.isfinite().all()


def test_exit_replaces_the_final_norm_and_the_output_matrix(target: Model) -> None:
    assert trained.exit_layers(target) == [1]
    [(layers, leaving)] = trained.exits(target).items()
    assert layers == 1 and trained.exits(target)[1] is leaving
    ids = torch.tensor([[5, 9, 7, 40, 41]])
    with torch.no_grad():
        state = target.module(ids, output_hidden_states=True).hidden_states[1]
        expected = target.module.lm_head(leaving.norm(state))[..., -KEPT:]
        own = first_layers(target.module, 1)(ids, use_cache=False).logits[..., -KEPT:]
        logits = first_layers(target.module, 1, leaving)(ids, use_cache=False).logits
    torch.testing.assert_close(logits[..., -KEPT:], expected)
    assert not torch.allclose(own, expected, atol=0.1)
    assert logits.softmax(-1)[..., :-KEPT].count_nonzero() == 0


@pytest.mark.parametrize(
    "made",
    [
        lambda model: trained.draft(model).module,
        lambda model: trained.heads(model),
        lambda model: trained.exits(model)[1].norm,
    ],
    ids=["draft", "heads", "exit"],
)
def test_drafters_are_freed_with_their_target(target: Model, made: Any) -> None:
    module = _copy(target)
    alive = weakref.ref(made(replace(target, module=module)))
    assert alive() is not None
    del module
    gc.collect()
    assert alive() is None


def _copy(target: Model) -> LlamaForCausalLM:
    copy = LlamaForCausalLM(target.module.config).eval()
    copy.load_state_dict(target.module.state_dict())
    return copy


def test_other_models_have_no_trained_drafters(target: Model) -> None:
    other = tiny("gpt2")
    assert trained.target_of(other) is None and trained.heads(other) is None
    assert trained.exits(other) == {} and trained.exit_layers(other) == []
    torch.manual_seed(8)
    alike = replace(target, module=LlamaForCausalLM(LlamaConfig(**SHAPE, **TOKENS)))
    for model in (other, alike):
        with pytest.raises(PlaygroundError, match=r"no draft model was trained for .*tiny-draft"):
            trained.draft(model)
    assert trained.target_of(replace(target, module=_copy(target).bfloat16())) == "tiny"
