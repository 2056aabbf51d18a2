"""The loop: gathers the continuations that all live strategies yield, evaluates them in one forward
pass of each model, and sends the nodes back."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections import Counter, defaultdict
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
from engine.trie.backend import OutputRow
from engine.trie.cell import Cell
from engine.trie.evaluator import Evaluator
from engine.trie.node import Continuation, Node

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _LiveRun:
    """A run in progress, and what its strategy waits for."""

    run: Run
    decoding: Decoding
    continuations: list[Continuation] = field(default_factory=list)
    future: HostFuture | None = None  # waited for first
    idle: bool = False  # the last continuations needed no evaluation
    reported: bool = False  # its trace has been handed out


class _Evaluated(NamedTuple):
    """The cells that each run continues to, and the models' outputs there."""

    cells: dict[_LiveRun, list[Cell]]
    output_rows: dict[Evaluator, dict[Cell, OutputRow]]


def stream(
    runs: Sequence[tuple[Run, Callable[[Run], Decoding]]],
    cancelled: Callable[[], bool],
    seconds: float = math.inf,
) -> Iterator[Update]:
    """Run strategies together, tick by tick; closing the iterator frees all they hold.

    Runs that take longer than ``seconds``, pauses excluded, end with the text so far.
    """
    lives: list[_LiveRun] = []
    deadline = time.perf_counter() + seconds
    try:
        for run, _ in runs:
            run.start(only_run=len(runs) == 1)
        lives = [_LiveRun(run, decode(run)) for run, decode in runs]
        _resume(dict.fromkeys(lives))
        while True:
            # A GPU starts on the next tick before this one is written to the traces.
            ahead, ready = None, None
            if any(run.writer.deferred for run, _ in runs):
                if any(run.writer.needs_statistics for run, _ in runs):
                    ready = runs[0][0].writer.ready()
                ahead = _evaluate(lives)
            _measure(lives, ready)
            _write(lives, ready)
            yield from _updates(lives)
            if not any(live.continuations for live in lives):
                break
            before = time.perf_counter()
            stopped = cancelled()  # waits while a user has paused
            paused = time.perf_counter() - before
            deadline += paused
            for live in lives:
                live.run.exclude_time(paused)
            if stopped or before + paused > deadline:
                rule = Stop("cancelled") if stopped else Stop("time", f"at most {seconds:g} s")
                for live in lives:
                    _interrupt(live, rule)
            else:
                _send(ahead or _evaluate(lives))
                ahead = None  # frees the branches that no strategy holds before the next pass
    finally:
        for live in lives:
            live.decoding.close()
        for run, _ in runs:
            run.release()
        for evaluator in {evaluator for run, _ in runs for evaluator in run.evaluators}:
            evaluator.release_memory()


def _evaluate(lives: Sequence[_LiveRun]) -> _Evaluated:
    """One forward pass of each model for the continuations of all runs. Without enough memory for
    all of them, the run with the most continuations ends, and the others go on."""
    while waiting := [live for live in lives if live.continuations]:
        try:
            return _evaluate_all(waiting)
        except (PlaygroundError, torch.OutOfMemoryError, MemoryError) as error:
            reason = str(error) or "out of memory"
        _interrupt(max(waiting, key=lambda live: len(live.continuations)), Stop("error"), reason)
    return _Evaluated({}, {})


def _evaluate_all(waiting: Sequence[_LiveRun]) -> _Evaluated:
    cells = {
        live: [node.cell.descend(tokens) for node, *tokens in live.continuations]
        for live in waiting
    }
    of_models: dict[Evaluator, list[Cell]] = defaultdict(list)
    for live in waiting:
        for (node, *_), cell in zip(live.continuations, cells[live], strict=True):
            of_models[node.evaluator].append(cell)
    return _Evaluated(
        cells, {evaluator: evaluator.evaluate(own) for evaluator, own in of_models.items()}
    )


def _send(evaluated: _Evaluated) -> None:
    """Send every strategy its evaluated nodes."""
    answers: dict[_LiveRun, Any] = {}
    new: dict[_LiveRun, dict[Evaluator, list[Cell]]] = {}
    for live, cells in evaluated.cells.items():
        if not live.continuations:  # the run failed while its trace was written
            continue
        nodes = [
            node.descendant(
                tokens, cell, evaluated.output_rows[node.evaluator][cell], live.run.recorder.step_at
            )
            for (node, *tokens), cell in zip(live.continuations, cells, strict=True)
        ]
        new[live] = _new_cells(live.continuations, cells)
        for evaluator, own in new[live].items():
            live.run.charge(evaluator, len(own))
        answers[live], live.idle = nodes, not new[live]
    _divide(new)
    _resume(answers)


def _new_cells(
    continuations: Sequence[Continuation], cells: Sequence[Cell]
) -> dict[Evaluator, list[Cell]]:
    """The cells that each model evaluates for a run: those of common paths count once, and a
    continuation without tokens is free."""
    new: dict[Evaluator, list[Cell]] = {}
    seen: set[tuple[Node, Cell]] = set()
    for (node, *_), end in zip(continuations, cells, strict=True):
        cell: Cell | None = end
        while cell is not None and cell is not node.cell and (node, cell) not in seen:
            seen.add((node, cell))
            new.setdefault(node.evaluator, []).append(cell)
            cell = cell.parent
    return new


def _divide(new: Mapping[_LiveRun, Mapping[Evaluator, Sequence[Cell]]]) -> None:
    """Divide the cells of each model's pass among the runs: one that several runs need counts for
    each of them in equal parts."""
    needed: dict[Evaluator, dict[_LiveRun, set[Cell]]] = defaultdict(dict)
    for live, of_models in new.items():
        if own := of_models.get(live.run.evaluator):
            needed[live.run.evaluator][live] = set(own)
    for of_runs in needed.values():
        users = Counter(cell for cells in of_runs.values() for cell in cells)
        for live, cells in of_runs.items():
            live.run.recorder.add_part(sum(1 / users[cell] for cell in cells), len(users))


def _resume(answers: Mapping[_LiveRun, Any]) -> None:
    """Resume strategies until each has yielded continuations. All start their work on the device
    before the first one waits for it."""
    while answers:
        for live, answer in answers.items():
            _advance(live, answer)
        for future in [live.future for live in answers if live.future]:
            future.start()
        answers = {live: None for live in answers if live.future}


def _advance(live: _LiveRun, answer: Any) -> None:
    with _errors_end_run(live):
        if live.future:
            future, live.future = live.future, None
            answer = future.result()
        try:
            yielded = live.decoding.send(answer)
        except StopIteration:
            live.continuations = []
            assert live.run.recorder.trace is not None, "a strategy that ends has finished its run"
        else:
            if isinstance(yielded, HostFuture):
                live.future = yielded
                return
            live.continuations = list(yielded)
            assert live.continuations, "a strategy that goes on yields continuations"
    live.run.recorder.end_tick(waited=live.idle)


def _measure(lives: Sequence[_LiveRun], ready: Any) -> None:
    """Have the device compute the statistics of all steps that wait to be written."""
    with suppress(Exception):  # the run that it fails for fails when its own are written
        request_statistics([live.run.writer for live in lives], ready)


def _write(lives: Sequence[_LiveRun], ready: Any) -> None:
    """Write the steps that wait to the traces."""
    for live in lives:
        with _errors_end_run(live):
            live.run.writer.flush(ready)


@contextmanager
def _errors_end_run(live: _LiveRun) -> Iterator[None]:
    """Errors in this context end this run only."""
    try:
        yield
    except PlaygroundError as error:
        _interrupt(live, Stop("error"), str(error))
    except Exception as error:
        # As text: a kept traceback would keep the nodes in its frames, and their branches.
        log.error("a strategy failed\n%s", traceback.format_exc())
        _interrupt(live, Stop("error"), f"{type(error).__name__}: {error}")


def _interrupt(live: _LiveRun, stop: Stop, error: str | None = None) -> None:
    if live.run.recorder.trace is None:
        with suppress(Exception):  # steps that cannot be written are left out
            live.run.writer.flush()
        # Beams that are shown while they run may outnumber the sequences to return.
        most = live.run.config.num_return_sequences
        live.run.recorder.interrupt(stop, error, most=most)
    live.continuations = []
    live.decoding.close()
    live.run.release()


def _updates(lives: Sequence[_LiveRun]) -> Iterator[Update]:
    """What is new in each run; its trace comes once, at the end."""
    for index, live in enumerate(lives):
        steps, lead = live.run.recorder.take_changes()
        ended = not live.continuations and not live.reported
        if steps or ended:
            live.reported = not live.continuations
            yield Update(index, steps, lead, live.run.recorder.trace if ended else None)
