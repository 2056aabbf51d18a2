"""Evaluates cells on one backend for several callers, each on its own thread.

Callers share forward passes: the first to get the lock evaluates for all that wait. The last
prompts stay evaluated.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary, ref

from torch import Tensor

from engine.accel.graph_calls import GraphCalls
from engine.errors import PlaygroundError
from engine.prompt import Prompt
from engine.trace.gpu_statistics import BatchedStatistics
from engine.trie.backend import Backend, OutputRow
from engine.trie.batching import Job, PassBatching
from engine.trie.cell import Cell

PROMPTS = 4  # prompts kept evaluated: a comparison with other settings does not evaluate them again
PIECE = 96  # tokens of a prompt evaluated in one pass while other callers wait
_RECHECK = 0.02  # seconds after which waiters re-check whether their job is done


class Evaluator:
    """One model's outputs. Evaluators whose backends share a cache share a lock as well."""

    def __init__(self, backend: Backend, lock: threading.Lock | None = None) -> None:
        self.backend = backend
        self.lock = lock or threading.Lock()
        self.statistics = BatchedStatistics()
        self.graph_calls = GraphCalls()
        self.batching = PassBatching()
        self._prompts: OrderedDict[tuple[tuple[int, ...], ...], Prompt] = OrderedDict()
        # The outputs that are still referred to: requesting them again takes no pass.
        self._cached: WeakKeyDictionary[Cell, ref[OutputRow]] = WeakKeyDictionary()

    def prompt(
        self, ids: Sequence[int], prefix: Sequence[int], read: Callable[[], Prompt]
    ) -> Prompt:
        """The prompt of these tokens with this prefix: a recent one, or a new one from ``read``."""
        key = (tuple(ids), tuple(prefix))
        prompt = self._prompts.pop(key, None) or read()
        self._prompts[key] = prompt
        while len(self._prompts) > PROMPTS:
            self._prompts.popitem(last=False)
        return prompt

    def evaluate_prompt(self, prompt: Prompt) -> int:
        """Evaluate the prompt if it is not; returns how many tokens were evaluated."""
        if prompt.root is not None:
            return 0
        top = self.backend.top(prompt.context)
        held, ends = None, range(PIECE, len(prompt.start), PIECE)
        for end in ends:
            if self.batching.others:
                held = self.evaluate([top.descend(prompt.start[:end])])
        cell = top.descend(prompt.start)
        prompt.root = (cell, self.evaluate([cell])[cell])
        del held  # held until here: a freed piece would have to be evaluated again
        return len(prompt.start)

    def release_memory(self) -> None:
        """Let the backend release memory at the end of a comparison, unless another caller is using
        it."""
        if self.lock.acquire(blocking=False):
            try:
                self.backend.release_memory()
            finally:
                self.lock.release()

    def store_outputs(self, output_rows: Mapping[Cell, OutputRow]) -> None:
        """Store outputs that were computed elsewhere."""
        with self.lock:
            self._cached.update({cell: ref(output_row) for cell, output_row in output_rows.items()})

    def states(self, cell: Cell) -> Tensor:
        """The last hidden state at every token down to an evaluated cell: (tokens, width)."""
        with self.lock:
            return self.backend.states(cell)

    def evaluate(self, cells: Sequence[Cell]) -> dict[Cell, OutputRow]:
        """The model's output after each cell, in passes shared with other callers."""
        job = Job(list(dict.fromkeys(cells)))
        self.batching.join(job)
        while not job.done:
            # A done job must not wait for the lock: another caller may hold it again already.
            self.batching.wait(job)
            if not job.done and self.lock.acquire(timeout=_RECHECK):
                try:
                    if not job.done:
                        self._pass()
                finally:
                    self.lock.release()
        error, job.error = job.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame: a cycle would keep cells alive
        return job.output_rows

    def _pass(self) -> None:
        try:
            self._serve(self.batching.take())
        finally:
            self.batching.end()

    def _serve(self, parts: Sequence[tuple[Job, Sequence[Cell]]]) -> None:
        """Evaluate for several callers at once; one whose request is too large fails alone."""
        try:
            output_rows = self._look_up([cell for _, cells in parts for cell in cells])
        except Exception as error:
            if len(parts) > 1:
                for part in parts:
                    self._serve([part])
            else:
                parts[0][0].error = error
            return
        for job, cells in parts:
            job.output_rows |= {cell: output_rows[cell] for cell in cells}
            job.cells = job.cells[len(cells) :]

    def _look_up(self, cells: Sequence[Cell]) -> dict[Cell, OutputRow]:
        """Outputs that are still referred to, and new ones from the backend."""
        held = {cell: self._cached.get(cell) for cell in cells}
        output_rows = {
            cell: output_row for cell, known in held.items() if known and (output_row := known())
        }
        missing = [cell for cell in held if cell not in output_rows]
        if missing:
            new = self._evaluate_new(missing)
            self._cached.update({cell: ref(output_row) for cell, output_row in new.items()})
            output_rows |= new
        return output_rows

    def _evaluate_new(self, cells: Sequence[Cell]) -> dict[Cell, OutputRow]:
        try:
            return self.backend.evaluate(cells)
        except PlaygroundError:
            self._prompts.clear()  # their slots may be what is missing
            return self.backend.evaluate(cells)
