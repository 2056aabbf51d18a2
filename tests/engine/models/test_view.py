"""A view of a model shares its weights, and nothing else; a fingerprint notices changes."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM

from engine.models.view import Fingerprint, attention_of, is_modified, view_of
from tests.tiny import PLAIN, TRIE, tiny

IDS = torch.tensor([[5, 6, 7]])


@pytest.mark.parametrize("kind", TRIE)
def test_a_view_computes_what_the_model_computes(kind: str) -> None:
    model = tiny(kind).module
    with torch.no_grad():
        assert torch.equal(view_of(model)(IDS).logits, model(IDS).logits)


@pytest.mark.parametrize("kind", [*TRIE, *PLAIN])
def test_a_view_has_modules_and_configs_of_its_own_and_the_models_tensors(kind: str) -> None:
    model = tiny(kind).module
    view = view_of(model)
    assert not {*map(id, view.modules())} & {*map(id, model.modules())}
    assert [*map(type, view.modules())] == [*map(type, model.modules())]
    assert [*map(id, view.parameters())] == [*map(id, model.parameters())]
    assert [*map(id, view.buffers())] == [*map(id, model.buffers())]
    assert view.config is not model.config and view.config.to_dict() == model.config.to_dict()


def test_modules_that_are_used_twice_are_copied_once() -> None:
    model: Any = LlamaForCausalLM(tiny("llama").module.config)
    model.model.layers[1].mlp = model.model.layers[0].mlp
    view: Any = view_of(model)
    assert view.model.layers[0].mlp is view.model.layers[1].mlp is not model.model.layers[0].mlp


def test_changes_of_a_view_stay_in_the_view() -> None:
    model: Any = LlamaForCausalLM(tiny("llama").module.config).eval()
    view: Any = view_of(model)
    view.set_attn_implementation("eager")
    view.model.layers[0].register_forward_hook(lambda *args: None)
    view.model.layers[1].mlp = nn.Identity()
    view(IDS, output_hidden_states=True)
    assert attention_of(model) == "sdpa" and type(model.model.layers[1].mlp).__name__ == "LlamaMLP"
    assert not any(module._forward_hooks for module in model.modules())


def test_hooks_of_the_model_run_in_its_views() -> None:
    model: Any = copy.deepcopy(tiny("llama")).module
    called: list[int] = []
    model.model.layers[0].register_forward_hook(lambda *args: called.append(0))
    view_of(model)(IDS)
    assert called == [0]


def test_hooks_and_a_forward_of_its_own_modify_a_module() -> None:
    linear: Any = nn.Linear(2, 2)
    assert not is_modified(linear)
    hook = linear.register_forward_pre_hook(lambda *args: None)
    assert is_modified(linear)
    hook.remove()
    linear.forward = lambda given: given
    assert is_modified(linear)


def test_an_unchanged_model_matches_its_fingerprint() -> None:
    model = LlamaForCausalLM(tiny("llama").module.config).eval()
    before = Fingerprint(model)
    model(IDS)
    view_of(model)(IDS, output_hidden_states=True)
    assert before.matches(model)


@pytest.mark.parametrize("row", [0, 3, -1])
def test_a_row_that_is_written_through_data_changes_the_fingerprint(row: int) -> None:
    torch.manual_seed(0)
    model = copy.deepcopy(tiny("llama")).module
    wide = nn.Linear(600, 700)
    model.add_module("wide", wide)
    before = Fingerprint(model)
    wide.weight.data[row] += 1.0
    assert not before.matches(model)
