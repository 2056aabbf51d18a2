"""The weights in ``models/``: a draft model, Medusa heads and early exits for an embedded model.

The target model is recognized by its embeddings, so that a copy loaded from a folder or the Hub
finds its drafters too. ``training/`` has the scripts that trained the weights.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from engine.accel.packed_linear import layout_for, pack
from engine.drafting.exits import Exit, ExitLayers
from engine.drafting.heads import Heads
from engine.errors import PlaygroundError
from engine.models import quantized_weights
from engine.models.model import Model

FOLDER = Path(__file__).resolve().parents[2] / "models"
# Default settings of the draft model, the fastest on a CPU. transformers reads the same names from
# the generation config of a draft model.
DRAFT_DEFAULTS = {
    "num_assistant_tokens": 8,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.4,
}
# Default settings of early exit, for the exit after the fewest layers.
EXIT_DEFAULTS = {
    "num_assistant_tokens": 4,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.5,
}
_EXCLUDED = -1e4  # logit of a token outside the reduced vocabulary; finite, to keep softmax finite
_TOLERANCE = 0.01  # relative: the target may have been loaded as bfloat16

_Made = TypeVar("_Made")


class Fingerprint(NamedTuple):
    """Recognizes an embedding matrix by its shape and a few values."""

    shape: tuple[int, ...]
    values: tuple[float, ...]

    @classmethod
    def of(cls, embedding: Tensor) -> Fingerprint:
        """The shape and the first values of the middle row."""
        return cls((*embedding.shape,), (*embedding[len(embedding) // 2, :4].tolist(),))

    def matches(self, embedding: Tensor) -> bool:
        """Whether a matrix has this fingerprint, up to rounding of the values."""
        if tuple(embedding.shape) != self.shape:  # reads no values, which may not be there
            return False
        pairs = zip(Fingerprint.of(embedding).values, self.values, strict=True)
        return all(abs(found - known) <= _TOLERANCE * abs(known) for found, known in pairs)


TARGETS = {"smollm2": Fingerprint((49152, 576), (-0.03168, -0.09504, 0.03802, -0.23444))}


class ReducedVocabularyHead(nn.Module):
    """An output layer that scores only the ``kept`` tokens; all others get a very low logit."""

    kept: Tensor

    def __init__(self, output: Tensor, kept: Tensor) -> None:
        super().__init__()
        self._vocabulary = len(output)
        self.register_buffer("kept", kept, persistent=False)  # (kept,) ids
        self.rows = nn.Linear(output.shape[1], len(kept), bias=False, device="meta")
        self.rows.weight = nn.Parameter(output[kept], requires_grad=False)

    def forward(self, states: Tensor) -> Tensor:
        """Map states, (…, width), to logits of the whole vocabulary, (…, vocabulary)."""
        scored: Tensor = self.rows(states)
        logits = scored.new_full((*scored.shape[:-1], self._vocabulary), _EXCLUDED)
        return logits.index_copy_(-1, self.kept, scored)


def target_of(model: Model) -> str | None:
    """Return the name of the embedded model that this is, or None if nothing was trained for it."""
    embedding = _weight(model.module.get_input_embeddings())
    if embedding is None:
        return None
    return next((name for name, known in TARGETS.items() if known.matches(embedding)), None)


def draft_names() -> list[str]:
    """Return the names of all trained draft models."""
    return [name for target in TARGETS for name in drafts_for(target)]


def target_of_draft(draft: str) -> str:
    """Return the name of the embedded model that a draft model was trained for."""
    return next(target for target in TARGETS if draft in drafts_for(target))


def drafts_for(target: str) -> list[str]:
    """Return the names of the draft models that were trained for an embedded model."""
    name = f"{target}-draft"
    return [name] if _files(name) else []


def draft(target: Model) -> Model:
    """Return the draft model trained for a model, on its device; it shares the embeddings."""
    name = target_of(target)
    if name is None or not drafts_for(name):
        trained = ", ".join(draft_names()) or "none"
        raise PlaygroundError(
            f"no draft model was trained for {target.name!r}; trained draft models: {trained}"
        )
    return _cached(_drafts, target, lambda: _draft(target, name))


def heads(target: Model) -> Heads | None:
    """Return the Medusa heads trained for a model, on its device, or None."""
    name = target_of(target)
    if name is None or not _files(f"{name}-heads"):
        return None
    return _cached(_heads, target, lambda: _heads_of(target, name))


def exit_layers(target: Model) -> list[int]:
    """Return after how many layers a model has trained exits, in ascending order."""
    keys = (
        key
        for file in _files(f"{target_of(target)}-exits")
        for key in quantized_weights.names(file)
    )
    return sorted({int(key.split(".")[0]) for key in keys if key != "kept"})


def exits(target: Model) -> dict[int, ExitLayers]:
    """Return the exits trained for a model, on its device, by the number of layers before each."""
    name = target_of(target)
    return _cached(_exits, target, lambda: _exits_of(target, name)) if name else {}


_lock = threading.Lock()
_drafts: WeakKeyDictionary[nn.Module, Model] = WeakKeyDictionary()
_heads: WeakKeyDictionary[nn.Module, Heads] = WeakKeyDictionary()
_exits: WeakKeyDictionary[nn.Module, dict[int, ExitLayers]] = WeakKeyDictionary()


def _cached(
    cache: WeakKeyDictionary[nn.Module, _Made], target: Model, make: Callable[[], _Made]
) -> _Made:
    """Return the cached object of a target, made on first use and dropped with the target."""
    with _lock:
        if target.module not in cache:
            cache[target.module] = make()
        return cache[target.module]


def _draft(target: Model, name: str) -> Model:
    tensors, about = _load(f"{name}-draft")
    theirs: Any = target.module
    config = copy.deepcopy(theirs.config)
    config.num_hidden_layers, config.tie_word_embeddings = about["layers"], False
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: about["layers"]]
    with torch.device("meta"):
        module: Any = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]  # transformers has no types here
    module.model.embed_tokens = theirs.model.embed_tokens
    module.model.rotary_emb = theirs.model.rotary_emb
    module.lm_head = ReducedVocabularyHead(
        _output(target), tensors.pop("kept").long().to(target.device)
    )
    own = {key: tensor.to(target.device, theirs.dtype) for key, tensor in tensors.items()}
    missing = module.load_state_dict(own, strict=False, assign=True).missing_keys
    assert all(key.startswith(("model.embed_tokens", "lm_head")) for key in missing), missing
    module.eval().requires_grad_(False)
    module.generation_config = copy.deepcopy(theirs.generation_config)
    module.generation_config.update(**DRAFT_DEFAULTS)
    _pack(module, target)
    return Model(f"{name}-draft", module, target.tokenizer)


def _heads_of(target: Model, name: str) -> Heads:
    tensors, about = _load(f"{name}-heads")
    kept = tensors.pop("kept").long().to(target.device)
    embedding = _weight(target.module.get_input_embeddings())
    assert embedding is not None, "target_of has checked it"
    made = Heads(embedding, _output(target), kept, **about)
    made.load_state_dict(tensors)
    made.to(target.device, target.module.dtype).eval().requires_grad_(False)
    _pack(made, target)
    return made


def _exits_of(target: Model, name: str) -> dict[int, ExitLayers]:
    tensors, about = _load(f"{name}-exits")
    if not tensors:
        return {}
    theirs: Any = target.module
    head = ReducedVocabularyHead(_output(target), tensors.pop("kept").long().to(target.device))
    norm, layers = theirs.base_model.norm, exit_layers(target)
    made = nn.ModuleDict({str(count): Exit(norm, **about) for count in layers})
    made.load_state_dict(tensors)
    made.to(target.device, theirs.dtype)
    both = nn.ModuleList([made, head]).eval().requires_grad_(False)
    _pack(both, target)
    return {
        count: ExitLayers(each, head) for count, each in zip(layers, made.values(), strict=True)
    }


def _pack(module: nn.Module, target: Model) -> None:
    """Pack the weights of one of these modules if that pays for the model they were trained for."""
    layout, _ = layout_for(target.module)
    if layout is not None:
        pack(module, layout, int8=True)


def _output(target: Model) -> Tensor:
    output = _weight(target.module.get_output_embeddings())  # type: ignore[no-untyped-call]  # transformers has no types here
    assert output is not None, "a language model has an output matrix"
    return output


def _weight(layer: Any) -> Tensor | None:
    weight = getattr(layer, "weight", None)
    return weight.detach() if isinstance(weight, Tensor) else None


def _files(name: str) -> list[Path]:
    """Return the files of one set of weights, in order."""
    return sorted(FOLDER.glob(f"{name}*.safetensors"))


def _load(name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors: dict[str, Tensor] = {}
    about: dict[str, Any] = {}
    for file in _files(name):
        part, metadata = quantized_weights.load(file)
        tensors |= part
        about |= metadata
    return tensors, about
