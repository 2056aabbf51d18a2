"""Decoder layers in few kernels: the same numbers, for a pool's ticks alone, if they agree.

The kernels of a GPU run in Triton's interpreter; what is around them is tested with the steps that
a CPU takes.
"""

import copy
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import DynamicCache, PreTrainedModel

from engine.accel import fused_layers as blocks
from engine.accel import torch_layer
from engine.accel.fused_layers import Quick, quicken
from engine.trie import pool as pools
from engine.trie.cache_layer import Kernels
from engine.trie.plain import Plain
from engine.trie.pool import Pool
from tests.tiny import TRIE, tiny

FEW = ("llama", "qwen3", "mistral")


@pytest.fixture(params=["on a CPU", "as on a GPU"], autouse=True)
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The steps that the test's layers run in."""
    steps = SimpleNamespace(**vars(torch_layer))
    monkeypatch.setattr(blocks, "_steps", lambda model: steps)
    if request.param == "as on a GPU":
        monkeypatch.setattr(pools, "recordable", lambda model: True)
        monkeypatch.setattr(pools, "GRAPH_CAPACITY", 64)
    return steps


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
    assert (pool._plan.kernels is Kernels.FUSED) == (kind in FEW)
    torch.testing.assert_close(logits(pool), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", FEW)
def test_whoever_else_runs_the_model_runs_it_as_it_was(kind: str) -> None:
    model, ids = own(kind), torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        before = model(input_ids=ids).logits
        assert quicken(model) is None
        for cache in (None, DynamicCache()):
            after = model(input_ids=ids, past_key_values=cache).logits
            torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_layers_that_do_not_agree_stay_as_they_are(
    steps: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    steps.gate = lambda joined: torch_layer.gate(joined) * 1.2
    model = own("llama")
    with caplog.at_level(logging.INFO):
        assert "is off by" in (quicken(model) or "")
    assert "is off by" in caplog.text
    assert not [layer for layer in model.modules() if isinstance(layer, Quick)]


def test_what_is_written_into_the_cache_is_compared_as_well(steps: SimpleNamespace) -> None:
    def forgetful(joined, angles, slots, keys, values, norms):
        into = keys.clone(), values.clone()
        query = torch_layer.turn_and_write(joined, angles, slots, *into, norms)
        keys[:, slots], values[:, slots] = 0, 0
        return query

    steps.turn_and_write = forgetful
    assert "is off by" in (quicken(own("llama")) or "")


def test_two_pools_of_a_model_share_its_layers() -> None:
    model = own("llama")
    assert quicken(model) is None
    layers = [layer for layer in model.modules() if isinstance(layer, Quick)]
    known = [layer.block for layer in layers]
    assert quicken(model) is None and [layer.block for layer in layers] == known


@pytest.mark.parametrize("steps", ["as on a GPU"], indirect=True)
def test_the_kernels_themselves_say_the_same(steps: SimpleNamespace) -> None:
    script = Path(__file__).with_name("interpreted.py")
    # Where `make test` puts Triton: apart, because torch imports it wherever it finds it.
    apart = {"PYTHONPATH": str(Path(sys.prefix) / "triton"), "TRITON_INTERPRET": "1"}
    environment = {**os.environ, **apart}
    subprocess.run([sys.executable, script], check=True, env=environment)
