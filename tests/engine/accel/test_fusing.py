"""Compiled parts of a model: the same logits, on the threads that want them, and no trace after.

Traced by torch's compiler, but not turned into kernels: that takes long and is torch's own matter.
"""

import logging
import threading
from functools import partial

import pytest
import torch
from transformers import LlamaForCausalLM
from transformers.models.llama import modeling_llama

from engine.accel import fusing
from engine.accel.fusing import Fused
from tests.tiny import TRIE, tiny

IDS = torch.tensor([[5, 6, 7, 8]])


@pytest.fixture(autouse=True)
def traced_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "_rotary", {})
    compiled = torch.compile
    monkeypatch.setattr(fusing.torch, "compile", partial(compiled, backend="eager"))


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=IDS).logits


def made(kind: str) -> Fused:
    fused = Fused(tiny(kind).module)
    fused.begin()
    fused.wait()
    return fused


@pytest.mark.parametrize("kind", TRIE)
def test_compiled_parts_make_no_difference_and_leave_nothing_behind(kind: str) -> None:
    model = tiny(kind).module
    before, fused = logits(model), made(kind)
    assert fused.ready
    with fused.used():
        torch.testing.assert_close(logits(model), before)
    assert not [module for module in model.modules() if "forward" in vars(module)]
    torch.testing.assert_close(logits(model), before, rtol=0, atol=0)


def test_other_threads_keep_the_parts_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    fused, model = made("llama"), tiny("llama").module
    used: list[str] = []
    for part in fused.parts:

        def watched(*args, own=part.fused, **kwargs):
            used.append(threading.current_thread().name)
            return own(*args, **kwargs)

        monkeypatch.setattr(part, "fused", watched)
    with fused.used():
        other = threading.Thread(target=logits, args=(model,), name="other")
        other.start()
        other.join()
        assert not used
        logits(model)
    assert len(used) == 5 + 2 + 2  # norms, MLPs and the rotary positions of two layers


def test_two_models_of_a_kind_may_be_compiled_at_once() -> None:
    rotary = modeling_llama.apply_rotary_pos_emb
    one, other = made("llama"), Fused(LlamaForCausalLM(tiny("llama").module.config).eval())
    other.begin()
    other.wait()
    with one.used():
        with other.used():
            logits(tiny("llama").module)
        assert modeling_llama.apply_rotary_pos_emb is not rotary
    assert modeling_llama.apply_rotary_pos_emb is rotary


def test_all_who_run_a_model_share_what_is_compiled() -> None:
    assert Fused.of(tiny("llama").module) is Fused.of(tiny("llama").module)


def test_torch_traces_nothing_while_a_model_is_called() -> None:
    started, traced = threading.Event(), threading.Event()

    def trace() -> None:
        with fusing._tracing_alone():
            started.set()
            torch.fx.symbolic_trace(torch.nn.Identity())
        traced.set()

    with fusing.TRACING:
        thread = threading.Thread(target=trace)
        thread.start()
        assert started.wait(20) and not traced.wait(0.2)
    thread.join(20)
    assert traced.is_set()


def test_what_cannot_be_compiled_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(function):
        def call(*_args, **_kwargs):
            raise RuntimeError("no compiler here")

        return call

    monkeypatch.setattr(fusing.torch, "compile", fails)
    before = logits(tiny("llama").module)
    with caplog.at_level(logging.WARNING):
        fused = made("llama")
    assert not fused.ready and "no compiler here" in caplog.text
    torch.testing.assert_close(logits(tiny("llama").module), before, rtol=0, atol=0)


def test_parts_that_make_a_difference_are_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(function):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            return result * 1.2 if isinstance(result, torch.Tensor) else result

        return call

    monkeypatch.setattr(fusing.torch, "compile", wrong)
    with caplog.at_level(logging.WARNING):
        assert not made("llama").ready
    assert "is off by" in caplog.text


def test_torch_s_own_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._dynamo.config, "disable", True)
    assert not made("llama").ready
