"""What was trained for an embedded model and comes with the repository: a draft model, draft heads,
exits behind its first layers.

Knows the files in ``models/`` and which model they are for: it is known by its embeddings, wherever
it was loaded from. Refuses to know how they were trained and what is drafted with them.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from engine.accel import packed_linear
from engine.drafting.exits import Exit, Leaving
from engine.drafting.heads import Heads
from engine.errors import PlaygroundError
from engine.models import quantized_weights
from engine.models.model import Model

FOLDER = Path(__file__).resolve().parents[2] / "models"
# How the draft is used where nobody says, as it pays most on a CPU: none behind a token it is not
# sure of. transformers reads this from a draft model's own generation config as well.
DRAFTING = {
    "num_assistant_tokens": 8,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.4,
}
# And how exits are, behind the fewest layers.
LEAVING = {
    "num_assistant_tokens": 4,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.5,
}
_NEVER = -1e4  # the logit of a token that is not scored: finite, so that a row is never empty
_NEAR = 0.01  # of a number: bfloat16 rounds

_What = TypeVar("_What")


class _Target(NamedTuple):
    """What a model's embeddings look like: their shape, and some of their numbers."""

    shape: tuple[int, int]
    numbers: tuple[float, ...]


TARGETS = {"smollm2": _Target((49152, 576), (-0.03168, -0.09504, 0.03802, -0.23444))}


class KeptHead(nn.Module):
    """An output matrix of a few tokens, (…, width) in: the logits of all others are very low."""

    kept: Tensor

    def __init__(self, output: Tensor, kept: Tensor) -> None:
        super().__init__()
        self._vocabulary = len(output)
        self.register_buffer("kept", kept, persistent=False)  # (kept,) ids
        self.rows = nn.Linear(output.shape[1], len(kept), bias=False, device="meta")
        self.rows.weight = nn.Parameter(output[kept], requires_grad=False)

    def forward(self, states: Tensor) -> Tensor:
        """The logits of the whole vocabulary, (…, vocabulary)."""
        scored: Tensor = self.rows(states)
        logits = scored.new_full((*scored.shape[:-1], self._vocabulary), _NEVER)
        return logits.index_copy_(-1, self.kept, scored)


def target_of(model: Model) -> str | None:
    """The embedded model that this one is, if something was trained for that."""
    embedding = _weight(model.module.get_input_embeddings())
    if embedding is None:
        return None
    for name, (shape, known) in TARGETS.items():
        if tuple(embedding.shape) == shape and _known_by(embedding, known):
            return name
    return None


def mark(embedding: Tensor) -> list[float]:
    """The first numbers in the middle of a matrix, by which to know it again."""
    return embedding[len(embedding) // 2, :4].tolist()


def _known_by(embedding: Tensor, numbers: Sequence[float]) -> bool:
    pairs = zip(mark(embedding), numbers, strict=True)
    return all(abs(ours - theirs) <= _NEAR * abs(theirs) for ours, theirs in pairs)


def names() -> list[str]:
    """The draft models there are."""
    return [name for target in TARGETS for name in drafts_for(target)]


def target_named(draft: str) -> str:
    """The name of the embedded model that a draft model was trained for."""
    return next(target for target in TARGETS if draft in drafts_for(target))


def drafts_for(target: str) -> list[str]:
    """The names of the draft models that were trained for an embedded model."""
    name = f"{target}-draft"
    return [name] if _files(name) else []


def draft(target: Model) -> Model:
    """The draft model that was trained for a model, on its device; embeddings are the model's."""
    name = target_of(target)
    if name is None or not drafts_for(name):
        trained = ", ".join(names()) or "none"
        raise PlaygroundError(f"no draft was trained for {target.name!r}; there is {trained}")
    return _kept(_drafts, target, lambda: _draft(target, name))


def heads(target: Model) -> Heads | None:
    """The draft heads that were trained for a model, on its device, if there are any."""
    name = target_of(target)
    if name is None or not _files(f"{name}-heads"):
        return None
    return _kept(_heads, target, lambda: _heads_of(target, name))


def exit_layers(target: Model) -> list[int]:
    """After how many layers of a model there are exits that were trained, the fewest first."""
    keys = (
        key
        for file in _files(f"{target_of(target)}-exits")
        for key in quantized_weights.names(file)
    )
    return sorted({int(key.split(".")[0]) for key in keys if key != "kept"})


def exits(target: Model) -> dict[int, Leaving]:
    """The exits that were trained for a model, on its device, by the layers they stand behind."""
    name = target_of(target)
    return _kept(_exits, target, lambda: _exits_of(target, name)) if name else {}


_lock = threading.Lock()
_drafts: WeakKeyDictionary[nn.Module, Model] = WeakKeyDictionary()
_heads: WeakKeyDictionary[nn.Module, Heads] = WeakKeyDictionary()
_exits: WeakKeyDictionary[nn.Module, dict[int, Leaving]] = WeakKeyDictionary()


def _kept(
    known: WeakKeyDictionary[nn.Module, _What], target: Model, make: Callable[[], _What]
) -> _What:
    """What was made for a target before, for as long as that lives."""
    with _lock:
        if target.module not in known:
            known[target.module] = make()
        return known[target.module]


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
    module.lm_head = KeptHead(_output(target), tensors.pop("kept").long().to(target.device))
    own = {key: tensor.to(target.device, theirs.dtype) for key, tensor in tensors.items()}
    missing = module.load_state_dict(own, strict=False, assign=True).missing_keys
    assert all(key.startswith(("model.embed_tokens", "lm_head")) for key in missing), missing
    module.eval().requires_grad_(False)
    module.generation_config = copy.deepcopy(theirs.generation_config)
    module.generation_config.update(**DRAFTING)
    packed_linear.pack(module, like=target.module, rough=True)
    return Model(f"{name}-draft", module, target.tokenizer)


def _heads_of(target: Model, name: str) -> Heads:
    tensors, about = _load(f"{name}-heads")
    kept = tensors.pop("kept").long().to(target.device)
    embedding = _weight(target.module.get_input_embeddings())
    assert embedding is not None, "target_of has seen it"
    made = Heads(embedding, _output(target), kept, **about)
    made.load_state_dict(tensors)
    made.to(target.device, target.module.dtype).eval().requires_grad_(False)
    packed_linear.pack(made, like=target.module, rough=True)
    return made


def _exits_of(target: Model, name: str) -> dict[int, Leaving]:
    tensors, about = _load(f"{name}-exits")
    if not tensors:
        return {}
    theirs: Any = target.module
    head = KeptHead(_output(target), tensors.pop("kept").long().to(target.device))
    norm, layers = theirs.base_model.norm, exit_layers(target)
    made = nn.ModuleDict({str(behind): Exit(norm, **about) for behind in layers})
    made.load_state_dict(tensors)
    made.to(target.device, theirs.dtype)
    both = nn.ModuleList([made, head]).eval().requires_grad_(False)
    packed_linear.pack(both, like=theirs, rough=True)
    return {behind: Leaving(each, head) for behind, each in zip(layers, made.values(), strict=True)}


def _output(target: Model) -> Tensor:
    output = _weight(target.module.get_output_embeddings())  # type: ignore[no-untyped-call]  # transformers has no types here
    assert output is not None, "a model that writes has an output matrix"
    return output


def _weight(layer: Any) -> Tensor | None:
    weight = getattr(layer, "weight", None)
    return weight.detach() if isinstance(weight, Tensor) else None


def _files(name: str) -> list[Path]:
    """The parts of what was trained, in order."""
    return sorted(FOLDER.glob(f"{name}*.safetensors"))


def _load(name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors: dict[str, Tensor] = {}
    about: dict[str, Any] = {}
    for file in _files(name):
        part, said = quantized_weights.load(file)
        tensors |= part
        about |= said
    return tensors, about
