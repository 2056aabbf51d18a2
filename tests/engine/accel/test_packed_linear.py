"""Packed linear layers and grouped attention give the same numbers as torch's own."""

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from engine.accel import grouped_attention, packed_linear
from engine.accel.packed_linear import (
    INT8_ROWS,
    PACKED_ROWS,
    LinearGroup,
    PackedLinear,
    layout_for,
    pack,
    packable,
    packed_layouts,
)
from engine.models.view import view_of
from engine.trie.pool import Pool

SHAPE = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}


@pytest.fixture(params=packed_layouts())
def layout(request):
    return request.param


@pytest.fixture(params=["llama", "qwen2, whose projections have biases"])
def pair(request, layout):
    """A model, and a packed and grouped view of it."""
    torch.manual_seed(0)
    if request.param == "llama":
        model = LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    else:
        model = Qwen2ForCausalLM(Qwen2Config(**SHAPE)).eval()
        for layer in model.model.layers:
            nn.init.normal_(layer.self_attn.q_proj.bias)
    view = view_of(model)
    pack(view, layout)
    assert grouped_attention.group(view)
    return model, view


def layers(model):
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)]


ROWS = [1, PACKED_ROWS[0] - 1, PACKED_ROWS[0], 13, PACKED_ROWS[-1], PACKED_ROWS[-1] + 1]


@pytest.mark.parametrize("rows", ROWS)
def test_packed_weights_give_equal_logits_for_any_number_of_rows(pair, rows):
    model, view = pair
    assert {type(layer) for layer in layers(view)} == {PackedLinear}
    assert {type(layer) for layer in layers(model)} == {nn.Linear}
    ids = torch.randint(0, 96, (1, rows), generator=torch.Generator().manual_seed(rows))
    with torch.no_grad():
        torch.testing.assert_close(view(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [INT8_ROWS[0], 2, INT8_ROWS[-1], INT8_ROWS[-1] + 1])
def test_8_bit_weights_are_close_enough_for_drafts(pair, layout, rows, monkeypatch):
    model, _ = pair
    monkeypatch.setattr(packed_linear, "_fastest", lambda groups, layouts, rows: layouts[0])
    rough = deepcopy(model)
    pack(rough, layout, int8=True)
    ids = torch.randint(0, 96, (1, rows), generator=torch.Generator().manual_seed(rows))
    with torch.no_grad():
        found, expected = rough(ids).logits, model(ids).logits
    error = float((found - expected).norm() / expected.norm())
    assert error < 1e-5 if rows not in INT8_ROWS else 1e-4 < error < 0.05


def test_projections_that_read_one_input_are_one_product(pair):
    _, view = pair
    block = view.model.layers[0]
    assert block.self_attn.q_proj.group is block.self_attn.v_proj.group
    assert block.mlp.gate_proj.group is block.mlp.up_proj.group
    assert block.mlp.down_proj.group is not block.mlp.gate_proj.group


@pytest.mark.parametrize("join", [False, True])
def test_a_group_of_layers_gives_the_products_of_all(join):
    members = [nn.Linear(4, size) for size in (6, 2, 2)]
    given = torch.randn(3, 4)
    expected = torch.cat([member(given) for member in members], -1)
    before = [member.weight.data_ptr() for member in members]
    torch.testing.assert_close(LinearGroup(members, join=join)(given), expected)
    assert [member.weight.data_ptr() for member in members] == before


def test_a_group_without_a_copy_follows_a_change_of_its_weights():
    members = [nn.Linear(4, size) for size in (6, 2)]
    group, given = LinearGroup(members), torch.randn(3, 4)
    members[1].weight.data = torch.randn(2, 4)
    torch.testing.assert_close(group(given), torch.cat([each(given) for each in members], -1))


def test_a_layer_that_reads_another_input_than_its_sibling_computes_its_own(pair):
    model, view = pair
    own, theirs = model.model.layers[0].mlp, view.model.layers[0].mlp
    first, other = torch.randn(1, 8, 48), torch.randn(1, 8, 48)
    with torch.no_grad():
        theirs.gate_proj(first)
        torch.testing.assert_close(theirs.up_proj(other), own.up_proj(other))
        torch.testing.assert_close(theirs.up_proj(first), own.up_proj(first))


def test_no_input_is_kept_after_the_last_layer_of_a_group(pair):
    _, view = pair
    with torch.no_grad():
        view(torch.arange(8)[None])
    assert all(layer.group._last is None for layer in layers(view))


def test_several_threads_can_run_a_packed_view(pair):
    model, view = pair
    texts = [torch.full((1, 6 + at), at + 1) for at in range(8)]

    @torch.no_grad()
    def read(ids):
        return view(ids).logits

    with ThreadPoolExecutor(4) as pool, torch.no_grad():
        for ids, logits in zip(texts * 8, pool.map(read, texts * 8), strict=True):
            torch.testing.assert_close(logits, model(ids).logits, rtol=1e-4, atol=1e-5)


def test_the_trie_gives_equal_logits_with_a_packed_and_grouped_view(pair):
    found = []
    for model in pair:
        pool = Pool(model, positions=64)
        top = pool.top(None).descend([3, 5, 4])
        tips = [top.descend([token, token + 1]) for token in range(6)]
        output_rows = pool.evaluate(tips)
        found.append(
            torch.stack([output_rows[tip].output.logits[output_rows[tip].row] for tip in tips])
        )
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("heads, key_heads", [(6, 2), (4, 4), (9, 3)])
@pytest.mark.parametrize("length", [1, 5])
def test_grouped_attention_equals_attention_with_copied_keys(heads, key_heads, length):
    torch.manual_seed(heads + length)
    query = torch.randn(1, length, heads, 8).transpose(1, 2)
    key, value = torch.randn(2, 1, key_heads, 7, 8)
    mask = torch.rand(1, 1, length, 7) < 0.7
    mask[..., 0] = True
    copied = [each.repeat_interleave(heads // key_heads, 1) for each in (key, value)]
    expected = scaled_dot_product_attention(query, *copied, attn_mask=mask, scale=0.3)
    module = nn.Module()
    module.num_key_value_groups = heads // key_heads
    found, _ = grouped_attention.grouped(module, query, key, value, mask, scaling=0.3)
    torch.testing.assert_close(found, expected.transpose(1, 2))


def test_weights_without_room_for_a_second_copy_are_not_packed(monkeypatch):
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    monkeypatch.setattr(packed_linear, "free_memory", lambda device: 100)
    layout, reason = layout_for(model)
    assert layout is None and "no room" in reason


def test_packing_is_measured_once_per_model(monkeypatch):
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    monkeypatch.setattr(packed_linear, "_fastest", lambda groups, layouts, rows: None)
    assert layout_for(model)[0] is None
    monkeypatch.setattr(packed_linear, "_fastest", lambda groups, layouts, rows: layouts[0])
    assert layout_for(model) == (None, "packed weights are not faster on this machine")
    assert layout_for(deepcopy(model))[0] is packed_layouts()[0]


def test_only_float32_models_are_packed():
    model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    assert packable(model)
    assert not packable(model.bfloat16())
