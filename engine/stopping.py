"""Which rule ended a text: transformers' own stopping criteria, asked one by one.

Knows transformers' criteria and what to call them. Refuses to decide anything itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from transformers.generation.stopping_criteria import (
    EosTokenCriteria,
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteria,
    StopStringCriteria,
)

from engine.tokens import Speller
from engine.trace import Stop

_LAST_TOKEN = (EosTokenCriteria, MaxLengthCriteria, MaxTimeCriteria)


def _surely_not(criterion: StoppingCriteria, texts: Sequence[tuple[int, ...]]) -> bool:
    """Whether a criterion need not be asked: nearly always, and to ask takes a while."""
    if type(criterion) is MaxLengthCriteria:
        known = criterion.max_position_embeddings  # it has something to say about that as well
        return len(texts[0]) < min(criterion.max_length, known or criterion.max_length)
    if type(criterion) is EosTokenCriteria:
        return not {text[-1] for text in texts} & set(criterion.eos_token_id.tolist())
    return False


class StopRules:
    """The criteria of one run."""

    def __init__(
        self,
        criteria: Sequence[StoppingCriteria],
        prompt_length: int,
        speller: Speller,
        device: torch.device,
    ) -> None:
        self._device = device
        # A text that ends by itself on its last allowed token ended by itself: limits come last.
        limits = (MaxLengthCriteria, MaxTimeCriteria)
        ordered = sorted(criteria, key=lambda criterion: isinstance(criterion, limits))
        # A clock of its own: a caller may have given the same one to several runs.
        self._criteria = [copy(c) if isinstance(c, MaxTimeCriteria) else c for c in ordered]
        self._prompt_length = prompt_length
        self._speller = speller

    def wait(self, seconds: float) -> None:
        """Leave time out of what a time limit counts: somebody held the run."""
        for criterion in self._criteria:
            if isinstance(criterion, MaxTimeCriteria):
                criterion.initial_timestamp += seconds

    def check(self, texts: Sequence[tuple[int, ...]]) -> list[Stop | None]:
        """For each of some texts of one length, the first rule that ends it there."""
        stops: list[Stop | None] = [None] * len(texts)
        # What the known ones look at: the last token, how long the text is, the clock. They are
        # asked on the host, as a GPU would have to be waited for.
        last = torch.tensor([text[-1:] for text in texts]).expand(-1, len(texts[0]))
        for criterion in self._criteria:
            if _surely_not(criterion, texts):
                continue
            known = type(criterion) in _LAST_TOKEN
            given = last if known else torch.tensor(texts, device=self._device)
            fired = torch.as_tensor(criterion(given, None)).expand(len(stops))
            for row, hit in enumerate(fired.tolist()):
                if hit and stops[row] is None:
                    stops[row] = self._name(criterion, texts[row])
        return stops

    def _name(self, criterion: StoppingCriteria, ids: Sequence[int]) -> Stop:
        if isinstance(criterion, EosTokenCriteria):
            return Stop("end_token", self._speller.token(ids[-1]).text)
        if isinstance(criterion, StopStringCriteria):
            return Stop("stop_string", self._found(criterion.stop_strings, ids))
        if isinstance(criterion, MaxLengthCriteria):
            return Stop("length", f"{len(ids) - self._prompt_length} new tokens")
        if isinstance(criterion, MaxTimeCriteria):
            return Stop("time", f"{criterion.max_time:g} s")
        return Stop(type(criterion).__name__)

    def _found(self, stop_strings: Sequence[str], ids: Sequence[int]) -> str:
        """The stop string that the last token completed: the one that ends latest in the text."""
        text = self._speller.text(ids)
        return max(
            stop_strings, key=lambda string: text.rfind(string) + len(string) * (string in text)
        )
