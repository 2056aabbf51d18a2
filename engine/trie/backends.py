"""The backends of one model: the trie, the plain backend, and the model's first layers alone.

They run a view of the model, never the model itself: see `engine.models.view`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

from transformers import PreTrainedModel

from engine.accel import enabled
from engine.accel.accelerated_pool import (
    Accelerations,
    GraphPool,
    accelerate,
    accelerated_pool,
)
from engine.accel.kernels import failures
from engine.drafting.exits import ExitLayers
from engine.models.view import Fingerprint, view_of
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


@dataclass
class _Checked:
    """What is known of a model that has not changed, so that it is checked once."""

    fingerprint: Fingerprint
    trie_length: int
    reason: str | None
    fused: bool = False  # its fused layers give what its own layers give


_checked: WeakKeyDictionary[PreTrainedModel, _Checked] = WeakKeyDictionary()


class Backends:
    """The evaluators of one model, created when first used and kept until the model changes.

    ``packed`` allows a second copy of the weights where that is faster on a CPU. ``vocabulary`` is
    the width of the logits where it is not the model's.
    """

    def __init__(
        self,
        module: PreTrainedModel,
        positions: int,
        vocabulary: int | None = None,
        *,
        packed: bool = False,
    ) -> None:
        self._module = module
        self._positions = positions
        self._vocabulary = vocabulary
        self._packed = packed
        self._build()

    def refresh(self) -> None:
        """Rebuild if the model's weights or modules have changed; call it before a comparison.

        Running comparisons keep their evaluators.
        """
        if not self._fingerprint.matches(self._module):
            for name in ("trie", "plain", "_pool", "_paths"):
                vars(self).pop(name, None)
            self._build()

    def _build(self) -> None:
        self._fingerprint = Fingerprint(self._module)
        self._view = view_of(self._module)
        self._partial: dict[tuple[Evaluator, int, ExitLayers | None], Evaluator] = {}
        known = _checked.get(self._module)
        if known is None or not known.fingerprint.matches(self._module):
            known = _Checked(self._fingerprint, *trie_length(self._view))
            _checked[self._module] = known
        self.trie_length, self._reason = known.trie_length, known.reason
        self._accelerations = Accelerations()
        if self.trie_length and enabled():
            self._accelerations = accelerate(
                self._view, self._module, packed=self._packed, check=not known.fused
            )
            known.fused = "fused layers" in self._accelerations.used
        if self.trie_length:
            _ = self._pool  # prepared now, not when the first run waits for it

    @property
    def status(self) -> BackendStatus:
        """The backend that runs texts of ordinary length, and the accelerations in use."""
        if not self.trie_length:
            return BackendStatus("plain", self._reason, (), ())
        used, fallbacks = [*self._accelerations.used], [*self._accelerations.fallbacks]
        if not enabled():
            fallbacks.append("PLAYGROUND_ACCEL is off")
        if isinstance(self._pool, GraphPool):
            fallbacks += [f"no Triton kernels for {name}: {why}" for name, why in failures.items()]
            failure = self._pool.graphs.failure
            if failure is None:
                used.append("CUDA graphs")
            else:
                fallbacks.append(f"no CUDA graphs: {failure}")
        return BackendStatus("trie", None, tuple(used), tuple(fallbacks))

    def whole(self, length: int) -> Evaluator:
        """The trie if the model supports it for a text this long, else the plain backend."""
        return self.trie if length <= self.trie_length else self.plain

    def first(self, layers: int, length: int, leaving: ExitLayers | None = None) -> Evaluator:
        """The model's first layers over the same slots, followed by its own norm and head or by a
        trained exit; 0 is the whole model, for one that drafts for itself."""
        whole = self.whole(length)
        known = self._partial.get((whole, layers, leaving))
        if known is None:
            backend: Pool | Plain = self._pool if whole is self.trie else self._paths
            early = EarlyExit(backend, self._view, layers, leaving) if layers else backend
            known = self._partial[whole, layers, leaving] = Evaluator(early, whole.lock)
        return known

    @cached_property
    def trie(self) -> Evaluator:
        """Evaluates cells of one trie together."""
        return Evaluator(self._pool)

    @cached_property
    def plain(self) -> Evaluator:
        """Evaluates whole texts."""
        return Evaluator(self._paths)

    @cached_property
    def _pool(self) -> Pool:
        if not enabled():
            return Pool(self._view, self._positions, self._vocabulary)
        return accelerated_pool(self._view, self._positions, self._vocabulary, self._accelerations)

    @cached_property
    def _paths(self) -> Plain:
        return Plain(self._view, self._vocabulary)
