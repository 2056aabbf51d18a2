"""The backends of one model: the trie, the plain backend, and the model's first layers alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from transformers import PreTrainedModel

from engine.accel.graphs import recordable
from engine.drafting.exits import Leaving
from engine.trie.early_exit import EarlyExit
from engine.trie.evaluator import Evaluator
from engine.trie.plain import Plain
from engine.trie.pool import Pool
from engine.trie.support import trie_length


@dataclass(frozen=True)
class BackendStatus:
    """How a model is run, and what could not be used with the reason."""

    backend: str  # "trie" or "plain"
    reason: str | None  # why the trie is not used; None where it is
    accelerations: tuple[str, ...]  # those in use, for example "fused layers"
    fallbacks: tuple[str, ...]  # those that failed or do not apply, each with its reason

    def __str__(self) -> str:
        """One line, for a table or a tooltip."""
        used = f" with {', '.join(self.accelerations)}" if self.accelerations else ""
        missing = [self.reason, *self.fallbacks] if self.reason else self.fallbacks
        return f"{self.backend} backend{used}" + (f" ({'; '.join(missing)})" if missing else "")


class Backends:
    """The readers of one model, made when they are asked for and kept."""

    def __init__(
        self, module: PreTrainedModel, positions: int, vocabulary: int | None = None
    ) -> None:
        self._module = module
        self._positions = positions
        self._vocabulary = vocabulary  # how wide logits are to be, where not as the model has them
        self.trie_length, self._reason = trie_length(module)
        self._further: dict[tuple[Evaluator, int, Leaving | None], Evaluator] = {}
        if self.trie_length and recordable(module):
            _ = self._pool  # what a GPU has to prepare it prepares now: later somebody would wait

    @property
    def status(self) -> BackendStatus:
        """The backend that runs texts of ordinary length, and the accelerations in use."""
        if not self.trie_length:
            return BackendStatus("plain", self._reason, (), ())
        pool = self._pool
        return BackendStatus("trie", None, tuple(pool.accelerations), tuple(pool.fallbacks))

    def whole(self, length: int) -> Evaluator:
        """The trie where the model allows it for a text this long, else the plain backend."""
        return self.trie if length <= self.trie_length else self.plain

    def first(self, layers: int, length: int, leaving: Leaving | None = None) -> Evaluator:
        """The model's first layers over the same positions, left as it would be or as was trained
        for them; 0 is the whole model once more, for one that drafts for itself."""
        whole = self.whole(length)
        known = self._further.get((whole, layers, leaving))
        if known is None:
            backend: Pool | Plain = self._pool if whole is self.trie else self._paths
            early = EarlyExit(backend, self._module, layers, leaving) if layers else backend
            known = self._further[whole, layers, leaving] = Evaluator(early, whole.lock)
        return known

    @cached_property
    def trie(self) -> Evaluator:
        """Reads cells of one trie, all together."""
        return Evaluator(self._pool)

    @cached_property
    def plain(self) -> Evaluator:
        """Reads whole paths."""
        return Evaluator(self._paths)

    @cached_property
    def _pool(self) -> Pool:
        return Pool(self._module, self._positions, self._vocabulary)

    @cached_property
    def _paths(self) -> Plain:
        return Plain(self._module, self._vocabulary)
