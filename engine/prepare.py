"""What transformers prepares for a run: its own processors, stopping criteria and config.

A callable ``custom_generate`` receives them ready-made, which is the public way to get them, so a
run decodes with the same objects `generate` would use. Refuses to build a processor itself.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    StopStringCriteria,
)

from engine.errors import PlaygroundError
from engine.models.model import Model
from engine.prompt import Prompt
from engine.watermark.config import mark_to_write


@dataclass(frozen=True, eq=False)
class Prepared:
    """One run's processors, criteria and config, as `generate` would have them."""

    processors: list[LogitsProcessor]
    criteria: list[StoppingCriteria]
    config: GenerationConfig
    again: Callable[..., Any] | None = None  # makes the same call, for another `generate`


def prepare(model: Model, prompt: Prompt, settings: Mapping[str, Any]) -> Prepared:
    """Let transformers prepare a run over checked settings with token ids in them."""
    arguments = _arguments(model, settings)
    read = prompt.start if prompt.context is None else prompt.ids
    inputs: dict[str, Any] = {"input_ids": torch.tensor([read], device=model.device)}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if prompt.context is not None:
        inputs["encoder_outputs"] = prompt.context.outputs()
        if prompt.prefix:
            inputs["decoder_input_ids"] = torch.tensor([prompt.start], device=model.device)
    with _refusals_as_errors(settings):
        prepared = model.generate(**inputs, **arguments, custom_generate=_capture)
    assert isinstance(prepared, Prepared)

    def again(
        generate: Callable[..., Any], further: Sequence[LogitsProcessor] = (), **changes: Any
    ) -> Any:
        fresh: dict[str, Any] = {}
        if prompt.context is not None:
            fresh["encoder_outputs"] = prompt.context.outputs()
        processors = LogitsProcessorList([*arguments["logits_processor"], *further])
        fresh["logits_processor"] = processors
        return generate(**{**inputs, **arguments, **fresh, **changes})

    return replace(prepared, again=again)


def _capture(
    model: Any,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    **kwargs: Any,
) -> Prepared:
    return Prepared(list(logits_processor), list(stopping_criteria), generation_config)


def _arguments(model: Model, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of `generate` for these settings."""
    arguments = dict(settings)
    criteria = list(arguments.pop("stopping_criteria", []))
    if strings := arguments.pop("stop_strings", None):
        # Given a callable, `generate` loses the tokenizer that stop strings need.
        criteria.append(StopStringCriteria(model.tokenizer, _texts(strings)))
    arguments["stopping_criteria"] = StoppingCriteriaList(criteria)
    arguments["logits_processor"] = LogitsProcessorList(arguments.pop("logits_processor", []))
    if negative := arguments.pop("negative_prompt", None):
        arguments["negative_prompt_ids"] = model.tokenizer(negative).input_ids
    if (ids := arguments.get("negative_prompt_ids")) is not None:
        # Guidance reads it once for every row it is asked about.
        rows = max(arguments.get("num_beams") or 1, arguments.get("num_return_sequences") or 1)
        ids = torch.as_tensor(ids, device=model.device).reshape(1, -1).repeat(rows, 1)
        arguments["negative_prompt_ids"] = ids
        arguments["negative_prompt_attention_mask"] = torch.ones_like(ids)
    if (mark := arguments.get("watermarking_config")) is not None:
        arguments["watermarking_config"] = mark_to_write(mark)
    if (decay := arguments.get("exponential_decay_length_penalty")) is not None:
        _check_decay(decay)
    return arguments


def _texts(value: Any) -> list[str]:
    texts = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(text, str) and text for text in texts):
        raise PlaygroundError(f"stop_strings takes texts that are not empty, not {value!r}")
    return texts


def _check_decay(value: Any) -> None:
    pair = list(value) if isinstance(value, list | tuple) else []
    if len(pair) != 2 or not all(type(number) in (int, float) for number in pair):
        raise PlaygroundError(
            f"exponential_decay_length_penalty is {value!r}; it must be [start, factor]"
        )


@contextmanager
def _refusals_as_errors(settings: Mapping[str, Any]) -> Iterator[None]:
    """What transformers refuses, a person may read; its words need not say which setting."""
    try:
        with quiet():
            yield
    except (ValueError, TypeError, NotImplementedError) as error:
        named = any(name in str(error) for name in settings)
        which = "" if named else f" ({', '.join(settings)})"
        raise PlaygroundError(f"transformers refuses these settings{which}: {error}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep from people what transformers merely remarks on."""
    logger = logging.getLogger("transformers.generation")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
