"""The private interfaces of transformers and torch that docs/upgrading.md lists still work."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.nn.functional import linear
from transformers import GenerationConfig, cache_utils, masking_utils
from transformers.integrations import sdpa_attention

from engine.trie import cache_layer
from tests.tiny import SIZE, tiny

DOCUMENT = Path(__file__).parents[2] / "docs" / "upgrading.md"


def custom_generate() -> dict[str, Any]:
    """Return the arguments that `generate` passes to a custom decoding function."""
    return tiny("llama").generate(
        input_ids=torch.tensor([[5, 6]]),
        attention_mask=torch.ones(1, 2, dtype=torch.long),
        max_new_tokens=3,
        custom_generate=lambda model, input_ids, **arguments: arguments,
    )


def token_tensors() -> None:
    config = custom_generate()["generation_config"]
    assert config._eos_token_tensor.tolist() == [2]
    assert int(config._pad_token_tensor) == 0


def default_params() -> None:
    assert GenerationConfig()._get_default_generation_params()["num_beams"] == 1


def attention_name() -> None:
    assert tiny("llama").module.config._attn_implementation is not None


def callback_arguments() -> None:
    arguments = custom_generate()
    assert {"logits_processor", "stopping_criteria", "generation_config"} <= arguments.keys()


def cache_base_class() -> None:
    base = cache_utils.CacheLayerMixin
    [ours] = [each for each in vars(cache_layer).values() if base in getattr(each, "__bases__", ())]
    assert base.__abstractmethods__ and not ours.__abstractmethods__


def sdpa_mask() -> None:
    assert callable(masking_utils.sdpa_mask)


def sdpa_forward() -> None:
    names = list(inspect.signature(sdpa_attention.sdpa_attention_forward).parameters)
    assert names[:5] == ["module", "query", "key", "value", "attention_mask"]


def output_capturing() -> None:
    assert hasattr(transformers.utils, "output_capturing")


def green_list() -> None:
    processor = transformers.WatermarkLogitsProcessor(SIZE, "cpu", greenlist_ratio=0.5)
    processor.set_seed(torch.tensor([5]))
    first = processor.rng.initial_seed()
    processor.set_seed(torch.tensor([6]))
    assert processor.rng.initial_seed() != first
    assert processor.greenlist_size == SIZE // 2


def g_values() -> None:
    processor = transformers.SynthIDTextWatermarkLogitsProcessor(
        ngram_len=3,
        keys=[1, 2],
        sampling_table_size=64,
        sampling_table_seed=0,
        context_history_size=8,
        device="cpu",
    )
    assert processor.compute_g_values(torch.tensor([[5, 6, 7, 8]])).shape == (1, 2, 2)


def onednn() -> None:
    if not torch.backends.mkldnn.is_available():
        return  # packed_linear does not use it then either
    rows, weight = torch.randn(2, 64), torch.randn(32, 64)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, 2)
    product = torch.ops.mkldnn._linear_pointwise(rows, packed, None, "none", [], "")
    torch.testing.assert_close(product, linear(rows, weight), rtol=1e-4, atol=1e-4)


def mkl() -> None:
    if not torch.backends.mkl.is_available():
        return  # not on this processor
    rows, weight = torch.randn(2, 64), torch.randn(32, 64)
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, 2)
    product = torch.ops.mkl._mkl_linear(rows, packed, weight, None, 2)
    torch.testing.assert_close(product, linear(rows, weight), rtol=1e-4, atol=1e-4)


def int8() -> None:
    weight = torch.randint(-127, 128, (32, 64), dtype=torch.int8)
    rows, scales = torch.randn(2, 64).bfloat16(), torch.ones(32).bfloat16()
    product = torch._weight_int8pack_mm(rows, weight, scales)
    torch.testing.assert_close(product, linear(rows, weight.bfloat16()), rtol=0.05, atol=4.0)


def foreach_copy() -> None:
    target, source = [torch.zeros(2), torch.zeros(3)], [torch.ones(2), torch.ones(3)]
    torch._foreach_copy_(target, source)
    assert all(map(torch.equal, target, source))


def int4() -> None:
    assert callable(torch._convert_weight_to_int4pack_for_cpu)
    assert callable(torch._weight_int4pack_mm_for_cpu)


def module_tree() -> None:
    module = nn.Sequential(nn.Linear(2, 3))
    assert module._modules == {"0": module[0]}
    module.register_forward_hook(lambda *_: None)
    module.register_forward_pre_hook(lambda *_: None)
    assert len(module._forward_hooks) == len(module._forward_pre_hooks) == 1


def tensor_version() -> None:
    tensor = torch.zeros(2)
    before = tensor._version
    tensor.add_(1)
    assert tensor._version > before


CHECKS: dict[str, Callable[[], None]] = {
    "GenerationConfig._eos_token_tensor": token_tensors,
    "GenerationConfig._get_default_generation_params": default_params,
    "PreTrainedConfig._attn_implementation": attention_name,
    "generate(custom_generate=…)": callback_arguments,
    "cache_utils.CacheLayerMixin": cache_base_class,
    "masking_utils.sdpa_mask": sdpa_mask,
    "integrations.sdpa_attention.sdpa_attention_forward": sdpa_forward,
    "utils.output_capturing": output_capturing,
    "WatermarkLogitsProcessor.set_seed": green_list,
    "SynthIDTextWatermarkLogitsProcessor.compute_g_values": g_values,
    "torch.ops.mkldnn._reorder_linear_weight": onednn,
    "torch.ops.mkl._mkl_reorder_linear_weight": mkl,
    "torch._weight_int8pack_mm": int8,
    "torch._foreach_copy_": foreach_copy,
    "torch._convert_weight_to_int4pack_for_cpu": int4,
    "Module._modules": module_tree,
    "Tensor._version": tensor_version,
}


def rows(*libraries: str) -> dict[str, str]:
    """Return the table rows of docs/upgrading.md by the first interface of each."""
    sections = re.split(r"^## ", DOCUMENT.read_text("utf-8"), flags=re.M)
    found = [part for part in sections if part.startswith(libraries)]
    assert len(found) == len(libraries)
    lines = [line for part in found for line in part.splitlines() if line.startswith("| `")]
    return {line.split("`")[1]: line for line in lines}


def test_every_documented_interface_is_tested() -> None:
    assert rows("transformers", "torch").keys() == CHECKS.keys()


@pytest.mark.parametrize("interface", CHECKS)
def test_interface_behaves_as_documented(interface: str) -> None:
    _, names, where, why, remedy, _ = rows("transformers", "torch")[interface].split("|")
    try:
        CHECKS[interface]()
    except Exception as error:
        pytest.fail(
            f"{names.strip()} has changed ({error!r}). Used in:{where}Why:{why}What to do:{remedy}"
        )
