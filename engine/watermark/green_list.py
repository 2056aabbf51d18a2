"""Green lists: how far down a shuffled vocabulary a token stands, and so whether it is green.

Knows how transformers' processor seeds and shuffles. Refuses to know texts and statistics. A place
in the shuffle holds for every share of green tokens, so changing the share costs nothing.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from transformers import WatermarkLogitsProcessor

from engine.errors import PlaygroundError

NGram = tuple[int, ...]


class Draw(NamedTuple):
    """Where a token stands in the shuffle of a seed. What an n-gram gives is its draw's: other
    n-grams may have the same one, and then say nothing new."""

    seed: int
    token: int
    place: int


_KEPT = 400_000  # places remembered for one key, some sixty megabytes
_NEVER = 2**62  # the place of a token that is not in the vocabulary: behind everything


class GreenLists:
    """The shuffled vocabularies of one key, drawn when first asked for."""

    def __init__(
        self, vocabulary: int, device: str, scheme: str, hashing_key: int, context_width: int
    ) -> None:
        self._vocabulary = vocabulary
        self._device = device
        self._selfhash = scheme == "selfhash"
        self._processor = WatermarkLogitsProcessor(
            vocab_size=vocabulary,
            device=device,
            hashing_key=hashing_key,
            seeding_scheme=scheme,
            context_width=context_width,
        )
        self._draws: dict[NGram, Draw] = {}
        self._lock = threading.Lock()  # the processor has one random generator

    def draws(self, ngrams: Sequence[NGram], most: int) -> list[Draw]:
        """Where the last token of each n-gram stands in the shuffle its n-gram seeds; ``most``
        vocabularies are shuffled at most."""
        keys = [ngram if self._selfhash else ngram[-2:] for ngram in ngrams]
        with self._lock:
            if len(self._draws) > _KEPT:
                self._draws.clear()
            missing = self._by_seed(key for key in dict.fromkeys(keys) if key not in self._draws)
            if len(missing) > most:
                raise PlaygroundError(
                    f"this text needs {len(missing)} green lists, one for each context in it;"
                    f" at most {most} are drawn"
                )
            for seed, asked in missing.items():
                self._draws |= self._shuffle(seed, asked)
            return [self._draws[key] for key in keys]

    def _by_seed(self, keys: Iterable[NGram]) -> dict[int, list[NGram]]:
        """N-grams that share a list: drawing it is what costs."""
        by_context: dict[NGram, list[NGram]] = defaultdict(list)
        for key in keys:
            by_context[key if self._selfhash else key[:-1]].append(key)
        by_seed: dict[int, list[NGram]] = defaultdict(list)
        for context, asked in by_context.items():
            ids: Any = torch.tensor(context, device=self._device)
            self._processor.set_seed(ids)
            by_seed[self._processor.rng.initial_seed()] += asked
        return by_seed

    def _shuffle(self, seed: int, keys: Sequence[NGram]) -> dict[NGram, Draw]:
        rng = self._processor.rng.manual_seed(seed)
        shuffled = torch.randperm(self._vocabulary, device=self._device, generator=rng)
        targets = torch.tensor([key[-1] for key in keys], device=self._device)
        order = torch.arange(self._vocabulary, device=self._device)
        place = torch.empty_like(order).scatter_(0, shuffled, order)
        known = targets < self._vocabulary
        places = torch.where(known, place[targets.where(known, 0)], _NEVER)
        found = zip(keys, places.tolist(), strict=True)
        return {key: Draw(seed, key[-1], at) for key, at in found}


@lru_cache(maxsize=8)
def green_lists(
    vocabulary: int, device: str, scheme: str, hashing_key: int, context_width: int
) -> GreenLists:
    """The lists of one key, kept while they are among the last that were asked for."""
    return GreenLists(vocabulary, device, scheme, hashing_key, context_width)
