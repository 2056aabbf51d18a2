"""`custom_generate` and `Playground` leave a model that was handed in exactly as it was."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import strategies
from engine.models.model import Model
from playground import Playground
from tests.tiny import TRIE, tiny

SETTINGS: dict[str, Any] = {"num_beams": 4, "max_new_tokens": 8}


def own(kind: str) -> Any:
    """A model that only this test has, without hooks that other tests may have left."""
    shared = tiny(kind)
    module = type(shared.module)(copy.deepcopy(shared.module.config)).eval()
    module.load_state_dict(shared.module.state_dict())
    module.generation_config = copy.deepcopy(shared.module.generation_config)
    return Model(shared.name, module, shared.tokenizer)


def generated(model: Model) -> list[int]:
    inputs = model.tokenizer("Hello there", return_tensors="pt", return_token_type_ids=False)
    generate: Any = model.module.generate
    output = generate(**inputs, **SETTINGS, custom_generate=strategies.beam_search.generate)
    return list(output[0].tolist())


def compared(lab: Playground) -> list[int]:
    choice = ("beam_search", {"num_beams": SETTINGS["num_beams"]})
    [trace] = lab.compare("Hello there", [choice], max_new_tokens=SETTINGS["max_new_tokens"])
    return list(trace.sequences[0].token_ids)


def reference(model: Model) -> list[int]:
    inputs = model.tokenizer("Hello there", return_tensors="pt", return_token_type_ids=False)
    generate: Any = copy.deepcopy(model).module.generate
    return list(generate(**inputs, **SETTINGS)[0].tolist())


def state(module: nn.Module) -> list[Any]:
    """All that a caller can see of a model."""
    modules = [
        (
            name,
            type(each),
            sorted(vars(each)),
            sorted(each._forward_hooks),
            sorted(each._forward_pre_hooks),
        )
        for name, each in module.named_modules()
    ]
    tensors = [
        (name, id(each), each.data_ptr(), each._version, each.stride(), each.tolist())
        for name, each in [*module.named_parameters(), *module.named_buffers()]
    ]
    return [modules, tensors, module.config.to_dict(), module.config._attn_implementation]


@pytest.mark.parametrize("kind", [*TRIE, "t5"])
def test_custom_generate_leaves_every_class_weight_hook_and_config_alone(kind: str) -> None:
    model = own(kind)
    before = state(model.module)
    generated(model)
    assert state(model.module) == before


@pytest.mark.parametrize("kind", ["llama", "gpt2", "t5"])
def test_playground_leaves_every_class_weight_hook_and_config_alone(kind: str) -> None:
    model = own(kind)
    before = state(model.module)
    lab = Playground(model)
    lab.compare("Hello there", ["greedy", ("sample", {"guidance_scale": 1.5})], max_new_tokens=3)
    assert state(model.module) == before


def test_playground_counts_the_calls_of_a_processor_without_a_hook() -> None:
    lab = Playground(own("llama"))
    guided = ("greedy", {"guidance_scale": 1.5})
    plain, with_guidance = lab.compare("Hello there", ["greedy", guided], max_new_tokens=4)
    assert with_guidance.forward_passes > plain.forward_passes


@pytest.mark.parametrize("kind", ["llama", "gpt2", "t5"])
def test_a_model_can_be_copied_pickled_and_converted_after_a_call(kind: str) -> None:
    model = own(kind)
    expected = generated(model)
    for twin in (copy.deepcopy(model.module), pickle.loads(pickle.dumps(model.module))):
        assert generated(Model("twin", twin, model.tokenizer)) == expected
    model.module.to(torch.bfloat16)
    assert {weight.dtype for weight in model.module.parameters()} == {torch.bfloat16}
    assert len(generated(model)) > 2
    model.module.to(torch.float64)
    assert generated(model) == reference(model)


class Adapter(nn.Module):
    """A projection with a low-rank change, as adapters wrap it."""

    def __init__(self, wrapped: nn.Linear) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.wrapped = wrapped
        self.change = nn.Linear(wrapped.in_features, wrapped.out_features, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.wrapped(states) + 20 * self.change(states)


def replace_data(module: Any) -> None:
    weight = module.model.layers[0].self_attn.v_proj.weight
    weight.data = weight.data.flip(0).clone()


def write_to_data(module: Any) -> None:
    weight = module.model.layers[1].mlp.up_proj.weight
    weight.data.copy_(weight.data.flip(0))


def write_in_place(module: Any) -> None:
    with torch.no_grad():
        module.model.layers[0].self_attn.k_proj.weight.mul_(-3)


def replace_parameter(module: Any) -> None:
    linear = module.model.layers[0].self_attn.o_proj
    linear.weight = nn.Parameter(linear.weight.flip(0).clone())


def wrap_projection(module: Any) -> None:
    attention = module.model.layers[0].self_attn
    attention.q_proj = Adapter(attention.q_proj)


def hook_projection(module: Any) -> None:
    module.model.layers[1].mlp.gate_proj.register_forward_hook(lambda *args: -args[2])


CHANGES = [
    replace_data,
    write_to_data,
    write_in_place,
    replace_parameter,
    wrap_projection,
    hook_projection,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_two_calls_of_custom_generate_takes_effect(change: Any) -> None:
    model = own("llama")
    before = generated(model)
    assert before == reference(model)
    change(model.module)
    assert generated(model) == reference(model) != before


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_two_comparisons_takes_effect(change: Any) -> None:
    model = own("llama")
    lab = Playground(model)
    before = compared(lab)
    change(model.module)
    after = compared(lab)
    assert after == compared(Playground(copy.deepcopy(model))) != before
    assert reference(model)[-len(after) :] == after
