"""The engine: gathers what every live strategy asks for, evaluates it in one pass, hands it back.

Knows runs and backends. Refuses to know what a strategy is after. Several callers, each on a
thread of its own, share passes: whoever comes first evaluates for all who wait.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary, ref

import torch

from engine.backend import Backend, Place
from engine.errors import PlaygroundError
from engine.prompt import Prompt
from engine.run import Node, Run
from engine.strategy import Decoding
from engine.trace import Stop, Update
from engine.trie import Cell

log = logging.getLogger(__name__)

PROMPTS = 4  # prompts kept evaluated: changing a setting does not read them again


@dataclass(eq=False)
class _Live:
    """A run under way: its strategy, and what that asks for next."""

    run: Run
    decoding: Decoding
    asks: list[tuple[Node, int]] = field(default_factory=list)
    told: bool = False  # its trace has been given out


@dataclass(eq=False)
class _Job:
    """What one caller waits for."""

    cells: Sequence[Cell]
    places: dict[Cell, Place] = field(default_factory=dict)
    error: Exception | None = None
    done: bool = False


class Engine:
    """Runs strategies over one backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._lock = threading.Lock()
        self._waiting: list[_Job] = []
        self._prompts: OrderedDict[tuple[int, ...], Prompt] = OrderedDict()
        # A cell asked for again while somebody still holds what the model said there.
        self._known: WeakKeyDictionary[Cell, ref[Place]] = WeakKeyDictionary()

    def prompt(self, ids: Sequence[int], read: Callable[[], Prompt]) -> Prompt:
        """The prompt of these tokens, as it was read the last time if it was not long ago."""
        key = tuple(ids)
        prompt = self._prompts.pop(key, None) or read()
        self._prompts[key] = prompt
        while len(self._prompts) > PROMPTS:
            self._prompts.popitem(last=False)
        return prompt

    def stream(
        self,
        prompt: Prompt,
        runs: Sequence[tuple[Run, Callable[[Run], Decoding]]],
        cancelled: Callable[[], bool],
    ) -> Iterator[Update]:
        """Run strategies together, tick by tick; closing the iterator frees all they hold."""
        lives = [_Live(run, decode(run)) for run, decode in runs]
        try:
            self._begin(prompt, lives)
            yield from _news(lives)
            while any(live.asks for live in lives):
                if cancelled():
                    for live in lives:
                        _break_off(live, Stop("cancelled"))
                else:
                    self._tick(lives)
                yield from _news(lives)
        finally:
            for live in lives:
                live.decoding.close()
                live.run.forget()

    def _begin(self, prompt: Prompt, lives: Sequence[_Live]) -> None:
        """Evaluate the prompt, unless it is, and start every strategy from its end."""
        if prompt.root is None:
            cell = self.backend.top(prompt.context).descend(prompt.start)
            prompt.root = (cell, self._evaluate([cell])[cell])
            cost = (1, len(prompt.start))
        else:
            cost = (0, 0)
        cell, place = prompt.root
        ids = torch.tensor(prompt.start, device=place.reading.logits.device)
        for live in lives:
            live.run.root = Node(cell, place, ids, None)
            live.run.recorder.charge(*cost)
            _resume(live, None)

    def _tick(self, lives: Sequence[_Live]) -> None:
        """One pass for everything every live strategy asked."""
        asking = [live for live in lives if live.asks]
        cells = {live: [node.cell.child(token) for node, token in live.asks] for live in asking}
        try:
            places = self._evaluate([cell for own in cells.values() for cell in own])
        except (PlaygroundError, torch.OutOfMemoryError, MemoryError) as error:
            for live in asking:
                _break_off(live, Stop("error"), str(error) or "out of memory")
            return
        for live in asking:
            nodes = [
                _child(live.run, node, cell, places[cell])
                for (node, _), cell in zip(live.asks, cells[live], strict=True)
            ]
            live.run.recorder.charge(1, len(nodes))
            _resume(live, nodes)

    def _evaluate(self, cells: Sequence[Cell]) -> dict[Cell, Place]:
        """What the model says after each cell; waits are joined with those of other callers."""
        job = _Job(cells)
        self._waiting.append(job)
        with self._lock:
            if not job.done:
                jobs, self._waiting = self._waiting, []
                self._serve(jobs)
        error, job.error = job.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame: a cycle would keep the cells alive
        return job.places

    def _serve(self, jobs: Sequence[_Job]) -> None:
        """Evaluate for several callers at once; one that asks too much fails alone."""
        try:
            places = self._look_up([cell for job in jobs for cell in job.cells])
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._serve([job])
            else:
                jobs[0].error, jobs[0].done = error, True
            return
        for job in jobs:
            job.places = {cell: places[cell] for cell in job.cells}
            job.done = True

    def _look_up(self, cells: Sequence[Cell]) -> dict[Cell, Place]:
        """What somebody still holds, and from the backend what nobody does."""
        held = {cell: self._known.get(cell) for cell in cells}
        places = {cell: place for cell, known in held.items() if known and (place := known())}
        missing = [cell for cell in held if cell not in places]
        if missing:
            new = self._evaluate_new(missing)
            self._known.update({cell: ref(place) for cell, place in new.items()})
            places |= new
        return places

    def _evaluate_new(self, cells: Sequence[Cell]) -> dict[Cell, Place]:
        try:
            return self.backend.evaluate(cells)
        except PlaygroundError:
            self._prompts.clear()  # their room may be what is missing
            return self.backend.evaluate(cells)


def _child(run: Run, parent: Node, cell: Cell, place: Place) -> Node:
    ids = torch.cat([parent.ids, parent.ids.new_tensor([cell.token])])
    return Node(cell, place, ids, run.recorder.step_at(parent.step, cell.token))


def _resume(live: _Live, nodes: list[Node] | None) -> None:
    """Let a strategy decide and ask again. What goes wrong in it ends this run alone."""
    try:
        live.asks = list(next(live.decoding) if nodes is None else live.decoding.send(nodes))
        assert live.asks, "a strategy that goes on asks for something"
    except StopIteration:
        live.asks = []
        assert live.run.recorder.trace is not None, "a strategy that ends has finished its run"
    except PlaygroundError as error:
        _break_off(live, Stop("error"), str(error))
    except Exception as error:
        # As text: a kept traceback would keep the nodes in its frames, and their branches.
        log.error("a strategy failed\n%s", traceback.format_exc())
        _break_off(live, Stop("error"), f"{type(error).__name__}: {error}")
    live.run.recorder.settle()


def _break_off(live: _Live, stop: Stop, error: str | None = None) -> None:
    if live.run.recorder.trace is None:
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
