"""Fused decoder layers compute what transformers' own layers compute.

Triton kernels run in Triton's interpreter; the code around them is tested with the operations for a
CPU.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import DynamicCache, PreTrainedModel

from engine.accel import fused_layers
from engine.accel.accelerated_pool import GraphPool
from engine.accel.fused_layers import FusedLayer, fuse
from engine.accel.torch_layer import OPS, LayerOps, rotate_and_store
from engine.models.view import view_of
from engine.trie.plain import Plain
from engine.trie.pool import Pool
from tests.tiny import TRIE, tiny

FUSED = ("llama", "qwen3", "mistral")


def logits(backend: Pool | Plain) -> torch.Tensor:
    start = backend.top(None).descend([3, 4, 5])
    cells = [start, start.child(6), start.child(7), start.descend([6, 8])]
    output_rows = backend.evaluate(cells)
    return torch.stack([output_rows[cell].output.logits[output_rows[cell].row] for cell in cells])


def fused_layers_of(view: PreTrainedModel) -> list[torch.nn.Module]:
    return [module for module in view.modules() if isinstance(module, FusedLayer)]


@pytest.mark.parametrize("pool", [Pool, GraphPool])
@pytest.mark.parametrize("kind", TRIE)
def test_layers_of_the_llama_kind_are_fused_and_give_equal_logits(
    kind: str, pool: type[Pool]
) -> None:
    view = view_of(tiny(kind).module)
    assert (fuse(view) is None) == (kind in FUSED)
    expected = logits(Plain(tiny(kind).module))
    torch.testing.assert_close(logits(pool(view, 256)), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", FUSED)
def test_a_fused_view_runs_as_transformers_wrote_it_without_a_pool(kind: str) -> None:
    model, ids = tiny(kind).module, torch.tensor([[5, 6, 7]])
    view = view_of(model)
    assert fuse(view) is None
    with torch.inference_mode():
        expected = model(input_ids=ids).logits
        for cache in (None, DynamicCache()):
            found = view(input_ids=ids, past_key_values=cache).logits
            torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_layers_that_give_other_numbers_are_not_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = OPS._replace(gate=lambda joined: OPS.gate(joined) * 1.2)
    monkeypatch.setattr(fused_layers, "_ops", lambda view: wrong)
    view = view_of(tiny("llama").module)
    assert "is off by" in (fuse(view) or "")
    assert not fused_layers_of(view)


def test_the_keys_and_values_of_fused_layers_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(joined, rotary, slots, keys, values, norms):
        query = rotate_and_store(joined, rotary, slots, keys.clone(), values.clone(), norms)
        keys[:, slots], values[:, slots] = 0, 0
        return query

    wrong: LayerOps = OPS._replace(rotate_and_store=forgetful)
    monkeypatch.setattr(fused_layers, "_ops", lambda view: wrong)
    assert "is off by" in (fuse(view_of(tiny("llama").module)) or "")


def test_layers_with_hooks_are_not_fused() -> None:
    view = view_of(tiny("llama").module)
    view.model.layers[1].mlp.register_forward_hook(lambda *args: None)
    assert "hooks" in (fuse(view) or "")


def test_hooks_that_return_hidden_states_do_not_prevent_fusing() -> None:
    view = view_of(tiny("llama").module)
    view(input_ids=torch.tensor([[5, 6]]), output_hidden_states=True)
    assert fuse(view) is None


def test_triton_kernels_compute_what_torch_computes() -> None:
    script = Path(__file__).with_name("interpreted.py")
    # `make test` installs Triton apart, because torch imports it wherever it finds it.
    apart = {"PYTHONPATH": str(Path(sys.prefix) / "triton"), "TRITON_INTERPRET": "1"}
    environment = {**os.environ, **apart}
    subprocess.run([sys.executable, script], check=True, env=environment)
