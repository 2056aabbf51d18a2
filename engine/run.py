"""One run as its strategy sees it: nodes, scores, stopping rules and a trace to tell.

Knows what is scored, told and ended. Refuses to know caches and masks (the backend's),
figures and pages. A strategy that holds a node keeps its branch of the trie alive.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import WatermarkLogitsProcessor

from engine.accel.host_future import HostFuture, fetch
from engine.drafting.draft_model import Draft
from engine.drafting.draft_tree import TreeDrafter
from engine.errors import PlaygroundError
from engine.interop.capture import CodeCapture
from engine.prepare import Prepared
from engine.processors import process, sample
from engine.sampling import multinomial
from engine.stopping import StopRules
from engine.trace import Stop
from engine.trace.deferred_writer import DeferredWriter, Notes, Scores
from engine.trace.distributions import Stage
from engine.trace.recorder import Recorder
from engine.trace.statistics import KnownStatistics, Picks
from engine.trace.token_text import TokenDecoder
from engine.trie.backend import TOP, Best, after_layers, parts
from engine.trie.evaluator import Evaluator
from engine.trie.node import Node, Pick, Source
from engine.watermark.green_list import green_notes

__all__ = ["Node", "Pick", "Run"]


def _of_row(row: int, notes: Notes, picks: Picks) -> Sequence[Mapping[str, Any]]:
    """The notes on picks from a row that stands alone now."""
    return notes([(row, token) for _, token in picks])


class _Seen(NamedTuple):
    """The last scores a strategy asked for, and where."""

    nodes: Sequence[Node]
    scores: Scores


class Run:
    """The verbs a strategy decodes with."""

    root: Node  # where the prompt ends; set once the prompt has been evaluated
    draft: Draft  # the run's draft model, if it has one; set likewise
    heads: TreeDrafter  # the model's draft heads; set by who makes the run, where one wants them

    def __init__(
        self,
        source: Source,
        prepared: Prepared,
        recorder: Recorder,
        token_decoder: TokenDecoder,
        seed: int | torch.Generator,
        model_calls: Callable[[], int],
        drafts: Source | None = None,
    ) -> None:
        self.config = prepared.config
        self.recorder = recorder
        self._source = source
        self._drafts = drafts
        self._again = prepared.again
        self._processors = prepared.processors
        marks = (one for one in prepared.processors if isinstance(one, WatermarkLogitsProcessor))
        self._watermark = next(marks, None)
        device = source.model.device
        self._rules = StopRules(prepared.criteria, len(source.prompt.start), token_decoder, device)
        self.writer = DeferredWriter(recorder, token_decoder, source.evaluator.statistics, device)
        self._token_decoder = token_decoder
        self._seed = seed
        self._model_calls = model_calls
        self._seen: _Seen | None = None
        self._alone = False

    def begin(self, *, alone: bool = False) -> None:
        """Have the prompt evaluated, by the draft model as well; ``alone``: no run beside it."""
        self._alone = alone
        for source in filter(None, (self._source, self._drafts)):
            if nodes := source.begin():
                self.charge(source.evaluator, nodes)
        self.root = self._source.root
        if self._drafts:
            self.draft = Draft(self._drafts, self._source)

    @property
    def backends(self) -> list[Evaluator]:
        """Those of the model and, if there is one, of the draft model."""
        return [source.evaluator for source in (self._source, self._drafts) if source]

    def charge(self, evaluator: Evaluator, nodes: int) -> None:
        """Add one pass to the cost of the tick under way."""
        drafting = evaluator is not self._source.evaluator
        self.recorder.charge(int(not drafting), nodes, int(drafting))

    def wait(self, seconds: float) -> None:
        """Leave time out of the run's own: somebody held it."""
        self.recorder.wait(seconds)
        self._rules.wait(seconds)

    @cached_property
    def generator(self) -> torch.Generator:
        """The run's own random numbers: on a CPU, those `generate` draws after `set_seed`."""
        if isinstance(self._seed, torch.Generator):
            return self._seed
        return torch.Generator(self.root.ids.device).manual_seed(self._seed)

    @property
    def pad(self) -> int:
        """The token that fills up a row that has ended."""
        pad = self.config._pad_token_tensor
        return 0 if pad is None else int(pad)

    @property
    def end_tokens(self) -> set[int]:
        """The tokens that end a text."""
        ends = self.config._eos_token_tensor
        return set() if ends is None else set(ends.tolist())

    def scores(
        self,
        nodes: Sequence[Node],
        *,
        log_probs: bool = False,
        reshaped: tuple[str, Tensor] | None = None,
    ) -> Tensor:
        """What the processors make of the model's logits or log-probabilities: (nodes, vocab).

        ``reshaped`` is what the strategy itself has made of the logits before, and how to call it.
        """
        places = [node.place for node in nodes]
        [scores] = parts(places, "log_probs" if log_probs else "logits")
        stages, calls = [Stage(*reshaped)] if reshaped else [], self._model_calls()
        texts, given = [node.text for node in nodes], stages[-1].scores if stages else scores
        beams, graph_calls = self.config.num_beams, self._source.evaluator.graph_calls
        stages += process(self._processors, texts, given, beams, graph_calls)
        self.recorder.charge(self._model_calls() - calls, 0)  # guidance runs the model itself
        notes = self._green_notes(texts, given, stages[len(stages) - len(self._processors) :])
        self._seen = _Seen(nodes, Scores(places, scores, stages, notes=notes))
        return stages[-1].scores if stages else scores

    @property
    def unhindered(self) -> bool:
        """Whether a device may go on by itself: nobody else wants a part in what it does."""
        return self._alone and not self._processors and not self._source.evaluator.batching.others

    def ask(
        self, work: Callable[..., Tensor], *inputs: Tensor, **constants: Any
    ) -> Generator[HostFuture, Tensor, Tensor]:
        """What some work on scores and the like comes to, on the host: one question to a GPU."""
        return fetch(self._source.evaluator.graph_calls(work, *inputs, **constants))

    def best(self, nodes: Sequence[Node], count: int) -> Generator[HostFuture, Tensor, Best | None]:
        """The most probable tokens after each node, at least so many, where one question to a GPU
        tells them to all runs: no processor changes them, and all nodes were evaluated together.
        Else None, and one looks at the scores."""
        readings = {node.place.reading for node in nodes}
        if not self.writer.deferred or self._processors or count > TOP or len(readings) > 1:
            return None
        reading = readings.pop()
        yield from fetch(reading.asked)
        best = reading.best.rows([node.place.row for node in nodes])
        self.know(nodes, KnownStatistics(best))
        return best

    def know(self, nodes: Sequence[Node], told: KnownStatistics) -> None:
        """Say what the host was told of some nodes, where nobody looked at their scores."""
        self._seen = _Seen(nodes, Scores([node.place for node in nodes], None, [], told))

    def _green_notes(
        self, texts: Sequence[Sequence[int]], given: Tensor, stages: Sequence[Stage]
    ) -> Notes | None:
        """Notes which tokens are green, where a green-list watermark is among the processors;
        ``stages`` are theirs and ``given`` the scores before the first."""
        if self._watermark is None:
            return None
        place = self._processors.index(self._watermark)
        before = stages[place - 1].scores if place else given
        return partial(green_notes, self._watermark, texts, before)

    def draw(self, probs: Tensor, count: int = 1) -> Tensor:
        """Draw from probabilities made of the last scores, (…, vocab): (…, count) on the host."""
        return self._possible(multinomial(probs, count, self.generator))

    def sampled(self, nodes: Sequence[Node]) -> Generator[HostFuture, Tensor, list[int]]:
        """A token after each node, drawn from what the processors make of the model's logits."""
        places, calls = [node.place for node in nodes], self._model_calls()
        texts, beams = [node.text for node in nodes], self.config.num_beams
        calls_of, given = self._source.evaluator.graph_calls, self.logits(nodes)
        asked = sample(self._processors, texts, given, beams, self.generator, calls_of)
        self.recorder.charge(self._model_calls() - calls, 0)
        tokens = yield from fetch(asked)
        notes = self._green_notes(texts, given, asked.stages)
        self._seen = _Seen(nodes, Scores(places, given, asked.stages, notes=notes))
        return list(self._possible(tokens).flatten().tolist())

    def _possible(self, tokens: Tensor) -> Tensor:
        if int(tokens.min()) < 0:
            stages = self._seen.scores.stages if self._seen else []
            names = ", ".join(stage.name for stage in stages) or "the model"
            raise PlaygroundError(f"nothing can be drawn from what {names} leave")
        return tokens

    def reshape(self, node: Node, name: str, scores: Tensor) -> None:
        """Say what the strategy itself made of the last scores at a node, (vocab,): the next
        record at this node tells of it as one more stage."""
        assert self._seen is not None, "scores come before reshape"
        nodes, before = self._seen
        assert before.given is not None, "what the host was told is no scores"
        row = [other is node for other in nodes].index(True)
        own = slice(row, row + 1)
        stages = [Stage(stage.name, stage.scores[own]) for stage in before.stages]
        stages.append(Stage(name, scores[None]))
        notes = before.notes and partial(_of_row, row, before.notes)
        self._seen = _Seen([node], Scores([node.place], before.given[own], stages, notes=notes))

    def logits(self, nodes: Sequence[Node]) -> Tensor:
        """What the model said, before any processor: (nodes, vocab)."""
        return parts([node.place for node in nodes], "logits")[0]

    def features(self, nodes: Sequence[Node], layers: Sequence[int]) -> Tensor:
        """The model's hidden states at each node after some of its layers: (nodes, layers, width);
        -1 is the last one."""
        [hidden] = parts([node.place for node in nodes], "hidden")
        return after_layers(hidden, layers)

    def states(self, node: Node) -> Tensor:
        """The last hidden state at every token of the text down to a node: (length, width)."""
        return node.evaluator.states(node.cell)

    @property
    def layers(self) -> int:
        """How many layers the model has."""
        return int(self.root.place.reading.hidden.shape[1]) - 1

    @property
    def tied(self) -> bool:
        """Whether the model's output matrix is its embedding."""
        return bool(self._source.model.module.config.tie_word_embeddings)

    def exits(self, node: Node, layers: Sequence[int]) -> Tensor:
        """What the output matrix makes of the states after some layers: (layers, vocab)."""
        head: Any = self._source.model.module.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers has no types here
        states = self.features([node], layers)[0]
        with torch.inference_mode():
            logits: Tensor = head(states)
        return logits.float()

    def stops(self, nodes: Sequence[Node], tokens: Sequence[int]) -> list[Stop | None]:
        """For each node and the token after it, the rule that ends the text there, if any."""
        if len({len(node.text) for node in nodes}) != 1:  # criteria take texts of one length
            pairs = zip(nodes, tokens, strict=True)
            return [stop for node, token in pairs for stop in self.stops([node], [token])]
        return self._rules.after([node.text for node in nodes], tokens)

    def record(self, picks: Sequence[Pick]) -> list[int]:
        """Tell the trace what was picked from the last scores; gives each pick's step."""
        if not picks:
            return []
        assert self._seen is not None, "scores come before record"
        nodes, scores = self._seen
        rows = {id(node): row for row, node in reversed(list(enumerate(nodes)))}
        enter = self.recorder.enter
        entries = [
            enter(self._step(node), token, event, notes, node.tree)
            for node, token, event, notes, _ in picks
        ]
        places = [None if pick.brief else (rows[id(pick.node)], pick.token) for pick in picks]
        self.writer.add(scores, places, entries)
        return [entry.id for entry in entries]

    def _step(self, node: Node) -> int | None:
        step = node.step
        for token in node.untold:
            step = self.recorder.step_at(step, token, node.tree)
            assert step is not None, "a text is told of from its beginning on"
        return step

    def choose(self, node: Node, token: int, event: str = "chosen", **notes: Any) -> int:
        """Tell the trace of one token; gives its step."""
        return self.record([Pick(node, token, event, notes)])[0]

    @property
    def code_capture(self) -> CodeCapture:
        """Runs custom decoding code in place of a strategy and captures what it does."""
        model = self._source.model
        return CodeCapture(model, self._again, self.recorder, self._token_decoder, self._watermark)

    def ended(self, texts: Sequence[Sequence[int]]) -> list[Stop | None]:
        """For each list of new tokens, the rule that ends the text there, if any."""
        whole = [(*self.root.text, *text) for text in texts]
        return [stop for text in whole for stop in self._rules.check([text])]

    def show(self, tips: Iterable[int]) -> None:
        """Say which texts to show now, by their last steps, the leading one first."""
        self.recorder.show(tips)

    def finish(self, ends: Iterable[tuple[int, float | None, Stop]], stop: Stop) -> None:
        """Return sequences, best first: last step, score, and the rule that ended each."""
        self.writer.flush()
        self.recorder.finish(ends, stop)

    def forget(self) -> None:
        """Let go of everything but the record."""
        self._seen = None
        self.writer.discard()
        for held in ("root", "draft"):
            self.__dict__.pop(held, None)
