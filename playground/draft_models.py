"""Draft models: loaded when a run names one, kept for the next, and given the run's prompt to read.

Knows where drafts come from: a model by name, the one that was trained for the model, the model
itself, or its first layers. Refuses to know how they are used.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import chain, count
from typing import Any
from weakref import WeakValueDictionary

from engine.drafting.cross_tokenizer import alike
from engine.drafting.draft_tree import TreeDrafter
from engine.drafting.exits import Leaving
from engine.drafting.heads import Heads
from engine.errors import PlaygroundError, did_you_mean
from engine.models import loading, trained
from engine.models.model import Model
from engine.prompt import Prompt, read
from engine.trie.backends import Backends
from engine.trie.evaluator import Evaluator
from engine.trie.node import Source

KEPT = 2  # draft models in memory; one more lets the one go that was not used for longest


class DraftModels:
    """The draft models of one lab. ``allowed`` are the names runs may give; None allows any.
    ``heads`` are the model's draft heads, where not those that come with it."""

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
        # Models that callers hold: those of a comparison may be more than are kept.
        self._adopted: WeakValueDictionary[str, Model] = WeakValueDictionary()
        self._trees = TreeDrafter(heads) if heads is not None else None

    def adopt(self, model: Model) -> str:
        """Take in a model that is loaded already; gives the name to ask for it by."""
        names = chain([model.name], (f"{model.name} ({number})" for number in count(2)))
        with self._lock:
            return next(name for name in names if self._adopted.setdefault(name, model) is model)

    @cached_property
    def usual(self) -> dict[str, Any]:
        """What a run is told that may name a draft model and names none: the one that was trained
        for the model, and how that is best used; nothing where there is none."""
        own = trained.drafts_for(trained.target_of(self._model) or "")
        return {"assistant_model": own[0], **trained.DRAFT_DEFAULTS} if own else {}

    @cached_property
    def usual_exit(self) -> dict[str, Any]:
        """The same for one that may say after how many layers the model is left."""
        layers = trained.exit_layers(self._model)
        return {"assistant_early_exit": layers[0], **trained.EXIT_DEFAULTS} if layers else {}

    def source(self, settings: Mapping[str, Any], target: Source, length: int) -> Source | None:
        """Who drafts under these settings, if anybody, with the target's prompt to read."""
        if "assistant_early_exit" in settings:
            layers = settings["assistant_early_exit"] or self._half()
            exits = trained.exits(self._model) if settings["trained_exit"] else {}
            return self._inside(layers, target, length, exits.get(layers))
        if "assistant_model" in settings:
            name = settings["assistant_model"]
            if not name or self._is_own(name):
                return self._inside(0, target, length)
            return self._named(name, target, length)
        return None

    def heads(self, strategy: str) -> TreeDrafter:
        """The model's draft heads at work, read when a strategy first wants them."""
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

    def _is_own(self, name: str) -> bool:
        """Whether a name is the model's own, and not another's that goes by the same."""
        return name == self._model.name and self._adopted.get(name) in (None, self._model)

    def _half(self) -> int:
        config = self._model.module.config.get_text_config(decoder=True)
        return max(1, int(config.num_hidden_layers) // 2)

    def _inside(
        self, layers: int, target: Source, length: int, leaving: Leaving | None = None
    ) -> Source:
        """The model itself as its own draft, or its first layers."""
        evaluator = self._backends.first(layers, length, leaving)
        return Source(self._model, evaluator, _prompt(evaluator, self._model, target.prompt))

    def _named(self, name: str, target: Source, length: int) -> Source:
        draft, backends = self._load(name)
        if draft.is_encoder_decoder != self._model.is_encoder_decoder:
            raise PlaygroundError(
                f"assistant_model is {name!r}; an encoder-decoder drafts for encoder-decoders only"
            )
        prompt = target.prompt
        if not self._alike(draft):
            if draft.is_encoder_decoder:
                raise PlaygroundError(
                    f"assistant_model is {name!r}; encoder-decoders need drafts of one vocabulary"
                )
            # In tokens of its own; the prefix is respelled as the text goes on.
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
            adopted, known = self._adopted.get(name), self._loaded.pop(name, None)
            if known is None or adopted not in (None, known[0]):
                model = adopted or self._fetch(name)
                known = (model, self._backends_of(model))
            self._keep(name, known)
            return known

    def _fetch(self, name: str) -> Model:
        if name == self.usual.get("assistant_model"):
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

    def _keep(self, name: str, known: tuple[Model, Backends]) -> None:
        self._loaded[name] = known
        while len(self._loaded) > KEPT:
            self._loaded.popitem(last=False)

    def _backends_of(self, model: Model) -> Backends:
        # Logits of the target's width: models of one family pad their vocabularies differently.
        width = self._model.module.config.get_text_config().vocab_size
        return Backends(model.module, self._positions, width if self._alike(model) else None)

    def _alike(self, draft: Model) -> bool:
        return alike(self._model.tokenizer, draft.tokenizer)


def _prompt(evaluator: Evaluator, model: Model, prompt: Prompt) -> Prompt:
    """A prompt as a draft model reads it, with what stands after it."""
    text, ids, prefix = prompt.text, prompt.ids, prompt.prefix
    return evaluator.prompt(ids, prefix, lambda: read(model, text, ids, prefix))
