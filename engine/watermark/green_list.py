"""Green lists: whether a token is green, by its place in a shuffled vocabulary.

The shuffles are those of transformers' `WatermarkLogitsProcessor`. The place in a shuffle is valid
for every share of green tokens, so that changing the share needs no new one.
"""

from __future__ import annotations

import copy
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import WatermarkLogitsProcessor

from engine.errors import PlaygroundError

NGram = tuple[int, ...]


class Draw(NamedTuple):
    """The place of a token in the shuffle of a seed. Several n-grams may share a draw: then only
    one of them is evidence."""

    seed: int
    token: int
    place: int


STAGE = "watermark"  # the name of `WatermarkLogitsProcessor` among a distribution's processors

# `WatermarkLogitsProcessor` tries this many of the most probable tokens, each on its own list.
SELFHASH_CANDIDATES = 40

_CACHED = 400_000  # places cached for one key, about sixty megabytes
_NEVER = 2**62  # the place of a token outside the vocabulary: never green


class GreenLists:
    """The places of tokens in the shuffled vocabularies of one key, computed on demand.

    The processor is copied with a random generator of its own: the given one may be in use.
    """

    def __init__(self, processor: WatermarkLogitsProcessor) -> None:
        self._vocabulary = int(processor.vocab_size)
        self._device = processor.rng.device
        self._selfhash = processor.seeding_scheme == "selfhash"
        self._processor = copy.copy(processor)
        self._processor.rng = torch.Generator(device=self._device)
        self._draws: dict[NGram, Draw] = {}
        self._lock = threading.Lock()  # the processor has one random generator

    def draws(self, ngrams: Sequence[NGram], most: int) -> list[Draw]:
        """The place of each n-gram's last token in the shuffle that the n-gram seeds. At most
        ``most`` vocabularies are shuffled."""
        keys = [ngram if self._selfhash else ngram[-2:] for ngram in ngrams]
        with self._lock:
            if len(self._draws) > _CACHED:
                self._draws.clear()
            missing = self._by_seed(key for key in dict.fromkeys(keys) if key not in self._draws)
            if len(missing) > most:
                raise PlaygroundError(
                    f"the text needs {len(missing)} green lists, one for each context; the limit"
                    f" is {most}"
                )
            for seed, shared in missing.items():
                self._draws |= self._shuffle(seed, shared)
            return [self._draws[key] for key in keys]

    def _by_seed(self, keys: Iterable[NGram]) -> dict[int, list[NGram]]:
        """N-grams grouped by their seed: the shuffle is the expensive part."""
        by_context: dict[NGram, list[NGram]] = defaultdict(list)
        for key in keys:
            by_context[key if self._selfhash else key[:-1]].append(key)
        by_seed: dict[int, list[NGram]] = defaultdict(list)
        for context, shared in by_context.items():
            ids: Any = torch.tensor(context, device=self._device)
            self._processor.set_seed(ids)
            by_seed[self._processor.rng.initial_seed()] += shared
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


def is_green(processor: WatermarkLogitsProcessor, prefix: Sequence[int], token: int) -> bool | None:
    """Whether a token is on the green list that a processor draws after a prefix.

    None where the prefix is too short for the processor to draw one.
    """
    if len(prefix) < processor.context_width:
        return None
    lists = GreenLists(processor)
    length = processor.context_width + (processor.seeding_scheme != "selfhash")
    [draw] = lists.draws([(*prefix, token)[-length:]], most=1)
    return draw.place < int(processor.greenlist_size)


def green_notes(
    processor: WatermarkLogitsProcessor,
    texts: Sequence[Sequence[int]],
    scores: Tensor,
    picks: Sequence[tuple[int, int]],
) -> list[dict[str, Any]]:
    """For each picked (row, token) a note for the trace whether it is on the green list.

    ``texts`` are the tokens before each row and ``scores``, (rows, vocab), what the processor was
    given there. There is no note where the processor drew no list.
    """
    notes: list[dict[str, Any]] = []
    for row, token in picks:
        green = is_green(processor, texts[row], token)
        if green and processor.seeding_scheme == "selfhash":
            higher = int((scores[row] > scores[row, token]).sum())
            green = higher < SELFHASH_CANDIDATES
        notes.append({} if green is None else {"green": green})
    return notes


@lru_cache(maxsize=8)
def green_lists(
    vocabulary: int, device: str, scheme: str, hashing_key: int, context_width: int
) -> GreenLists:
    """The green lists of one key; the last eight keys are cached."""
    return GreenLists(
        WatermarkLogitsProcessor(
            vocab_size=vocabulary,
            device=device,
            hashing_key=hashing_key,
            seeding_scheme=scheme,
            context_width=context_width,
        )
    )
