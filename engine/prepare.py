"""Prepares a run: transformers' own logits processors, stopping criteria and generation config.

A callable ``custom_generate`` receives them ready-made. That is the public way to get them, so a
run decodes with the same objects that `generate` would use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from engine.watermark.config import parse_watermark

# What transformers reads only when it samples, with the values that change nothing.
NEUTRAL_SAMPLING: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 0,  # transformers' own default is 50
    "top_p": 1.0,
    "min_p": None,
    "top_h": None,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
}

# What it reads only when it searches with several beams.
NEUTRAL_BEAMS: dict[str, Any] = {"length_penalty": 1.0, "early_stopping": False}

# What it always reads. Special tokens are left out: they belong to the model, not to a run.
NEUTRAL: dict[str, Any] = {
    "do_sample": False,
    "num_beams": 1,
    "num_return_sequences": 1,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "sequence_bias": None,
    "min_length": 0,
    "min_new_tokens": None,
    "max_time": None,
    "stop_strings": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "exponential_decay_length_penalty": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "guidance_scale": None,
    "renormalize_logits": False,
    "remove_invalid_values": False,
    "watermarking_config": None,
}


@dataclass(frozen=True, eq=False)
class Prepared:
    """One run's processors, stopping criteria and config, as `generate` would have them."""

    processors: list[LogitsProcessor]
    criteria: list[StoppingCriteria]
    config: GenerationConfig
    # Settings in effect that the request did not name: the model's generation config has them.
    inherited: Mapping[str, Any] = field(default_factory=dict)
    repeat_call: Callable[..., Any] | None = None  # repeats the call with another `generate`


def prepare(
    model: Model, prompt: Prompt, settings: Mapping[str, Any], declared: Collection[str]
) -> Prepared:
    """Let transformers prepare a run from checked settings, words replaced by token ids.

    Sampling settings that the strategy has not ``declared`` are neutral, because neither the page
    nor a caller could see or change them.
    """
    if settings.get("do_sample"):
        undeclared = NEUTRAL_SAMPLING.keys() - set(declared)
        settings = {**{name: NEUTRAL_SAMPLING[name] for name in undeclared}, **settings}
    arguments = _arguments(model, settings)
    read = prompt.start if prompt.context is None else prompt.ids
    inputs: dict[str, Any] = {"input_ids": torch.tensor([read], device=model.device)}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if prompt.context is not None:
        inputs["encoder_outputs"] = prompt.context.outputs()
        if prompt.prefix:
            inputs["decoder_input_ids"] = torch.tensor([prompt.start], device=model.device)
    ignored = unread(settings)
    accepted = {name: value for name, value in arguments.items() if name not in ignored}
    accepted |= _feasible_lengths(model, settings, len(prompt.start))
    try:
        prepared = model.generate(**inputs, **accepted, custom_generate=_capture)
    except (ValueError, TypeError, NotImplementedError) as error:
        named = any(name in str(error) for name in settings)
        which = "" if named else f" ({', '.join(settings)})"
        raise PlaygroundError(f"transformers rejects these settings{which}: {error}") from error
    assert isinstance(prepared, Prepared)
    for name in ignored:  # strategies read their settings off the config
        setattr(prepared.config, name, settings[name])

    def repeat_call(
        generate: Callable[..., Any], further: Sequence[LogitsProcessor] = (), **changes: Any
    ) -> Any:
        fresh: dict[str, Any] = {}
        if prompt.context is not None:
            fresh["encoder_outputs"] = prompt.context.outputs()
        processors = LogitsProcessorList([*arguments["logits_processor"], *further])
        fresh["logits_processor"] = processors
        return generate(**{**inputs, **arguments, **fresh, **changes})

    return replace(
        prepared, inherited=_inherited(prepared.config, settings), repeat_call=repeat_call
    )


def unread(settings: Mapping[str, Any]) -> set[str]:
    """The names of settings that transformers does not read in this decoding mode.

    It logs a warning about each of them that it is given.
    """
    names: set[str] = set()
    if settings.get("do_sample") is not True:
        names |= NEUTRAL_SAMPLING.keys()
    if settings.get("num_beams") in (None, 1):
        names |= NEUTRAL_BEAMS.keys()
    return names & settings.keys()


def _inherited(config: GenerationConfig, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a prepared config that change the output and are not among the settings."""
    neutral = dict(NEUTRAL)
    if config.do_sample:
        neutral |= NEUTRAL_SAMPLING
    if (config.num_beams or 1) > 1:
        neutral |= NEUTRAL_BEAMS
    if config.min_new_tokens is not None:
        del neutral["min_length"]  # transformers derives it
    values = {name: getattr(config, name, None) for name in neutral if name not in settings}
    return {name: value for name, value in values.items() if value not in (None, neutral[name])}


def _feasible_lengths(model: Model, settings: Mapping[str, Any], started: int) -> dict[str, Any]:
    """The length settings, such that transformers has nothing to warn about and the output is the
    same: no minimum beyond the maximum, and one maximum only."""
    new = settings.get("max_new_tokens")
    if new is None:
        return {}
    lengths: dict[str, Any] = {"max_length": None}
    for name, most in (("min_new_tokens", new), ("min_length", started + new)):
        own = getattr(model.module.generation_config, name, None)
        least = settings.get(name, own)
        if least is not None and least > most:
            lengths[name] = most
    return lengths


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
        # With a callable `custom_generate`, `generate` drops the tokenizer that they need.
        criteria.append(StopStringCriteria(model.tokenizer, _texts(strings)))
    arguments["stopping_criteria"] = StoppingCriteriaList(criteria)
    arguments["logits_processor"] = LogitsProcessorList(arguments.pop("logits_processor", []))
    if negative := arguments.pop("negative_prompt", None):
        arguments["negative_prompt_ids"] = model.tokenizer(negative).input_ids
    if (ids := arguments.get("negative_prompt_ids")) is not None:
        # The guidance processor needs one copy for each row.
        rows = max(arguments.get("num_beams") or 1, arguments.get("num_return_sequences") or 1)
        ids = torch.as_tensor(ids, device=model.device).reshape(1, -1).repeat(rows, 1)
        arguments["negative_prompt_ids"] = ids
        arguments["negative_prompt_attention_mask"] = torch.ones_like(ids)
    if (mark := arguments.get("watermarking_config")) is not None:
        arguments["watermarking_config"] = parse_watermark(mark)
    if (decay := arguments.get("exponential_decay_length_penalty")) is not None:
        _check_decay(decay)
    return arguments


def _texts(value: Any) -> list[str]:
    texts = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(text, str) and text for text in texts):
        raise PlaygroundError(
            f"stop_strings is {value!r}; it must be a non-empty text or a list of them"
        )
    return texts


def _check_decay(value: Any) -> None:
    pair = list(value) if isinstance(value, list | tuple) else []
    if len(pair) != 2 or not all(type(number) in (int, float) for number in pair):
        raise PlaygroundError(
            f"exponential_decay_length_penalty is {value!r}; it must be [start, factor]"
        )
