"""Which rule ended a text: transformers' own stopping criteria, asked one by one.

Knows transformers' criteria and what to call them. Refuses to decide anything itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import NamedTuple

import torch
from transformers.generation.stopping_criteria import (
    EosTokenCriteria,
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteria,
    StopStringCriteria,
)

from engine.trace import Stop
from engine.trace.token_text import TokenDecoder

_LAST_TOKEN = (EosTokenCriteria, MaxLengthCriteria, MaxTimeCriteria)


class _Asked(NamedTuple):
    """A criterion, and what tells without asking it that it has nothing to say yet."""

    criterion: StoppingCriteria
    shortest: int | None = None  # of the texts it may end
    ends: frozenset[int] | None = None  # the tokens that make it end one

    @staticmethod
    def of(criterion: StoppingCriteria) -> _Asked:
        if type(criterion) is MaxLengthCriteria:
            known = criterion.max_position_embeddings  # it has something to say about that as well
            return _Asked(criterion, min(criterion.max_length, known or criterion.max_length))
        if type(criterion) is EosTokenCriteria:
            # Fetched once: a GPU that has them would be waited for at every token.
            return _Asked(criterion, ends=frozenset(criterion.eos_token_id.tolist()))
        return _Asked(criterion)

    def surely_not(self, length: int, tokens: Iterable[int]) -> bool:
        """Whether it need not be asked: nearly always, and to ask takes a while."""
        if self.shortest is not None:
            return length < self.shortest
        return self.ends is not None and self.ends.isdisjoint(tokens)


class StopRules:
    """The criteria of one run."""

    def __init__(
        self,
        criteria: Sequence[StoppingCriteria],
        prompt_length: int,
        token_decoder: TokenDecoder,
        device: torch.device,
    ) -> None:
        self._device = device
        # A text that ends by itself on its last allowed token ended by itself: limits come last.
        limits = (MaxLengthCriteria, MaxTimeCriteria)
        ordered = sorted(criteria, key=lambda criterion: isinstance(criterion, limits))
        # A clock of its own: a caller may have given the same one to several runs.
        own = [copy(c) if isinstance(c, MaxTimeCriteria) else c for c in ordered]
        self._criteria = [_Asked.of(criterion) for criterion in own]
        self._prompt_length = prompt_length
        self._token_decoder = token_decoder

    def wait(self, seconds: float) -> None:
        """Leave time out of what a time limit counts: somebody held the run."""
        for criterion, *_ in self._criteria:
            if isinstance(criterion, MaxTimeCriteria):
                criterion.initial_timestamp += seconds

    def after(self, texts: Sequence[Sequence[int]], tokens: Sequence[int]) -> list[Stop | None]:
        """For each of some texts of one length and the token behind it, the first rule that ends
        it there."""
        length = len(texts[0]) + 1
        if all(asked.surely_not(length, tokens) for asked in self._criteria):
            return [None] * len(texts)
        return self.check([(*text, token) for text, token in zip(texts, tokens, strict=True)])

    def check(self, texts: Sequence[tuple[int, ...]]) -> list[Stop | None]:
        """For each of some texts of one length, the first rule that ends it there."""
        stops: list[Stop | None] = [None] * len(texts)
        # What the known ones look at: the last token, how long the text is, the clock. They are
        # asked on the host, as a GPU would have to be waited for.
        length, tokens = len(texts[0]), [text[-1] for text in texts]
        last = torch.tensor(tokens)[:, None].expand(-1, length)
        for asked in self._criteria:
            if asked.surely_not(length, tokens):
                continue
            criterion = asked.criterion
            known = type(criterion) in _LAST_TOKEN
            given = last if known else torch.tensor(texts, device=self._device)
            fired = torch.as_tensor(criterion(given, None)).expand(len(stops))
            for row, hit in enumerate(fired.tolist()):
                if hit and stops[row] is None:
                    stops[row] = self._name(criterion, texts[row])
        return stops

    def _name(self, criterion: StoppingCriteria, ids: Sequence[int]) -> Stop:
        if isinstance(criterion, EosTokenCriteria):
            return Stop("end_token", self._token_decoder.token(ids[-1]).text)
        if isinstance(criterion, StopStringCriteria):
            return Stop("stop_string", self._found(criterion.stop_strings, ids))
        if isinstance(criterion, MaxLengthCriteria):
            return Stop("length", f"{len(ids) - self._prompt_length} new tokens")
        if isinstance(criterion, MaxTimeCriteria):
            return Stop("time", f"{criterion.max_time:g} s")
        return Stop(type(criterion).__name__)

    def _found(self, stop_strings: Sequence[str], ids: Sequence[int]) -> str:
        """The stop string that the last token completed: the one that ends latest in the text."""
        text = self._token_decoder.text(ids)
        return max(
            stop_strings, key=lambda string: text.rfind(string) + len(string) * (string in text)
        )
