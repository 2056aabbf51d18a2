"""A program in plain transformers for one run: load the model, tokenize, call `generate`, print."""

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
from playground.export.literals import Code, Imports, assigned, call
from playground.requests import Request

# The strategies that `generate` has itself, without and with drafts.
NATIVE = ("greedy", "sample", "beam_search", "beam_sample")
DRAFTING = ("speculative", "universal_speculative", "prompt_lookup", "early_exit")
# `generate` reads these settings from the draft model's generation config only.
_DRAFT_CONFIG = (
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
)


def recipe(strategy: Strategy) -> str | None:
    """The module of a strategy with a ``generate`` for ``custom_generate=``; None if transformers
    has the strategy itself, or the module has no such function."""
    module = sys.modules[strategy.decode.__module__]
    native = strategy.id in (*NATIVE, *DRAFTING)
    return None if native or not hasattr(module, "generate") else module.__name__


def plain(value: Any, imports: Imports) -> Any:
    """A setting's value in types that can be written as source."""
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
    """Writes the program of one run; ``prefix`` are tokens that already follow the prompt."""

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
        """The whole program. The imports are known last."""
        blocks = [
            self._load(self._model.name),
            self._draft(),
            self._read(prompt),
            self._generate(),
            self._print(),
        ]
        texts = ["\n".join(block) for block in blocks]
        head = self._imports.needs + str(self._imports)
        return head + "\n\n".join(filter(None, texts)) + "\n"

    def _load(self, name: str, model: str = "model", tokenizer: str = "tokenizer") -> Iterator[str]:
        path = Path(name).expanduser()
        files = path.is_dir() and any(path.glob("*.safetensors"))
        ours = name in EMBEDDED or name in trained.draft_names()
        if ours or path.suffix == ".gguf" or (path.is_dir() and not files):
            self._imports.add("engine.models.loading", "load")
            yield assigned("loaded", call("load", (name,)))
            yield f"{model}, {tokenizer} = loaded.module, loaded.tokenizer"
            return
        auto = f"AutoModelFor{'Seq2SeqLM' if self._model.is_encoder_decoder else 'CausalLM'}"
        self._imports.add("transformers", "AutoTokenizer", auto)
        where = str(path) if path.is_dir() else name
        module = self._model.module
        spread = {"device_map": "auto"} if hasattr(module, "hf_device_map") else {}
        options = {"dtype": str(module.dtype).removeprefix("torch."), **spread}
        yield assigned(tokenizer, call("AutoTokenizer.from_pretrained", (where,)))
        yield assigned(model, call(f"{auto}.from_pretrained", (where,), options))
        if self._on_device and not spread:
            yield assigned(model, call(f"{model}.to", (str(self._model.device),)))

    @property
    def _on_device(self) -> bool:
        """Whether the model is on another device than the CPU."""
        return self._model.device.type != "cpu"

    def _draft(self) -> Iterator[str]:
        """The draft model and its settings."""
        name = self._settings.pop("assistant_model", None)
        if name:
            yield from self._load(name, "assistant", "assistant_tokenizer")
        for setting in _DRAFT_CONFIG:
            if setting in self._settings:
                drafter = "assistant" if name else "model"
                value = self._settings.pop(setting)
                yield assigned(f"{drafter}.generation_config.{setting}", value)
        if name:
            self._settings["assistant_model"] = Code("assistant")
            yield "# transformers needs both tokenizers only if the vocabularies differ."
            yield "differ = assistant.config.vocab_size != model.config.vocab_size"
            yield 'both = {"tokenizer": tokenizer, "assistant_tokenizer": assistant_tokenizer}'
        if self._settings.pop("trained_exit", False) and trained.exit_layers(self._model):
            yield "# transformers has no trained exits: the same text, but more forward passes."
        if self._strategy.id == "early_exit" and "assistant_early_exit" not in self._settings:
            layers = self._model.module.config.get_text_config(decoder=True).num_hidden_layers
            self._settings["assistant_early_exit"] = max(1, int(layers) // 2)

    def _read(self, prompt: str | Chat) -> Iterator[str]:
        options: dict[str, Any] = {"return_tensors": "pt"}
        if isinstance(prompt, str):
            yield assigned("prompt", prompt)
            tokens = call("tokenizer", (Code("prompt"),), options)
        else:
            yield assigned("messages", [dict(message) for message in prompt])
            options = {"add_generation_prompt": True, "return_dict": True, **options}
            tokens = call("tokenizer.apply_chat_template", (Code("messages"),), options, long=True)
        yield assigned("inputs", tokens)
        if "token_type_ids" in self._model.tokenizer.model_input_names:
            yield 'inputs.pop("token_type_ids", None)'
        if self._prefix:
            yield from self._add_prefix()
        if self._on_device:
            yield "inputs = inputs.to(model.device)"

    def _add_prefix(self) -> Iterator[str]:
        """Append the prefix to the prompt, or give it to the decoder of an encoder-decoder."""
        self._imports.add("torch")
        yield assigned("prefix", call("torch.tensor", ([self._prefix],)))
        if self._model.is_encoder_decoder:
            yield 'inputs["decoder_input_ids"] = prefix'
            return
        yield 'inputs["input_ids"] = torch.cat([inputs.input_ids, prefix], dim=-1)'
        yield 'inputs["attention_mask"] = torch.ones_like(inputs.input_ids)'

    def _generate(self) -> Iterator[str]:
        yield from self._negative_prompt()
        self._watermark()
        self._stop_strings()
        if {**self._settings, **self._strategy.fixed}.get("do_sample"):
            self._imports.add("torch")
            yield f"torch.manual_seed({self._seed})"
        both = [Code("**(both if differ else {})")] if "assistant_model" in self._settings else []
        arguments = (Code("**inputs"), *both)
        yield assigned(
            "output", call("model.generate", arguments, dict(self._arguments()), long=True)
        )

    def _arguments(self) -> Iterator[tuple[str, Any]]:
        """The decoding function, then the strategy's fixed, own and shared settings."""
        if self._recipe:
            package, _, name = self._recipe.rpartition(".")
            self._imports.add(package, name)
            yield "custom_generate", Code(f"{name}.generate")
        inherited = self._model.module.generation_config
        for name, value in self._strategy.fixed.items():
            if name == "do_sample" or getattr(inherited, name, None) not in (None, value):
                yield name, value
        yield from sorted(self._settings.items(), key=lambda item: item[0] in SHARED)

    def _negative_prompt(self) -> Iterator[str]:
        """The negative prompt, one row for each row that guidance processes."""
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
            yield assigned("negative", call("torch.tensor", (ids,)))
            yield "negative = negative.reshape(1, -1)"
        rows = max(self._settings.get(name) or 1 for name in ("num_beams", "num_return_sequences"))
        where = ".to(model.device)" if self._on_device else ""
        self._settings["negative_prompt_ids"] = Code(f"negative.repeat({rows}, 1){where}")

    def _watermark(self) -> None:
        if fields := self._settings.get("watermarking_config"):
            synthid = "ngram_len" in fields
            kind = "SynthIDTextWatermarkingConfig" if synthid else "WatermarkingConfig"
            self._imports.add("transformers", kind)
            self._settings["watermarking_config"] = call(kind, keywords=fields)

    def _stop_strings(self) -> None:
        """Stop strings need the tokenizer, which `generate` does not pass to a custom function."""
        strings = self._settings.get("stop_strings")
        if strings and self._recipe:
            self._imports.add("transformers", "StoppingCriteriaList", "StopStringCriteria")
            del self._settings["stop_strings"]
            rule = call("StopStringCriteria", (Code("tokenizer"), strings))
            self._settings["stopping_criteria"] = call("StoppingCriteriaList", ([rule],))
        elif strings:
            self._settings["tokenizer"] = Code("tokenizer")

    def _print(self) -> Iterator[str]:
        if self._model.is_encoder_decoder:  # its output begins with the decoder's start token
            yield f"new_tokens = output[:, {1 + len(self._prefix)}:]"
        else:
            yield "new_tokens = output[:, inputs.input_ids.shape[1] :]"
        yield "for text in tokenizer.batch_decode(new_tokens, skip_special_tokens=True):"
        yield "    print(text)"
