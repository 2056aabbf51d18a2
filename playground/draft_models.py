"""The draft models of one target model: loads them by name, caches them, and prepares the prompt.

A drafter is another model, the draft model trained for the target, the target itself, or the
target's first layers.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from itertools import chain, count
from typing import Any
from weakref import WeakValueDictionary

from engine.drafting.cross_tokenizer import same_vocabulary
from engine.drafting.draft_tree import TreeDrafter
from engine.drafting.exits import ExitLayers
from engine.drafting.heads import Heads
from engine.errors import PlaygroundError, did_you_mean
from engine.models import loading, trained
from engine.models.model import Model
from engine.prompt import Prompt, read
from engine.trie.backends import Backends
from engine.trie.evaluator import Evaluator
from engine.trie.node import Source

CACHED = 2  # draft models kept in memory; the least recently used one is dropped


class DraftModels:
    """The draft models of one target. ``allowed`` are the names that runs may use, None for any;
    ``heads`` are draft heads to use instead of those trained for the target."""

    def __init__(
        self,
        model: Model,
        backends: Backends,
        positions: int,
        allowed: Collection[str] | None,
        heads: Heads | None = None,
    ) -> None:
        self._model = model
        self._backends = backends
        self._positions = positions
        self._allowed = allowed
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, tuple[Model, Backends]] = OrderedDict()
        # Models given as objects. Weak: they live as long as their caller holds them.
        self._given: WeakValueDictionary[str, Model] = WeakValueDictionary()
        self._trees = TreeDrafter(heads) if heads is not None else None

    def add(self, model: Model) -> str:
        """Register a loaded model; return its name, made unique by a number if necessary."""
        names = chain([model.name], (f"{model.name} ({number})" for number in count(2)))
        with self._lock:
            return next(name for name in names if self._given.setdefault(name, model) is model)

    def source(self, settings: Mapping[str, Any], target: Source, length: int) -> Source | None:
        """The drafter that the settings name, with the target's prompt; None if they name none."""
        if "assistant_early_exit" in settings:
            layers = settings["assistant_early_exit"] or self._half()
            exits = trained.exits(self._model) if settings["trained_exit"] else {}
            return self._own_layers(layers, target, length, exits.get(layers))
        if "assistant_model" in settings:
            name = settings["assistant_model"]
            if not name or self._is_target(name):
                return self._own_layers(0, target, length)
            return self._other_model(name, target, length)
        return None

    def heads(self, strategy: str) -> TreeDrafter:
        """The target's draft heads, loaded when first used."""
        with self._lock:
            if self._trees is None:
                found = trained.heads(self._model)
                if found is None:
                    raise PlaygroundError(
                        f"{strategy} needs draft heads, and {self._model.name} has none; they were"
                        f" trained for {', '.join(trained.TARGETS)}"
                    )
                self._trees = TreeDrafter(found)
            return self._trees

    def _is_target(self, name: str) -> bool:
        """Whether the name is the target's, and no other model was registered under it."""
        return name == self._model.name and self._given.get(name) in (None, self._model)

    def _half(self) -> int:
        config = self._model.module.config.get_text_config(decoder=True)
        return max(1, int(config.num_hidden_layers) // 2)

    def _own_layers(
        self, layers: int, target: Source, length: int, leaving: ExitLayers | None = None
    ) -> Source:
        """The target's first layers as the drafter; 0 is all of them."""
        evaluator = self._backends.first(layers, length, leaving)
        return Source(self._model, evaluator, _prompt(evaluator, self._model, target.prompt))

    def _other_model(self, name: str, target: Source, length: int) -> Source:
        draft, backends = self._load(name)
        if draft.is_encoder_decoder != self._model.is_encoder_decoder:
            raise PlaygroundError(
                f"assistant_model is {name!r}; an encoder-decoder drafts for encoder-decoders only"
            )
        prompt = target.prompt
        if not self._same_vocabulary(draft):
            if draft.is_encoder_decoder:
                raise PlaygroundError(
                    f"assistant_model is {name!r}; an encoder-decoder needs a draft model with its"
                    " own vocabulary"
                )
            # In the draft model's tokens; the strategy translates the prefix as the text grows.
            ids = list(draft.tokenizer(prompt.text).input_ids)
            prompt = Prompt(prompt.text, ids, ids)
        context, tokens = draft.context_length, len(prompt.ids) + len(prompt.prefix)
        if context is not None and tokens > context:
            raise PlaygroundError(
                f"assistant_model is {name!r}; it can attend to {context} tokens, and the prompt"
                f" has {tokens}"
            )
        evaluator = backends.whole(min(length + tokens, context or length + tokens))
        return Source(draft, evaluator, _prompt(evaluator, draft, prompt))

    def _load(self, name: str) -> tuple[Model, Backends]:
        with self._lock:
            given, known = self._given.get(name), self._loaded.pop(name, None)
            if known is None or given not in (None, known[0]):
                model = given or self._fetch(name)
                known = (model, self._backends_of(model))
            else:
                known[1].refresh()
            self._loaded[name] = known
            while len(self._loaded) > CACHED:
                self._loaded.popitem(last=False)
            return known

    def _fetch(self, name: str) -> Model:
        if name in trained.drafts_for(trained.target_of(self._model) or "")[:1]:
            return trained.draft(self._model)
        if self._allowed is not None and name not in self._allowed:
            near, allowed = did_you_mean(name, self._allowed), ", ".join(self._allowed) or "none"
            raise PlaygroundError(
                f"assistant_model is {name!r}; this server allows {allowed}{near}"
            )
        try:
            return loading.load(name)
        except PlaygroundError as error:
            raise PlaygroundError(f"assistant_model: {error}") from error

    def _backends_of(self, model: Model) -> Backends:
        # Logits as wide as the target's: models of one family pad their vocabularies differently.
        width = self._model.module.config.get_text_config().vocab_size
        same = self._same_vocabulary(model)
        return Backends(model.module, self._positions, width if same else None, packed=True)

    def _same_vocabulary(self, draft: Model) -> bool:
        return same_vocabulary(self._model.tokenizer, draft.tokenizer)


def _prompt(evaluator: Evaluator, model: Model, prompt: Prompt) -> Prompt:
    """The prompt and its prefix, ready for the drafter."""
    text, ids, prefix = prompt.text, prompt.ids, prompt.prefix
    return evaluator.prompt(ids, prefix, lambda: read(model, text, ids, prefix))
