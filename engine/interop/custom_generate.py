"""A strategy as a ``custom_generate`` callable: `model.generate` prepares, the strategy decodes.

The model is left exactly as it was: strategies run on a view of it (`engine.models.view`).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import logits_process, utils
from transformers.generation.streamers import BaseStreamer

from engine.errors import PlaygroundError
from engine.interop.streamer import LeadingText
from engine.loop import stream
from engine.models.model import Model
from engine.prepare import Prepared
from engine.prompt import Encoded, Prompt
from engine.run import Run
from engine.sampling import default_generator
from engine.settings import Limits, check
from engine.strategy import Decode, Strategy, registration
from engine.trace import Trace
from engine.trace.recorder import Recorder, TraceHeader
from engine.trace.token_text import IdDecoder
from engine.trie.backends import Backends
from engine.trie.node import Source

# These keep state of every prompt of a call, and do not know which prompt they are applied to.
_FOR_ONE_PROMPT = (
    logits_process.EncoderNoRepeatNGramLogitsProcessor,
    logits_process.EncoderRepetitionPenaltyLogitsProcessor,
    logits_process.PrefixConstrainedLogitsProcessor,
    logits_process.SynthIDTextWatermarkLogitsProcessor,
    logits_process.UnbatchedClassifierFreeGuidanceLogitsProcessor,
)
_CONFIG = vars(cast(Any, GenerationConfig)())  # cast: transformers has no types here
_NO_LIMIT = 2**31
_UNLIMITED = Limits(**{item.name: _NO_LIMIT for item in dataclasses.fields(Limits)})


def custom_generate(decode: Decode) -> Callable[..., Any]:
    """The callable to pass to `model.generate` as ``custom_generate`` to decode with a strategy.

    ``beam_streamer`` receives the leading text while it is written: see `engine.interop.streamer`.
    """
    found = registration(decode)
    further = [name for name in found.own_settings if name not in _CONFIG]

    def generate(
        model: PreTrainedModel,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: GenerationConfig,
        beam_streamer: BaseStreamer | None = None,
        **model_kwargs: Any,
    ) -> Any:
        own = {name: model_kwargs.pop(name, None) for name in further}
        params = _params(found, generation_config, own)
        prepared = Prepared(list(logits_processor), list(stopping_criteria), generation_config)
        # transformers repeats every prompt once per beam.
        copies = max(generation_config.num_beams, generation_config.num_return_sequences)
        prompts = _prompts(input_ids[::copies], model_kwargs, copies)
        if len(prompts) > 1:
            _check_batch(prepared, beam_streamer)
        backends = Backends(model, positions=_NO_LIMIT)
        traces = []
        for prompt in prompts:
            run = _run(model, backends, prompt, prepared)
            traces.append(_decode(run, lambda run: found.decode(run, params), beam_streamer))
        return _output(model, input_ids[::copies], generation_config, traces, run.pad)

    # transformers passes on the arguments that a callable declares: the settings that are not in
    # GenerationConfig.
    signature = inspect.signature(generate)
    *usual, rest = signature.parameters.values()
    declared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in further
    ]
    vars(generate)["__signature__"] = signature.replace(parameters=[*usual, *declared, rest])
    return generate


def _params(found: Strategy, config: GenerationConfig, own: Mapping[str, Any]) -> Any:
    """The strategy's settings, from the config and from the arguments."""
    for name, value in found.fixed.items():
        if getattr(config, name, value) != value:
            given = getattr(config, name)
            raise ValueError(f"{name} is {given!r}; {found.id} always has {value!r}")
    given = {name: own.get(name, getattr(config, name, None)) for name in found.own_settings}
    defaults = {name: setting.default for name, setting in found.own_settings.items()}
    values = {name: defaults[name] if value is None else value for name, value in given.items()}
    try:
        return found.params(**check(values, found.own_settings, _UNLIMITED, found.id))
    except PlaygroundError as error:
        raise ValueError(str(error)) from error


def _prompts(ids: Tensor, model_kwargs: Mapping[str, Any], copies: int) -> list[Prompt]:
    """The prompts of a call. Padding is kept for processors that count tokens."""
    encoded = model_kwargs.get("encoder_outputs")
    mask = model_kwargs.get("attention_mask")
    mask = None if mask is None else mask[::copies]
    prompts = []
    for row, text in enumerate(ids):
        context, padding = None, 0
        if encoded is not None:
            state = encoded[0][row * copies][None]
            seen = torch.ones(state.shape[:2], dtype=torch.long, device=state.device)
            context = Encoded(state, seen if mask is None else mask[row][None])
        elif mask is not None:
            padding = int(mask[row].argmax())
        tokens = text.tolist()
        prompts.append(Prompt("", tokens, tokens[padding:], context, tokens[:padding]))
    return prompts


def _check_batch(prepared: Prepared, streamer: BaseStreamer | None) -> None:
    for processor in prepared.processors:
        if isinstance(processor, _FOR_ONE_PROMPT):
            name = type(processor).__name__
            raise ValueError(f"{name} works on one prompt at a time here; call generate for each")
    if streamer is not None:
        raise ValueError("beam_streamer streams one text; call generate for each prompt")


def _run(model: PreTrainedModel, backends: Backends, prompt: Prompt, prepared: Prepared) -> Run:
    longest = prepared.config.max_length
    assert longest is not None, "generate has set it"
    wrapped = Model(type(model).__name__, model, cast(Any, None))  # no text is decoded here
    header = TraceHeader("", {}, 0, wrapped.name, "", ())
    recorder = Recorder(header, IdDecoder(), at_start=False)
    source = Source(wrapped, backends.whole(longest), prompt)
    # Draws use torch's global generator, as `generate` does.
    generator = default_generator(model.device)
    return Run(source, prepared, recorder, IdDecoder(), generator, lambda: 0)


def _decode(run: Run, decode: Callable[[Run], Any], streamer: BaseStreamer | None) -> Trace:
    lead = LeadingText(streamer) if streamer is not None else None
    for update in stream([(run, decode)], cancelled=lambda: False):
        if lead is not None:
            lead.update(run.recorder.texts())
        if update.trace is not None:
            trace = update.trace
    if trace.error is not None:
        raise ValueError(trace.error)
    if lead is not None:
        lead.end(list(trace.sequences[0].token_ids))
    return trace


def _output(
    model: PreTrainedModel,
    prompts: Tensor,
    config: GenerationConfig,
    traces: Sequence[Trace],
    pad: int,
) -> Any:
    """Prompts and new tokens in the form that `generate` returns."""
    rows = [
        torch.cat([prompt, prompt.new_tensor(sequence.token_ids)])
        for prompt, trace in zip(prompts, traces, strict=True)
        for sequence in trace.sequences
    ]
    sequences = pad_sequence(rows, batch_first=True, padding_value=pad)
    if not config.return_dict_in_generate:
        return sequences
    scores = [sequence.score for trace in traces for sequence in trace.sequences]
    kind = "EncoderDecoder" if model.config.is_encoder_decoder else "DecoderOnly"
    if None in scores:
        return getattr(utils, f"Generate{kind}Output")(sequences=sequences)
    values = torch.tensor(scores, device=prompts.device)
    return getattr(utils, f"GenerateBeam{kind}Output")(sequences=sequences, sequences_scores=values)
