"""Which rule ends a text: transformers' own stopping criteria, evaluated one by one."""

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

_READ_LAST_TOKEN = (EosTokenCriteria, MaxLengthCriteria, MaxTimeCriteria)


class _Criterion(NamedTuple):
    """A criterion, and a cheap test that rules it out."""

    criterion: StoppingCriteria
    min_length: int | None = None  # it ends no shorter text
    end_tokens: frozenset[int] | None = None  # it ends no text with another last token

    @staticmethod
    def of(criterion: StoppingCriteria) -> _Criterion:
        if type(criterion) is MaxLengthCriteria:
            positions = criterion.max_position_embeddings  # beyond these it logs a warning
            length = min(criterion.max_length, positions or criterion.max_length)
            return _Criterion(criterion, length)
        if type(criterion) is EosTokenCriteria:
            # Read once: on a GPU every read waits.
            return _Criterion(criterion, end_tokens=frozenset(criterion.eos_token_id.tolist()))
        return _Criterion(criterion)

    def ruled_out(self, length: int, tokens: Iterable[int]) -> bool:
        """Whether it need not be evaluated, which is slow: nearly always."""
        if self.min_length is not None:
            return length < self.min_length
        return self.end_tokens is not None and self.end_tokens.isdisjoint(tokens)


class StopRules:
    """The stopping criteria of one run."""

    def __init__(
        self,
        criteria: Sequence[StoppingCriteria],
        prompt_length: int,
        token_decoder: TokenDecoder,
        device: torch.device,
    ) -> None:
        self._device = device
        # Limits come last: an end token in the last allowed place is the reason to report.
        limits = (MaxLengthCriteria, MaxTimeCriteria)
        ordered = sorted(criteria, key=lambda criterion: isinstance(criterion, limits))
        # Copied, as a caller may share one among runs: each has its own clock.
        own = [copy(c) if isinstance(c, MaxTimeCriteria) else c for c in ordered]
        self._criteria = [_Criterion.of(criterion) for criterion in own]
        self._prompt_length = prompt_length
        self._token_decoder = token_decoder

    def exclude_time(self, seconds: float) -> None:
        """Leave time in which the run was paused out of the time limit."""
        for criterion, *_ in self._criteria:
            if isinstance(criterion, MaxTimeCriteria):
                criterion.initial_timestamp += seconds

    def after(self, texts: Sequence[Sequence[int]], tokens: Sequence[int]) -> list[Stop | None]:
        """The first rule that ends each text with the token after it; texts are of one length."""
        length = len(texts[0]) + 1
        if all(own.ruled_out(length, tokens) for own in self._criteria):
            return [None] * len(texts)
        return self.check([(*text, token) for text, token in zip(texts, tokens, strict=True)])

    def check(self, texts: Sequence[tuple[int, ...]]) -> list[Stop | None]:
        """The first rule that ends each text; texts are of one length."""
        stops: list[Stop | None] = [None] * len(texts)
        # The known criteria read only the last token, the length and the clock. They are evaluated
        # on the host, without waiting for a GPU.
        length, tokens = len(texts[0]), [text[-1] for text in texts]
        last = torch.tensor(tokens)[:, None].expand(-1, length)
        for own in self._criteria:
            if own.ruled_out(length, tokens):
                continue
            criterion = own.criterion
            known = type(criterion) in _READ_LAST_TOKEN
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
