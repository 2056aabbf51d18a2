"""One run as its strategy sees it: nodes, scores, stopping rules and a trace to tell.

Knows how processors are applied and observed. Refuses to know caches and masks (the backend's),
figures and pages. A strategy that holds a node keeps its branch of the trie alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from engine.backend import Place, Reading, gather
from engine.observe import Stage, observe, processor_name
from engine.prepare import Prepared
from engine.record import Recorder
from engine.stopping import StopRules
from engine.tokens import Speller
from engine.trace import Stop
from engine.trie import Cell


@dataclass(frozen=True, eq=False)
class Node:
    """An evaluated place in the trie, as one run sees it."""

    cell: Cell
    place: Place  # what the model says after it
    ids: Tensor  # (length,) the tokens from the start of the prompt to here
    step: int | None  # the run's step for its token; None at the root

    def padded(self, token: int) -> Node:
        """The same place one token longer: what an ended row looks like to processors."""
        return replace(self, ids=torch.cat([self.ids, self.ids.new_tensor([token])]))


@dataclass(frozen=True, eq=False)
class Pick:
    """A token the trace is told about, taken or turned down, with the strategy's own numbers."""

    node: Node
    token: int
    event: str = "chosen"
    notes: Mapping[str, Any] = field(default_factory=dict)


class Run:
    """The verbs a strategy decodes with."""

    root: Node  # where the prompt ends; set once the engine has evaluated it

    def __init__(
        self,
        prepared: Prepared,
        recorder: Recorder,
        speller: Speller,
        prompt_length: int,
        seed: int,
        model_calls: Callable[[], int],
    ) -> None:
        self.config = prepared.config
        self.recorder = recorder
        self._processors = prepared.processors
        self._rules = StopRules(prepared.criteria, prompt_length, speller)
        self._speller = speller
        self._seed = seed
        self._model_calls = model_calls
        self._seen: tuple[Sequence[Node], Reading, list[Stage]] | None = None

    @cached_property
    def generator(self) -> torch.Generator:
        """The run's own random numbers: on a CPU, those `generate` draws after `set_seed`."""
        return torch.Generator(self.root.ids.device).manual_seed(self._seed)

    @property
    def pad(self) -> int:
        """The token that fills up a row that has ended."""
        pad = self.config._pad_token_tensor
        return 0 if pad is None else int(pad)

    def scores(self, nodes: Sequence[Node], *, log_probs: bool = False) -> Tensor:
        """What the processors make of the model's logits or log-probabilities: (nodes, vocab)."""
        reading = gather([node.place for node in nodes])
        ids = torch.stack([node.ids for node in nodes])
        scores = reading.log_probs if log_probs else reading.logits
        stages = []
        calls = self._model_calls()
        for processor in self._processors:
            # A caller's processor may write into what it gets, and what came before must survive.
            trusted = type(processor).__module__.startswith("transformers.")
            scores = processor(ids, scores if trusted else scores.clone())
            stages.append(Stage(processor_name(processor), scores))
        self.recorder.charge(self._model_calls() - calls, 0)  # guidance runs the model itself
        self._seen = (nodes, reading, stages)
        return scores

    def stops(self, nodes: Sequence[Node], tokens: Sequence[int]) -> list[Stop | None]:
        """For each node and the token after it, the rule that ends the text there, if any."""
        ids = torch.stack([node.ids for node in nodes])
        ends = torch.tensor(tokens, device=ids.device)[:, None]
        return self._rules.check(torch.cat([ids, ends], dim=-1))

    def record(self, picks: Sequence[Pick]) -> list[int]:
        """Tell the trace what was picked from the last scores; gives each pick's step."""
        assert self._seen is not None, "scores come before record"
        nodes, reading, stages = self._seen
        rows = {id(node): row for row, node in reversed(list(enumerate(nodes)))}
        places = [(rows[id(pick.node)], pick.token) for pick in picks]
        observed = observe(reading, stages, places, self._speller)
        return [
            self.recorder.step(pick.node.step, pick.token, seen, pick.event, pick.notes)
            for pick, seen in zip(picks, observed, strict=True)
        ]

    def choose(self, node: Node, token: int, **notes: Any) -> int:
        """Tell the trace of one chosen token; gives its step."""
        return self.record([Pick(node, token, notes=notes)])[0]

    def show(self, tips: Iterable[int]) -> None:
        """Say which texts to show now, by their last steps, the leading one first."""
        self.recorder.show(tips)

    def finish(self, ends: Iterable[tuple[int, float | None, Stop]], stop: Stop) -> None:
        """Return sequences, best first: last step, score, and the rule that ended each."""
        self.recorder.finish(ends, stop)

    def forget(self) -> None:
        """Let go of everything but the record."""
        self._seen = None
        self.__dict__.pop("root", None)
