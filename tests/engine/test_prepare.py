"""Preparing a run: settings in effect are recorded, and no process-wide state is changed."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

import engine.strategy
from engine.models.model import Model
from engine.prepare import prepare
from engine.prompt import Prompt
from engine.run import Run
from engine.strategy import Decoding, strategy
from playground import Playground
from tests.tiny import KINDS, SIZE, generate, tiny


def with_config(kind: str, **fields: Any) -> Model:
    """A tiny model of its own whose generation config has these fields."""
    model = tiny(kind)
    torch.manual_seed(7)
    module = KINDS[kind]().eval()
    for name, value in fields.items():
        setattr(module.generation_config, name, value)
    return replace(model, module=module)


@pytest.fixture
def plain_sampling(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A strategy that samples and declares no settings."""
    monkeypatch.setattr(engine.strategy, "_REGISTRY", dict(engine.strategy._REGISTRY))

    @dataclass(frozen=True)
    class Params:
        pass

    @strategy("plain_sampling", order=99, params=Params, do_sample=True, num_beams=1)
    def plain_sampling(run: Run, params: Params) -> Decoding:
        """Samples from the distribution that the processors leave."""
        node = run.root
        while True:
            token = int(run.draw(run.scores([node])[0].softmax(-1)))
            step = run.choose(node, token)
            [stop] = run.stops([node], [token])
            if stop:
                return run.finish([(step, None, stop)], stop)
            [node] = yield [(node, token)]

    yield "plain_sampling"


def test_a_sampling_strategy_without_settings_samples_from_the_whole_distribution(
    plain_sampling: str,
) -> None:
    lab = Playground(with_config("llama", temperature=0.2, top_p=0.5))
    [trace] = lab.compare("hi", [plain_sampling], max_new_tokens=3)
    for step in trace.steps:
        assert step.distribution is not None
        assert step.distribution.kept == SIZE and step.distribution.processors == ()
    assert not {"top_k", "top_p", "temperature"} & trace.settings.keys()


def test_sample_still_has_the_default_top_k_of_transformers_and_records_it() -> None:
    [trace] = Playground(tiny("llama")).compare("hi", ["sample"], max_new_tokens=2)
    assert trace.settings["top_k"] == 50
    assert trace.steps[0].distribution is not None and trace.steps[0].distribution.kept == 50


def test_the_trace_records_settings_that_come_from_the_models_generation_config() -> None:
    model = with_config("llama", repetition_penalty=1.3, temperature=0.5)
    lab = Playground(model)
    inherited, given = lab.compare(
        "hello", ["greedy", ("greedy", {"repetition_penalty": 2.0})], max_new_tokens=4
    )
    assert inherited.settings["repetition_penalty"] == 1.3
    assert given.settings["repetition_penalty"] == 2.0
    assert "temperature" not in inherited.settings  # greedy search does not read it
    assert inherited.steps[0].distribution is not None
    assert inherited.steps[0].distribution.processors == ("repetition_penalty",)


def test_custom_code_gets_the_models_sampling_settings_and_the_trace_records_them() -> None:
    def decode(model: Any, input_ids: Any, **_: Any) -> Any:
        return model.generate(input_ids, max_new_tokens=1, do_sample=False)

    lab = Playground(with_config("llama", do_sample=True, temperature=0.5))
    [trace] = lab.compare("hi", [("custom", {"custom_generate": decode})], max_new_tokens=4)
    recorded = {name: trace.settings.get(name) for name in ("do_sample", "temperature", "top_k")}
    assert recorded == {"do_sample": True, "temperature": 0.5, "top_k": 50}


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        ("greedy", {"min_new_tokens": 9}),
        ("greedy", {"min_length": 60}),
        ("contrastive_search", {"top_k": 4, "penalty_alpha": 0.6}),
        ("beam_search", {"num_beams": 1, "length_penalty": 2.0, "early_stopping": True}),
        ("sample", {"top_k": 5}),
        ("dola", {"temperature": 0.5, "repetition_penalty": 1.2}),
    ],
)
def test_transformers_logs_no_warnings(
    strategy: str, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    # A model with both minimum lengths is left out: they conflict, and a warning is correct.
    own = {} if "min_new_tokens" in settings else {"min_length": 50}
    model = with_config("llama", max_length=100, **own)
    logging.getLogger("transformers").addHandler(caplog.handler)  # it does not propagate
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            [trace] = Playground(model).compare("hi", [(strategy, settings)], max_new_tokens=5)
    finally:
        logging.getLogger("transformers").removeHandler(caplog.handler)
    assert trace.error is None and not caplog.records
    assert {name: trace.settings[name] for name in settings} == settings


def test_an_unreachable_minimum_length_gives_the_tokens_of_generate() -> None:
    model = tiny("llama")
    [ours] = Playground(model).compare("hi", ["greedy"], max_new_tokens=12, min_new_tokens=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, _ = generate(
            model, "hi", {"max_new_tokens": 12, "min_new_tokens": 40, "do_sample": False}, 0
        )
    assert [list(ours.sequences[0].token_ids)] == theirs


class Meeting(GenerationConfig):
    """A generation config that blocks its first reader until a second one arrives."""

    def to_dict(self) -> dict[str, Any]:
        meet = self.__dict__.get("meet")
        if meet is not None:
            meet()
        return {name: value for name, value in super().to_dict().items() if name != "meet"}


def test_two_calls_at_once_change_neither_loggers_nor_warning_filters() -> None:
    model = with_config("llama")
    logger = logging.getLogger("transformers.generation")

    def state() -> tuple[Any, ...]:
        loggers = [logger, logger.parent, logging.getLogger("transformers.generation.utils")]
        return (*((one.level, one.disabled, tuple(one.filters)) for one in loggers if one),
                tuple(warnings.filters), warnings.showwarning)  # fmt: skip

    before, during = state(), list[Any]()
    both_inside, first_done = threading.Barrier(2), threading.Event()

    def meet() -> None:
        if threading.current_thread().name not in ("first", "second"):
            return
        both_inside.wait(60)
        during.append(state())
        if threading.current_thread().name == "second":
            first_done.wait(60)

    config = Meeting(**model.module.generation_config.to_dict())
    model.module.generation_config = config
    config.meet = meet

    def work() -> None:
        prepare(model, Prompt("hi", [5, 6], [5, 6]), {"max_new_tokens": 3, "do_sample": False}, ())
        if threading.current_thread().name == "first":
            first_done.set()

    threads = [threading.Thread(target=work, name=name) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(during) == 2 and all(seen == before for seen in during)
    assert state() == before
