"""One run as its strategy sees it: the verbs that decoding strategies are written with.

A strategy is a generator. It yields continuations, ``[(node, token), …]``, and gets the evaluated
nodes back; methods that return a `Subroutine` are called with ``yield from``:

    [[token]], _, _ = yield from run.best([node], 1)     # or run.sample, run.scores
    step = run.choose(node, token)                       # or run.record, for several candidates
    [stop] = run.stops([node], [token])
    [node] = yield [(node, token)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from transformers import WatermarkLogitsProcessor

from engine.accel.host_future import HostFuture, fetch
from engine.accel.medusa_pipeline import MedusaPipeline
from engine.drafting.draft_model import DraftModel
from engine.drafting.draft_tree import TreeDrafter
from engine.drafting.tree_size import TreeSize
from engine.errors import PlaygroundError
from engine.interop.capture import CodeCapture
from engine.prepare import Prepared
from engine.processors import process, sample
from engine.sampling import multinomial
from engine.similarity import TextStates
from engine.stopping import StopRules
from engine.trace import Stop
from engine.trace.deferred_writer import DeferredWriter, Notes, Scores
from engine.trace.distributions import Stage
from engine.trace.recorder import Recorder
from engine.trace.statistics import KnownStatistics, Picks
from engine.trace.token_text import TokenDecoder
from engine.trie.backend import TOP, Best, after_layers, most, parts
from engine.trie.evaluator import Evaluator
from engine.trie.node import Continuation, Node, Pick, Source
from engine.watermark.green_list import green_notes

__all__ = ["BestContinuations", "BestTokens", "Continuation", "Node", "Pick", "Run", "Subroutine"]

T = TypeVar("T")

# A part of a decoding generator, called with ``yield from``: it yields continuations to evaluate or
# copies from the device to wait for.
Subroutine = Generator[Sequence[Continuation] | HostFuture, Any, T]


class BestTokens(NamedTuple):
    """The most probable tokens after each of some nodes, most probable first."""

    tokens: list[list[int]]  # (nodes, count)
    probs: Tensor  # (nodes, count) on the host
    also: list[float]  # the probabilities of further tokens


class BestContinuations(NamedTuple):
    """The best continuations of several texts, best first."""

    rows: list[int]  # which text each one continues
    tokens: list[int]
    log_probs: list[float]  # of the tokens
    also: list[float]  # the log-probabilities of further tokens


class _LastScores(NamedTuple):
    """What the next record refers to: some nodes and the scores after them."""

    nodes: Sequence[Node]
    scores: Scores
    drawn: Sequence[int] = ()  # the token drawn from each row, where all were drawn at once


class Run:
    """One decoding run."""

    root: Node  # the end of the prompt; set once that is evaluated
    draft: DraftModel  # the run's draft model, if it has one; set likewise
    heads: TreeDrafter  # the model's draft heads; set for strategies that draft with them

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
        self._repeat_call = prepared.repeat_call
        self._processors = prepared.processors
        marks = (one for one in prepared.processors if isinstance(one, WatermarkLogitsProcessor))
        self._watermark = next(marks, None)
        device = source.model.device
        self._rules = StopRules(prepared.criteria, len(source.prompt.start), token_decoder, device)
        self.writer = DeferredWriter(recorder, token_decoder, source.evaluator.statistics, device)
        self._token_decoder = token_decoder
        self._seed = seed
        self._model_calls = model_calls
        self._last: _LastScores | None = None
        self._states: TextStates | None = None
        self._pipeline: MedusaPipeline | None = None
        self._only_run = False

    # Scores and tokens

    def best(
        self, nodes: Sequence[Node], count: int, *, also: Sequence[tuple[int, int]] = ()
    ) -> Subroutine[BestTokens]:
        """The ``count`` most probable tokens after each node, and the probabilities of ``also``,
        further pairs of a node's index and a token. Probabilities are those after the
        processors."""
        ahead = count == 1 and self._can_verify_ahead()
        if ahead and (verified := (yield from self._verify_ahead(nodes))):
            return verified
        if not also and (best := (yield from self._best_of_pass(nodes, count))):
            log_probs = torch.tensor([row[:count] for row in best.log_probs])
            return BestTokens([row[:count] for row in best.tokens], log_probs.exp(), [])
        scores = self.scores(nodes)
        count = min(count, scores.shape[-1])
        packed = yield from self._compute(_best_tokens, scores, _pairs(also), count=count)
        size = len(nodes) * count
        tokens, probs, further = packed.tensor_split([size, 2 * size])
        if probs.isnan().any():  # also where no token is left
            self._require_numbers(scores)
        rows = tokens.long().view(-1, count).tolist()
        return BestTokens(rows, probs.to(scores.dtype).view(-1, count), further.tolist())

    def best_continuations(
        self,
        nodes: Sequence[Node],
        totals: Tensor,
        count: int,
        *,
        also: Sequence[tuple[int, int]] = (),
        stage: tuple[str, Tensor] | None = None,
    ) -> Subroutine[BestContinuations]:
        """The ``count`` continuations of all nodes together with the highest log p(text) + log
        p(token | text), where ``totals``, (nodes,), are the log p(text); and the log-probabilities
        of ``also``, as in `best`. Log-probabilities are those after the processors, which do not
        normalize them again. For ``stage`` see `scores`."""
        if not (stage or also) and (best := (yield from self._best_of_pass(nodes, count))):
            added = torch.tensor([row[:count] for row in best.log_probs])  # (nodes, count)
            # Only the best tokens of each node can be among the best of all.
            order = (totals[:, None] + added).flatten().topk(count).indices
            ranks = [divmod(index, count) for index in order.tolist()]
            tokens = [best.tokens[row][rank] for row, rank in ranks]
            rows = [row for row, _ in ranks]
            return BestContinuations(rows, tokens, added.flatten()[order].tolist(), [])
        scores = self.scores(nodes, log_probs=True, stage=stage)
        count = min(count, scores.numel())
        inputs = scores, totals, _pairs(also)
        packed = yield from self._compute(_best_continuations, *inputs, count=count)
        order, values, further = packed.tensor_split([count, 2 * count])
        self._require_numbers(values)
        pairs = [divmod(index, scores.shape[-1]) for index in order.long().tolist()]
        rows, tokens = [row for row, _ in pairs], [token for _, token in pairs]
        return BestContinuations(rows, tokens, values.tolist(), further.tolist())

    def sample(self, nodes: Sequence[Node]) -> Subroutine[list[int]]:
        """A token after each node, drawn from the distribution that the processors leave."""
        output_rows, calls = [node.output_row for node in nodes], self._model_calls()
        texts, logits = [node.text for node in nodes], self.logits(nodes)
        graph_calls, beams = self._source.evaluator.graph_calls, self.config.num_beams
        sampled = sample(self._processors, texts, logits, beams, self.generator, graph_calls)
        self.recorder.charge(self._model_calls() - calls, 0)
        tokens = yield from fetch(sampled)
        notes = self._green_notes(texts, logits, sampled.stages)
        scores = Scores(output_rows, logits, sampled.stages, notes=notes, noise=sampled.noise)
        self._last = _LastScores(nodes, scores)
        drawn = list(self._checked(tokens).flatten().tolist())
        self._last = self._last._replace(drawn=drawn)
        return drawn

    def draw(self, probs: Tensor, count: int = 1, *, at: Sequence[Node] = ()) -> Tensor:
        """Draw different tokens from given probabilities, (…, vocab): (…, count) on the host.

        ``at`` are the nodes, among those of the last scores, whose next tokens are drawn, row by
        row: the next records there show the random numbers.
        """
        tokens, noise = multinomial(probs, count, self.generator)
        if at:
            self._add_noise(at, noise.view(len(at), -1))
        return self._checked(tokens)

    def scores(
        self,
        nodes: Sequence[Node],
        *,
        log_probs: bool = False,
        stage: tuple[str, Tensor] | None = None,
    ) -> Tensor:
        """The scores of all tokens after each node: (nodes, vocab).

        These are the model's logits or log-probabilities after the processors. ``stage`` replaces
        the processors' input: the name of the strategy's own change, and the scores it leaves.
        """
        output_rows = [node.output_row for node in nodes]
        [given] = parts(output_rows, "log_probs" if log_probs else "logits")
        stages, calls = [Stage(*stage)] if stage else [], self._model_calls()
        texts, changed = [node.text for node in nodes], stages[-1].scores if stages else given
        beams, graph_calls = self.config.num_beams, self._source.evaluator.graph_calls
        stages += process(self._processors, texts, changed, beams, graph_calls)
        self.recorder.charge(self._model_calls() - calls, 0)  # guidance runs the model itself
        of_processors = stages[len(stages) - len(self._processors) :]
        notes = self._green_notes(texts, changed, of_processors)
        self._last = _LastScores(nodes, Scores(output_rows, given, stages, notes=notes))
        return stages[-1].scores if stages else given

    def logits(self, nodes: Sequence[Node]) -> Tensor:
        """The model's logits before any processor: (nodes, vocab)."""
        return parts([node.output_row for node in nodes], "logits")[0]

    def add_stage(self, node: Node, name: str, scores: Tensor) -> None:
        """Name what the strategy made of the last scores at a node, (vocab,): the next record at
        this node shows it as one more stage."""
        assert self._last is not None, "scores come before add_stage"
        nodes, before, _ = self._last
        assert before.given is not None, "there are scores to change"
        index = [other is node for other in nodes].index(True)
        row = slice(index, index + 1)
        stages = [Stage(stage.name, stage.scores[row]) for stage in before.stages]
        stages.append(Stage(name, scores[None]))
        notes = before.notes and partial(_notes_of_row, index, before.notes)
        noise = None if before.noise is None else before.noise[row]
        scores_there = Scores(
            [node.output_row], before.given[row], stages, notes=notes, noise=noise
        )
        self._last = _LastScores([node], scores_there)

    @cached_property
    def generator(self) -> torch.Generator:
        """The run's own random numbers: on a CPU, those of `generate` after `set_seed`."""
        if isinstance(self._seed, torch.Generator):
            return self._seed
        return torch.Generator(self.root.ids.device).manual_seed(self._seed)

    # Hidden states

    def similarity(self, children: Sequence[Node], node: Node) -> Subroutine[Tensor]:
        """The cosine similarity of the last hidden state at each child to that at every token down
        to ``node``, their parent: (children, length) on the host."""
        self._states = self._states.moved_to(node) if self._states else TextStates(node)
        padded = yield from fetch(self._states.similarity(children))
        return padded[:, : self._states.length]

    def early_logits(self, node: Node, layers: Sequence[int]) -> Tensor:
        """What the output matrix makes of the hidden states after some layers: (layers, vocab)."""
        head: Any = self._source.model.module.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers has no types here
        [hidden] = parts([node.output_row], "hidden")  # (1, 1 + layers, width)
        with torch.inference_mode():
            logits: Tensor = head(after_layers(hidden, layers)[0])
        return logits.float()

    @property
    def layers(self) -> int:
        """The number of the model's layers."""
        return int(self.root.output_row.output.hidden.shape[1]) - 1

    @property
    def tied(self) -> bool:
        """Whether the model's output matrix is its embedding."""
        return bool(self._source.model.module.config.tie_word_embeddings)

    # Drafts

    def draft_trees(self, size: TreeSize) -> MedusaPipeline:
        """What drafts trees of at most this size with the model's draft heads."""
        self._pipeline = MedusaPipeline(self.heads, size, self.end_tokens)
        return self._pipeline

    # The end of a text

    def stops(self, nodes: Sequence[Node], tokens: Sequence[int]) -> list[Stop | None]:
        """The rule that ends the text after each node and token, if one does."""
        if len({len(node.text) for node in nodes}) != 1:  # criteria take texts of one length
            pairs = zip(nodes, tokens, strict=True)
            return [stop for node, token in pairs for stop in self.stops([node], [token])]
        return self._rules.after([node.text for node in nodes], tokens)

    def stops_of_texts(self, texts: Sequence[Sequence[int]]) -> list[Stop | None]:
        """The rule that ends each list of new tokens, if one does."""
        whole = [(*self.root.text, *text) for text in texts]
        return [stop for text in whole for stop in self._rules.check([text])]

    @property
    def max_new_tokens(self) -> int:
        """The length limit of a text, without the prompt."""
        return int(self.config.max_length - len(self.root.ids))

    @property
    def end_tokens(self) -> set[int]:
        """The tokens that end a text."""
        ends = self.config._eos_token_tensor
        return set() if ends is None else set(ends.tolist())

    @property
    def pad(self) -> int:
        """The token that fills up a row that has ended."""
        pad = self.config._pad_token_tensor
        return 0 if pad is None else int(pad)

    # The record

    def record(self, picks: Sequence[Pick]) -> list[int]:
        """Record candidates that were picked or not from the last scores; returns their steps."""
        if not picks:
            return []
        assert self._last is not None, "scores come before record"
        nodes, scores, drawn = self._last
        rows = {id(node): row for row, node in reversed(list(enumerate(nodes)))}
        # Several tokens may be drawn at one node: each from a row of its own.
        of_draw = {(id(nodes[row]), token): row for row, token in enumerate(drawn)}
        entries = [
            self.recorder.add_step(self._step(node), token, event, notes, node.tree)
            for node, token, event, notes, _ in picks
        ]
        pairs = [
            None
            if pick.brief
            else (of_draw.get((id(pick.node), pick.token), rows[id(pick.node)]), pick.token)
            for pick in picks
        ]
        self.writer.add(scores, pairs, entries)
        return [entry.id for entry in entries]

    def choose(self, node: Node, token: int, event: str = "chosen", **notes: Any) -> int:
        """Record one chosen token; returns its step."""
        return self.record([Pick(node, token, event, notes)])[0]

    def show(self, tips: Iterable[int]) -> None:
        """Set the texts to display now, by their last steps, the leading one first."""
        self.recorder.show(tips)

    def finish(self, ends: Iterable[tuple[int, float | None, Stop]], stop: Stop) -> None:
        """Return texts, best first: the last step, the score and the stopping rule of each."""
        self.writer.flush()
        self.recorder.finish(ends, stop)

    @property
    def code_capture(self) -> CodeCapture:
        """Runs custom decoding code in place of a strategy and captures what it does."""
        model = self._source.model
        return CodeCapture(
            model, self._repeat_call, self.recorder, self._token_decoder, self._watermark
        )

    # For the loop

    def start(self, *, only_run: bool = False) -> None:
        """Evaluate the prompt, also with the draft model; ``only_run``: no other runs beside it."""
        self._only_run = only_run
        if tokens := self._source.evaluate_prompt():
            self.recorder.charge_prompt(tokens)
        if self._drafts and (tokens := self._drafts.evaluate_prompt()):
            self.charge(self._drafts.evaluator, tokens)
        self.root = self._source.root
        if self._drafts:
            self.draft = DraftModel(self._drafts, self._source)

    @property
    def evaluators(self) -> list[Evaluator]:
        """Those of the model and of the draft model, if there is one."""
        return [source.evaluator for source in (self._source, self._drafts) if source]

    def charge(self, evaluator: Evaluator, nodes: int) -> None:
        """Add one forward pass to the cost of the current tick."""
        drafting = evaluator is not self._source.evaluator
        self.recorder.charge(int(not drafting), nodes, int(drafting))

    @property
    def evaluator(self) -> Evaluator:
        """That of the model."""
        return self._source.evaluator

    def exclude_time(self, seconds: float) -> None:
        """Leave out time in which the run was paused."""
        self.recorder.exclude_time(seconds)
        self._rules.exclude_time(seconds)

    def release(self) -> None:
        """Let go of everything but the record."""
        self._last = self._states = self._pipeline = None
        self.writer.discard()
        for held in ("root", "draft"):
            self.__dict__.pop(held, None)

    def _best_of_pass(self, nodes: Sequence[Node], count: int) -> Subroutine[Best | None]:
        """The best tokens as the forward pass has found them, with one copy from the GPU for all
        runs; None where processors change the scores or the nodes are of several passes."""
        outputs = {node.output_row.output for node in nodes}
        if not self.writer.deferred or self._processors or count > TOP or len(outputs) > 1:
            return None
        output = outputs.pop()
        yield from fetch(output.host_summary)
        best = output.best.rows([node.output_row.row for node in nodes])
        self._last = _LastScores(nodes, _known_scores(nodes, KnownStatistics(best)))
        return best

    def _green_notes(
        self, texts: Sequence[Sequence[int]], given: Tensor, stages: Sequence[Stage]
    ) -> Notes | None:
        """Notes which tokens are green, where a green-list watermark is among the processors;
        ``stages`` are theirs and ``given`` the scores before the first."""
        if self._watermark is None:
            return None
        index = self._processors.index(self._watermark)
        before = stages[index - 1].scores if index else given
        return partial(green_notes, self._watermark, texts, before)

    def _add_noise(self, nodes: Sequence[Node], noise: Tensor) -> None:
        """Add the random numbers drawn at some nodes, (nodes, vocab), to the last scores."""
        assert self._last is not None, "scores come before draw"
        before = self._last
        if list(map(id, nodes)) != list(map(id, before.nodes)):
            every = noise.new_full((len(before.nodes), noise.shape[-1]), math.nan)
            rows = {id(node): row for row, node in enumerate(before.nodes)}
            every[[rows[id(node)] for node in nodes]] = noise
            noise = every
        self._last = before._replace(scores=before.scores._replace(noise=noise))

    def _compute(
        self, work: Callable[..., Tensor], *inputs: Tensor, **constants: Any
    ) -> Subroutine[Tensor]:
        return fetch(self._source.evaluator.graph_calls(work, *inputs, **constants))

    def _can_verify_ahead(self) -> bool:
        """Whether the GPU may start the next round by itself: no other run shares the pass."""
        others = self._source.evaluator.batching.others
        return bool(self._pipeline and self._only_run and not self._processors and not others)

    def _verify_ahead(self, nodes: Sequence[Node]) -> Subroutine[BestTokens | None]:
        """The best token after each node of a drafted tree and the probability of each drafted
        token, while the GPU computes the next tree; None where it cannot."""
        assert self._pipeline is not None, "_can_verify_ahead has checked this"
        verified = yield from self._pipeline.verify(nodes)
        if verified is None:
            return None
        further = zip(verified.log_probs, verified.higher, strict=True)
        known = KnownStatistics(verified.best, dict(zip(verified.pairs, further, strict=True)))
        self._last = _LastScores(nodes, _known_scores(nodes, known))
        tokens = [[token] for token in verified.own]
        of_own = torch.tensor([row[:1] for row in verified.best.log_probs]).exp()
        return BestTokens(tokens, of_own, [*map(math.exp, verified.log_probs)])

    def _checked(self, tokens: Tensor) -> Tensor:
        """Drawn tokens, or an error where no token was possible."""
        if int(tokens.min()) < 0:
            raise PlaygroundError(f"no token is left to draw from after {self._stage_names}")
        return tokens

    def _require_numbers(self, scores: Tensor) -> None:
        if scores.isnan().any():
            raise PlaygroundError(f"the scores after {self._stage_names} are not numbers")

    @property
    def _stage_names(self) -> str:
        stages = self._last.scores.stages if self._last else []
        return ", ".join(stage.name for stage in stages) or "the model"

    def _step(self, node: Node) -> int | None:
        step = node.step
        for token in node.unrecorded:
            step = self.recorder.step_at(step, token, node.tree)
            assert step is not None, "a text is recorded from its first token on"
        return step


def _notes_of_row(row: int, notes: Notes, picks: Picks) -> Sequence[Mapping[str, Any]]:
    """The notes on picks from one row of several."""
    return notes([(row, token) for _, token in picks])


def _best_tokens(scores: Tensor, pairs: Tensor, count: int) -> Tensor:
    """The best tokens of each row, their probabilities, and those at pairs of row and token, (2,
    pairs), in one tensor: float64 holds token ids and float32 numbers exactly."""
    probs = scores.softmax(-1)
    tokens = scores.argmax(-1, keepdim=True) if count == 1 else _top(probs, count)
    row, token = pairs.to(scores.device)
    parts = tokens, probs.gather(-1, tokens), probs[row, token]
    return torch.cat([part.flatten().double() for part in parts])


def _best_continuations(scores: Tensor, totals: Tensor, pairs: Tensor, count: int) -> Tensor:
    """The indices in the flattened scores with the highest totals, the scores there, and those at
    pairs of row and token, (2, pairs), in one tensor."""
    sums = scores + totals[:, None].to(scores.device)  # (rows, vocab)
    best = _top(sums.flatten()[None], count)[0]
    row, token = pairs.to(scores.device)
    parts = best, scores.flatten()[best], scores[row, token]
    return torch.cat([part.double() for part in parts])


def _top(scores: Tensor, count: int) -> Tensor:
    """The highest scores of each row by their columns, (rows, count), highest first."""
    # Of equal scores a CPU takes those that `generate` takes there.
    return most(scores, count) if scores.device.type == "cuda" else scores.topk(count).indices


def _pairs(pairs: Sequence[tuple[int, int]]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.long).view(-1, 2).T  # (2, pairs)


def _known_scores(nodes: Sequence[Node], known: KnownStatistics) -> Scores:
    return Scores([node.output_row for node in nodes], None, [], known)
