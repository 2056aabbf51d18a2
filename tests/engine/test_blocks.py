"""Decoder layers in few kernels: the same numbers, for a pool's ticks alone, if they agree.

The kernels run in Triton's interpreter; what is around them is tested with the same steps written
in torch.
"""

import copy
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention, silu
from transformers import DynamicCache, PreTrainedModel

from engine import blocks
from engine import pool as pools
from engine.blocks import Quick, join, quicken
from engine.plain import Plain
from engine.pool import Pool
from engine.pool_layer import Kernels
from tests.tiny import TRIE, tiny

FEW = ("llama", "qwen3", "mistral")


class Norm(NamedTuple):
    weight: torch.Tensor
    epsilon: float


def normalize(hidden, norm):
    return norm.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + norm.epsilon)


def add_and_normalize(hidden, added, norm):
    return hidden + added, normalize(hidden + added, norm)


def turn_and_write(joined, angles, slots, keys, values, norms):
    shared, _, size = keys.shape
    heads = joined.shape[1] // size - 2 * shared
    parts = joined.view(len(joined), -1, size).split((heads, shared, shared), 1)
    query, key, value = parts
    if norms:
        query, key = normalize(query, norms[0]), normalize(key, norms[1])
    cos, sin = (each[:, None] for each in angles)
    query, key = (
        each * cos + torch.cat((-each[..., size // 2 :], each[..., : size // 2]), -1) * sin
        for each in (query, key)
    )
    keys[:, slots], values[:, slots] = key.transpose(0, 1), value.transpose(0, 1)
    return query


def attend(query, keys, values, mask, scale):
    seen, shape = slice(mask.shape[1]), (len(query), -1)
    attended = scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys[None, :, seen],
        values[None, :, seen],
        attn_mask=mask,
        scale=scale,
        enable_gqa=True,
    )
    return attended[0].transpose(0, 1).reshape(shape)


def gate(joined):
    opened, through = joined.chunk(2, -1)
    return silu(opened) * through


@pytest.fixture(autouse=True)
def kernels_in_torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    layer = SimpleNamespace(
        Norm=Norm,
        normalize=normalize,
        add_and_normalize=add_and_normalize,
        turn_and_write=turn_and_write,
        gate=gate,
    )
    monkeypatch.setattr(blocks, "triton_layer", layer)
    attention = SimpleNamespace(attend=attend)
    monkeypatch.setattr(blocks, "triton_attention", attention, raising=False)
    monkeypatch.setattr(pools, "recordable", lambda model: True)
    monkeypatch.setattr(pools, "GRAPH_CAPACITY", 64)
    return layer


def own(kind: str) -> PreTrainedModel:
    shared = tiny(kind).module
    module = type(shared)(copy.deepcopy(shared.config)).eval().requires_grad_(False)
    module.load_state_dict(shared.state_dict())
    return module


def logits(backend: Pool | Plain) -> torch.Tensor:
    start = backend.top(None).descend([3, 4, 5])
    cells = [start, start.child(6), start.child(7), start.descend([6, 8])]
    places = backend.evaluate(cells)
    return torch.stack([places[cell].reading.logits[places[cell].row] for cell in cells])


@pytest.mark.parametrize("kind", TRIE)
def test_layers_of_the_usual_kind_run_in_few_kernels_and_say_the_same(kind: str) -> None:
    model = own(kind)
    expected = logits(Plain(model))
    pool = Pool(model, positions=256)
    assert (pool._plan.kernels is Kernels.FEW) == (kind in FEW)
    torch.testing.assert_close(logits(pool), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", FEW)
def test_whoever_else_runs_the_model_runs_it_as_it_was(kind: str) -> None:
    model, ids = own(kind), torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        before = model(input_ids=ids).logits
        assert quicken(model)
        for cache in (None, DynamicCache()):
            after = model(input_ids=ids, past_key_values=cache).logits
            torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_layers_that_do_not_agree_stay_as_they_are(
    kernels_in_torch: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    kernels_in_torch.gate = lambda joined: gate(joined) * 1.2
    model = own("llama")
    with caplog.at_level(logging.INFO):
        assert not quicken(model)
    assert "is off by" in caplog.text
    assert not [layer for layer in model.modules() if isinstance(layer, Quick)]


def test_what_is_written_into_the_cache_is_compared_as_well(
    kernels_in_torch: SimpleNamespace,
) -> None:
    def forgetful(joined, angles, slots, keys, values, norms):
        query = turn_and_write(joined, angles, slots, keys.clone(), values.clone(), norms)
        keys[:, slots], values[:, slots] = 0, 0
        return query

    kernels_in_torch.turn_and_write = forgetful
    assert not quicken(own("llama"))


def test_two_pools_of_a_model_share_its_layers() -> None:
    model = own("llama")
    assert quicken(model)
    layers = [layer for layer in model.modules() if isinstance(layer, Quick)]
    known = [layer.block for layer in layers]
    assert quicken(model) and [layer.block for layer in layers] == known


def test_joined_layers_have_their_weights_in_one_place() -> None:
    members = [torch.nn.Linear(4, size) for size in (6, 2, 2)]
    given = torch.randn(3, 4)
    expected = torch.cat([member(given) for member in members], -1)
    weight, bias = join(members)
    torch.testing.assert_close(torch.nn.functional.linear(given, weight, bias), expected)
    starts = [member.weight.data_ptr() - weight.data_ptr() for member in members]
    assert starts == [0, 6 * 4 * 4, 8 * 4 * 4]


def test_the_kernels_themselves_say_the_same() -> None:
    script = Path(__file__).with_name("interpreted.py")
    # Where `make test` puts Triton: apart, because torch imports it wherever it finds it.
    apart = {"PYTHONPATH": str(Path(sys.prefix) / "triton"), "TRITON_INTERPRET": "1"}
    environment = {**os.environ, **apart}
    subprocess.run([sys.executable, script], check=True, env=environment)
