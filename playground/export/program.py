"""One run as a program in plain transformers: loading, reading, one call of `generate`, printing.

Knows how `generate` wants a run's settings. Refuses to know when it would write other tokens than
the run did, and to load or run anything.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from engine.models import trained
from engine.models.loading import EMBEDDED
from engine.models.model import Model
from engine.prompt import Chat
from engine.settings import SHARED
from engine.strategy import Strategy
from playground.export.literals import Call, Code, Imports, assigned
from playground.requests import Request

# What `generate` does by itself, and what it does so when it has drafts to judge.
NATIVE = ("greedy", "sample", "beam_search", "beam_sample")
DRAFTING = ("speculative", "universal_speculative", "prompt_lookup", "early_exit")
# `generate` reads these from the draft model's own config and from nowhere else.
_OF_THE_DRAFT = (
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
)


def recipe(strategy: Strategy) -> str | None:
    """The module whose ``generate`` decodes in place of transformers' own, if one must."""
    module = sys.modules[strategy.decode.__module__]
    theirs = strategy.id in (*NATIVE, *DRAFTING)
    return None if theirs or not hasattr(module, "generate") else module.__name__


def plain(value: Any, imports: Imports) -> Any:
    """A setting's value as source can have it; objects by what they were made from."""
    if isinstance(value, Model):
        return value.name
    if isinstance(value, FunctionType):
        return imports.function(value)
    if isinstance(value, Mapping):
        return {key: plain(item, imports) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(item, imports) for item in value)
    for convert in ("tolist", "to_dict"):  # tensors, and transformers' configs
        if hasattr(value, convert):
            return getattr(value, convert)()
    return value


class Program:
    """One call of `generate` and what it needs around it; ``prefix`` are the tokens that already
    stand after the prompt."""

    def __init__(self, model: Model, request: Request, prefix: Sequence[int] = ()) -> None:
        self._model = model
        self._prefix = list(prefix)
        self._strategy = request.strategy
        self._seed = request.seed
        self._imports = Imports()
        self._settings = {
            name: plain(value, self._imports) for name, value in request.settings.items()
        }
        self._recipe = recipe(request.strategy)

    def text(self, prompt: str | Chat) -> str:
        """The whole program; what it imports is known last."""
        blocks = [
            self._load(self._model.name),
            self._draft(),
            self._read(prompt),
            self._generate(),
            self._print(),
        ]
        written = ["\n".join(block) for block in blocks]
        return str(self._imports) + "\n\n".join(filter(None, written)) + "\n"

    def _load(self, name: str, model: str = "model", tokenizer: str = "tokenizer") -> Iterator[str]:
        path = Path(name).expanduser()
        files = path.is_dir() and any(path.glob("*.safetensors"))
        ours = name in EMBEDDED or name in trained.draft_names()
        if ours or path.suffix == ".gguf" or (path.is_dir() and not files):
            self._imports.add("engine.models.loading", "load")
            yield assigned("loaded", Call("load", (name,)))
            yield f"{model}, {tokenizer} = loaded.module, loaded.tokenizer"
            return
        auto = f"AutoModelFor{'Seq2SeqLM' if self._model.is_encoder_decoder else 'CausalLM'}"
        self._imports.add("transformers", "AutoTokenizer", auto)
        where = str(path) if path.is_dir() else name
        module = self._model.module
        spread = {"device_map": "auto"} if hasattr(module, "hf_device_map") else {}
        options = {"dtype": str(module.dtype).removeprefix("torch."), **spread}
        yield assigned(tokenizer, Call("AutoTokenizer.from_pretrained", (where,)))
        yield assigned(model, Call(f"{auto}.from_pretrained", (where,), options))
        if self._elsewhere and not spread:
            yield assigned(model, Call(f"{model}.to", (str(self._model.device),)))

    @property
    def _elsewhere(self) -> bool:
        return self._model.device.type != "cpu"

    def _draft(self) -> Iterator[str]:
        """The draft model, and how it is told to draft."""
        name = self._settings.pop("assistant_model", None)
        if name:
            yield from self._load(name, "assistant", "assistant_tokenizer")
        for setting in _OF_THE_DRAFT:
            if setting in self._settings:
                drafter = "assistant" if name else "model"
                value = self._settings.pop(setting)
                yield assigned(f"{drafter}.generation_config.{setting}", value)
        if name:
            self._settings["assistant_model"] = Code("assistant")
            yield "# transformers wants both tokenizers where the vocabularies differ, only there."
            yield "differ = assistant.config.vocab_size != model.config.vocab_size"
            yield 'both = {"tokenizer": tokenizer, "assistant_tokenizer": assistant_tokenizer}'
        if self._settings.pop("trained_exit", False) and trained.exit_layers(self._model):
            yield "# transformers knows no exits that were trained: the same text in more passes."
        if self._strategy.id == "early_exit" and "assistant_early_exit" not in self._settings:
            layers = self._model.module.config.get_text_config(decoder=True).num_hidden_layers
            self._settings["assistant_early_exit"] = max(1, int(layers) // 2)

    def _read(self, prompt: str | Chat) -> Iterator[str]:
        options: dict[str, Any] = {"return_tensors": "pt"}
        if isinstance(prompt, str):
            yield assigned("prompt", prompt)
            reading = Call("tokenizer", (Code("prompt"),), options)
        else:
            yield assigned("messages", [dict(message) for message in prompt])
            options = {"add_generation_prompt": True, "return_dict": True, **options}
            reading = Call("tokenizer.apply_chat_template", (Code("messages"),), options, long=True)
        yield assigned("inputs", reading)
        if "token_type_ids" in self._model.tokenizer.model_input_names:
            yield 'inputs.pop("token_type_ids", None)'
        if self._prefix:
            yield from self._go_on()
        if self._elsewhere:
            yield "inputs = inputs.to(model.device)"

    def _go_on(self) -> Iterator[str]:
        """What is already written: behind the prompt, or, behind an encoder, by the decoder."""
        self._imports.add("torch")
        yield assigned("prefix", Call("torch.tensor", ([self._prefix],)))
        if self._model.is_encoder_decoder:
            yield 'inputs["decoder_input_ids"] = prefix'
            return
        yield 'inputs["input_ids"] = torch.cat([inputs.input_ids, prefix], dim=-1)'
        yield 'inputs["attention_mask"] = torch.ones_like(inputs.input_ids)'

    def _generate(self) -> Iterator[str]:
        yield from self._negative()
        self._mark()
        self._stop()
        if {**self._settings, **self._strategy.fixed}.get("do_sample"):
            self._imports.add("torch")
            yield f"torch.manual_seed({self._seed})"
        both = [Code("**(both if differ else {})")] if "assistant_model" in self._settings else []
        arguments = (Code("**inputs"), *both)
        call = Call("model.generate", arguments, dict(self._arguments()), long=True)
        yield assigned("output", call)

    def _arguments(self) -> Iterator[tuple[str, Any]]:
        """Who decodes, what makes the strategy what it is, its own settings, and the shared."""
        if self._recipe:
            package, _, name = self._recipe.rpartition(".")
            self._imports.add(package, name)
            yield "custom_generate", Code(f"{name}.generate")
        inherited = self._model.module.generation_config
        for name, value in self._strategy.fixed.items():
            if name == "do_sample" or getattr(inherited, name, None) not in (None, value):
                yield name, value
        yield from sorted(self._settings.items(), key=lambda item: item[0] in SHARED)

    def _negative(self) -> Iterator[str]:
        """Guidance reads its negative prompt once for every row it is asked about."""
        text, ids = (
            self._settings.pop(name, None) for name in ("negative_prompt", "negative_prompt_ids")
        )
        if text is None and ids is None:
            return
        if text is not None:
            yield assigned("negative_prompt", text)
            yield 'negative = tokenizer(negative_prompt, return_tensors="pt").input_ids'
        else:
            self._imports.add("torch")
            yield assigned("negative", Call("torch.tensor", (ids,)))
            yield "negative = negative.reshape(1, -1)"
        rows = max(self._settings.get(name) or 1 for name in ("num_beams", "num_return_sequences"))
        where = ".to(model.device)" if self._elsewhere else ""
        self._settings["negative_prompt_ids"] = Code(f"negative.repeat({rows}, 1){where}")

    def _mark(self) -> None:
        if fields := self._settings.get("watermarking_config"):
            synthid = "ngram_len" in fields
            kind = "SynthIDTextWatermarkingConfig" if synthid else "WatermarkingConfig"
            self._imports.add("transformers", kind)
            self._settings["watermarking_config"] = Call(kind, keywords=fields)

    def _stop(self) -> None:
        """Handed a function to decode with, `generate` loses the tokenizer stop strings need."""
        strings = self._settings.get("stop_strings")
        if strings and self._recipe:
            self._imports.add("transformers", "StoppingCriteriaList", "StopStringCriteria")
            del self._settings["stop_strings"]
            rule = Call("StopStringCriteria", (Code("tokenizer"), strings))
            self._settings["stopping_criteria"] = Call("StoppingCriteriaList", ([rule],))
        elif strings:
            self._settings["tokenizer"] = Code("tokenizer")

    def _print(self) -> Iterator[str]:
        # A decoder's own text begins with a token that starts it.
        behind = str(1 + len(self._prefix)) if self._model.is_encoder_decoder else None
        start = behind or "inputs.input_ids.shape[1] "
        yield f"new_tokens = output[:, {start}:]"
        yield "for text in tokenizer.batch_decode(new_tokens, skip_special_tokens=True):"
        yield "    print(text)"
