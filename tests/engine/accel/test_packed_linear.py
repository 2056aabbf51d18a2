"""Packed linear layers and attention without copies: the same numbers, by another way."""

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from engine.accel import grouped_attention as attention
from engine.accel import packed_linear as linear
from engine.accel.packed_linear import FEW, ROWS, Family, Packed
from engine.models import loading as models
from engine.trie.pool import Pool

SHAPE = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}


@pytest.fixture(params=linear.packings())
def form(request):
    """What weights are packed for."""
    return request.param


@pytest.fixture(params=["llama", "qwen2, whose projections have biases"])
def pair(request, form, monkeypatch):
    """A model as it was made, and the same one packed and grouped."""
    torch.manual_seed(0)
    if request.param == "llama":
        model = LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    else:
        model = Qwen2ForCausalLM(Qwen2Config(**SHAPE)).eval()
        for layer in model.model.layers:
            nn.init.normal_(layer.self_attn.q_proj.bias)
    quick = deepcopy(model)
    monkeypatch.setattr(
        linear, "_fastest", lambda families, forms, rows: form if form in forms else forms[0]
    )
    assert linear.pack(quick)
    attention.group(quick)
    return model, quick


def layers(model):
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize("rows", [1, ROWS[0] - 1, ROWS[0], 13, ROWS[-1], ROWS[-1] + 1])
def test_any_number_of_rows_gives_the_same_logits(pair, rows):
    model, quick = pair
    assert {type(layer) for layer in layers(quick)} == {Packed}
    ids = torch.randint(0, 96, (1, rows), generator=torch.Generator().manual_seed(rows))
    with torch.no_grad():
        torch.testing.assert_close(quick(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [FEW[0], 2, FEW[-1], FEW[-1] + 1])
def test_weights_of_eight_bits_are_near_enough_for_drafts(pair, rows):
    model, quick = pair
    rough = deepcopy(model)
    assert linear.pack(rough, like=quick, rough=True)
    ids = torch.randint(0, 96, (1, rows), generator=torch.Generator().manual_seed(rows))
    with torch.no_grad():
        found, expected = rough(ids).logits, model(ids).logits
    error = float((found - expected).norm() / expected.norm())
    assert error < 1e-5 if rows not in FEW else 1e-4 < error < 0.05


def test_what_did_not_pay_for_one_model_is_not_tried_for_another_like_it(pair):
    model, _ = pair
    assert not linear.pack(deepcopy(model), like=model)


def test_layers_that_read_one_input_are_one_product(pair):
    _, quick = pair
    block = quick.model.layers[0]
    assert block.self_attn.q_proj.family is block.self_attn.v_proj.family
    assert block.mlp.gate_proj.family is block.mlp.up_proj.family
    assert block.mlp.down_proj.family is not block.mlp.gate_proj.family


def test_layers_of_one_family_have_their_weights_in_one_place():
    members = [nn.Linear(4, size) for size in (6, 2, 2)]
    given = torch.randn(3, 4)
    expected = torch.cat([member(given) for member in members], -1)
    family = Family(members)
    torch.testing.assert_close(family(given), expected)
    starts = [member.weight.data_ptr() - family.weight.data_ptr() for member in members]
    assert starts == [0, 6 * 4 * 4, 8 * 4 * 4]


def test_a_layer_that_is_given_another_input_than_its_sibling_uses_its_own(pair):
    model, quick = pair
    own, theirs = model.model.layers[0].mlp, quick.model.layers[0].mlp
    first, other = torch.randn(1, 8, 48), torch.randn(1, 8, 48)
    with torch.no_grad():
        theirs.gate_proj(first)
        torch.testing.assert_close(theirs.up_proj(other), own.up_proj(other))
        torch.testing.assert_close(theirs.up_proj(first), own.up_proj(first))


def test_nothing_of_an_input_is_kept_when_the_last_layer_has_read_it(pair):
    _, quick = pair
    with torch.no_grad():
        quick(torch.arange(8)[None])
    assert all(layer.family._last is None for layer in layers(quick))


def test_several_threads_read_one_model(pair):
    model, quick = pair
    texts = [torch.full((1, 6 + at), at + 1) for at in range(8)]

    @torch.no_grad()
    def read(ids):
        return quick(ids).logits

    with ThreadPoolExecutor(4) as pool, torch.no_grad():
        for ids, logits in zip(texts * 8, pool.map(read, texts * 8), strict=True):
            torch.testing.assert_close(logits, model(ids).logits, rtol=1e-4, atol=1e-5)


def test_the_trie_reads_a_packed_and_grouped_model_as_the_plain_one(pair):
    readings = []
    for model in pair:
        pool = Pool(model, positions=64)
        top = pool.top(None).descend([3, 5, 4])
        tips = [top.descend([token, token + 1]) for token in range(6)]
        places = pool.evaluate(tips)
        readings.append(torch.stack([places[tip].reading.logits[places[tip].row] for tip in tips]))
    torch.testing.assert_close(*readings, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("heads, key_heads", [(6, 2), (4, 4), (9, 3)])
@pytest.mark.parametrize("length", [1, 5])
def test_heads_that_share_keys_attend_as_if_each_had_its_own(heads, key_heads, length):
    torch.manual_seed(heads + length)
    query = torch.randn(1, length, heads, 8).transpose(1, 2)
    key, value = torch.randn(2, 1, key_heads, 7, 8)
    mask = torch.rand(1, 1, length, 7) < 0.7
    mask[..., 0] = True
    copied = [each.repeat_interleave(heads // key_heads, 1) for each in (key, value)]
    expected = scaled_dot_product_attention(query, *copied, attn_mask=mask, scale=0.3)
    module = nn.Module()
    module.num_key_value_groups = heads // key_heads
    found, _ = attention.grouped(module, query, key, value, mask, scaling=0.3)
    torch.testing.assert_close(found, expected.transpose(1, 2))


def test_weights_that_have_no_room_twice_stay_as_they_are(monkeypatch):
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    monkeypatch.setattr(models, "_free", lambda device: 100)
    models._quicken(model, needed=51)
    assert {type(layer) for layer in layers(model)} == {nn.Linear}


def test_other_kinds_of_numbers_are_left_alone():
    model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    assert linear.packable(model)
    assert not linear.packable(model.bfloat16())
