"""The loop: gathers what every live strategy asks for, evaluates it in one pass, hands it back.

Knows runs and readers. Refuses to know what a strategy is after and how a model is run.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from engine.accel.host_future import HostFuture
from engine.errors import PlaygroundError
from engine.run import Run
from engine.strategy import Decoding
from engine.trace import Stop, Update
from engine.trace.deferred_writer import request_statistics
from engine.trie.backend import Place
from engine.trie.cell import Cell
from engine.trie.evaluator import Evaluator
from engine.trie.node import Ask

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Live:
    """A run under way: its strategy, and what that asks for next."""

    run: Run
    decoding: Decoding
    asks: list[Ask] = field(default_factory=list)
    question: HostFuture | None = None  # what it waits for before that
    waited: bool = False  # it got nothing that it did not have
    told: bool = False  # its trace has been given out


class _Evaluated(NamedTuple):
    """The cells each run asked for, and what the models say there."""

    cells: dict[_Live, list[Cell]]
    places: dict[Evaluator, dict[Cell, Place]]


def stream(
    runs: Sequence[tuple[Run, Callable[[Run], Decoding]]], cancelled: Callable[[], bool]
) -> Iterator[Update]:
    """Run strategies together, tick by tick; closing the iterator frees all they hold."""
    lives: list[_Live] = []
    try:
        for run, _ in runs:
            run.begin(alone=len(runs) == 1)
        lives = [_Live(run, decode(run)) for run, decode in runs]
        _resume(dict.fromkeys(lives))
        while True:
            # Where a GPU computes by itself, it goes on with the next tick while this one is told.
            ahead, ready = None, None
            if any(run.writer.deferred for run, _ in runs):
                if any(run.writer.needs_statistics for run, _ in runs):
                    ready = runs[0][0].writer.ready()
                ahead = _evaluated(lives)
            _ask(lives, ready)
            _tell(lives, ready)
            yield from _news(lives)
            if not any(live.asks for live in lives):
                break
            if _cancelled(lives, cancelled):
                for live in lives:
                    _break_off(live, Stop("cancelled"))
            else:
                _answer(ahead or _evaluated(lives))
                ahead = None  # what nobody holds any more is freed before the next pass
    finally:
        for live in lives:
            live.decoding.close()
        for run, _ in runs:
            run.forget()
        for evaluator in {evaluator for run, _ in runs for evaluator in run.backends}:
            evaluator.settle()


def _cancelled(lives: Sequence[_Live], ask: Callable[[], bool]) -> bool:
    """Ask whether to stop; the answer may take a person's time, which is not the runs'."""
    since = time.perf_counter()
    answer = ask()
    for live in lives:
        live.run.wait(time.perf_counter() - since)
    return answer


def _evaluated(lives: Sequence[_Live]) -> _Evaluated:
    """One pass of each model for everything every live strategy asked of it."""
    asking = [live for live in lives if live.asks]
    cells = {live: [node.cell.descend(tokens) for node, *tokens in live.asks] for live in asking}
    wanted: dict[Evaluator, list[Cell]] = defaultdict(list)
    for live in asking:
        for (node, *_), cell in zip(live.asks, cells[live], strict=True):
            wanted[node.evaluator].append(cell)
    try:
        places = {evaluator: evaluator.evaluate(own) for evaluator, own in wanted.items()}
    except (PlaygroundError, torch.OutOfMemoryError, MemoryError) as error:
        for live in asking:
            _break_off(live, Stop("error"), str(error) or "out of memory")
        return _Evaluated({}, {})
    return _Evaluated(cells, places)


def _answer(evaluated: _Evaluated) -> None:
    """Hand everyone the nodes asked for, and let them decide."""
    answers: dict[_Live, Any] = {}
    for live, cells in evaluated.cells.items():
        if not live.asks:  # it ended while it was told of
            continue
        nodes = [
            node.below(
                tokens, cell, evaluated.places[node.evaluator][cell], live.run.recorder.step_at
            )
            for (node, *tokens), cell in zip(live.asks, cells, strict=True)
        ]
        chains = _chains(live.asks)
        for evaluator, read in chains.items():
            live.run.charge(evaluator, len(read))
        answers[live], live.waited = nodes, not chains
    _resume(answers)


def _chains(asks: Sequence[Ask]) -> dict[Evaluator, set[Ask]]:
    """What each model reads for a run: a chain token by token; to ask for a node one has costs
    nothing."""
    chains: dict[Evaluator, set[Ask]] = defaultdict(set)
    for node, *tokens in asks:
        for end in range(1, len(tokens) + 1):
            chains[node.evaluator].add((node, *tokens[:end]))
    return chains


def _resume(answers: Mapping[_Live, Any]) -> None:
    """Let strategies decide and ask again; none waits for a device before all have asked it."""
    while answers:
        for live, answer in answers.items():
            _go_on(live, answer)
        for question in [live.question for live in answers if live.question]:
            question.start()
        answers = {live: None for live in answers if live.question}


def _go_on(live: _Live, answer: Any) -> None:
    with _alone(live):
        if live.question:
            question, live.question = live.question, None
            answer = question.result()
        try:
            asked = live.decoding.send(answer)
        except StopIteration:
            live.asks = []
            assert live.run.recorder.trace is not None, "a strategy that ends has finished its run"
        else:
            if isinstance(asked, HostFuture):
                live.question = asked
                return
            live.asks = list(asked)
            assert live.asks, "a strategy that goes on asks for something"
    live.run.recorder.settle(waited=live.waited)


def _ask(lives: Sequence[_Live], ready: Any) -> None:
    """Ask the device for all that waits to be told."""
    with suppress(Exception):  # who it fails for is found when each tells alone
        request_statistics([live.run.writer for live in lives], ready)


def _tell(lives: Sequence[_Live], ready: Any) -> None:
    """Have everyone tell what waits to be told."""
    for live in lives:
        with _alone(live):
            live.run.writer.flush(ready)


@contextmanager
def _alone(live: _Live) -> Iterator[None]:
    """What goes wrong in here ends this run alone."""
    try:
        yield
    except PlaygroundError as error:
        _break_off(live, Stop("error"), str(error))
    except Exception as error:
        # As text: a kept traceback would keep the nodes in its frames, and their branches.
        log.error("a strategy failed\n%s", traceback.format_exc())
        _break_off(live, Stop("error"), f"{type(error).__name__}: {error}")


def _break_off(live: _Live, stop: Stop, error: str | None = None) -> None:
    if live.run.recorder.trace is None:
        with suppress(Exception):  # what cannot be told is left out: the run ends as it is
            live.run.writer.flush()
        live.run.recorder.break_off(stop, error)
    live.asks = []
    live.decoding.close()


def _news(lives: Sequence[_Live]) -> Iterator[Update]:
    """What changed in each run since it was last asked; the trace comes once, at the end."""
    for index, live in enumerate(lives):
        steps, lead = live.run.recorder.news()
        ended = not live.asks and not live.told
        if steps or ended:
            live.told = not live.asks
            yield Update(index, steps, lead, live.run.recorder.trace if ended else None)
