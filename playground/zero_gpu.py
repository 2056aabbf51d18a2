"""A playground on a ZeroGPU Space of Hugging Face.

There a process has a GPU only while it runs a function decorated with ``spaces.GPU``. That function
runs in a fork of the server: its argument and what it yields are pickled, and what it changes is
lost. A comparison is one such call. Commands to its runs go through a file that the fork reads.
"""

from __future__ import annotations

import contextvars
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import PlaygroundError
from engine.models.model import Model
from engine.prompt import Chat
from engine.run_control import RunControl
from engine.trace import Trace, Update
from playground.lab import Playground, traces_of
from playground.requests import Comparison, StrategyChoice, TextOrTokens
from playground.stopping import Stop

_START_SECONDS = 15.0  # for moving the model to the GPU and for the prompt
_TICKS_A_SECOND = 10.0  # at least
_MOST_SECONDS = 120.0  # of a call, if the operator sets no limit
_POLL = 0.02  # seconds between two looks at the commands
_TIMED_OUT = "timed out"  # yielded by a call whose runs were paused for too long


@dataclass(frozen=True)
class _Job:
    """The argument of a call: which method runs, and how it is controlled."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    ticks: int  # expected
    commands: Path
    paused: bool
    timeout: float | None


class ZeroGpuPlayground(Playground):
    """A `Playground` whose runs are evaluated on the GPU of a ZeroGPU Space.

    ``gpu`` is the decorator ``spaces.GPU``; the other arguments are those of `Playground`.
    """

    def __init__(self, model: Model, *, gpu: Callable[..., Any], **options: Any) -> None:
        super().__init__(model, **options)

        # Decorated for each playground: ZeroGPU uses a fork again for calls of the same function,
        # and a fork knows only the models that were loaded before it.
        def evaluate(job: _Job) -> Iterator[Any]:
            yield from self._evaluate(job)

        self._call = gpu(duration=self._seconds_of)(evaluate)

    def stream(
        self,
        prompt: str | Chat,
        choices: Sequence[StrategyChoice],
        *,
        prefix: TextOrTokens = (),
        stop: Stop | None = None,
        **shared: Any,
    ) -> Iterator[Update]:
        """Like `Playground.stream`, in one call of the GPU."""
        parsed = self._checked(prompt, choices, prefix=prefix, **shared)
        return self._on_gpu("stream", [parsed], stop, prompt, choices, prefix=prefix, **shared)

    def stream_each(
        self,
        runs: Sequence[tuple[str | Chat, StrategyChoice]],
        *,
        stop: Stop | None = None,
        **shared: Any,
    ) -> Iterator[Update]:
        """Like `Playground.stream_each`, in one call of the GPU."""
        parsed = [self._checked(prompt, [choice], **shared) for prompt, choice in runs]
        return self._on_gpu("stream_each", parsed, stop, runs, **shared)

    def score(
        self,
        prompt: str | Chat,
        text: TextOrTokens,
        choices: Sequence[StrategyChoice],
        *,
        prefix: TextOrTokens = (),
        **shared: Any,
    ) -> list[Trace]:
        """Like `Playground.score`, in one call of the GPU."""
        parsed = self.parse(prompt, choices, prefix=prefix, **shared)
        updates = self._on_gpu(
            "_scored", [parsed], None, prompt, text, choices, prefix=prefix, **shared
        )
        return traces_of(updates)

    def _checked(
        self, prompt: str | Chat, choices: Sequence[StrategyChoice], **options: Any
    ) -> Comparison:
        """What is to run; raises for invalid input, before a GPU is requested."""
        parsed = self.parse(prompt, choices, **options)
        self._parser.check_length(parsed.prompt, _longest([parsed]))
        return parsed

    def _on_gpu(
        self,
        method: str,
        parsed: Sequence[Comparison],
        stop: Stop | None,
        *arguments: Any,
        **options: Any,
    ) -> Iterator[Update]:
        control = stop if isinstance(stop, RunControl) else RunControl()
        job = _Job(
            method,
            arguments,
            options,
            ticks=_longest(parsed),
            commands=Path(tempfile.gettempdir()) / f"playground-{uuid.uuid4().hex}",
            paused=control.paused,
            timeout=control.timeout,
        )
        commands = _Commands(job.commands)
        control.subscribe(commands.send)
        # ZeroGPU finds the visitor, whose quota it uses, in the context of Gradio's event.
        context = contextvars.copy_context()
        return self._results(job, commands, stop, control, context)

    def _results(
        self,
        job: _Job,
        commands: _Commands,
        stop: Stop | None,
        control: RunControl,
        context: contextvars.Context,
    ) -> Iterator[Update]:
        yielded = self._call(job)
        try:
            while (result := context.run(next, yielded, None)) is not None:
                if isinstance(result, PlaygroundError):
                    raise result
                if result == _TIMED_OUT:
                    control.time_out()
                    continue
                if stop is not None and stop is not control and stop.is_set():
                    control.stop()
                yield result
        except PlaygroundError:
            raise
        except Exception as error:
            raise PlaygroundError(
                f"the GPU was taken away before the end ({error}); run it again, or with fewer"
                " new tokens"
            ) from error
        finally:
            yielded.close()
            commands.close()

    def _seconds_of(self, job: _Job) -> float:
        """How long a call may take; a shorter one gets a GPU earlier."""
        expected = _START_SECONDS + job.ticks / _TICKS_A_SECOND
        return min(expected, self.limits.seconds or _MOST_SECONDS)

    # In the fork

    def _evaluate(self, job: _Job) -> Iterator[Any]:
        """What a call yields: updates, and an error in words as a value, because ZeroGPU passes
        only the class of an exception on."""
        control = RunControl(paused=job.paused, timeout=job.timeout)
        options = job.options if job.method == "_scored" else {**job.options, "stop": control}
        try:
            with _obeying(job.commands, control):
                yield from getattr(super(), job.method)(*job.arguments, **options)
        except PlaygroundError as error:
            yield error
        if control.timed_out:
            yield _TIMED_OUT


def _longest(parsed: Sequence[Comparison]) -> int:
    """The most new tokens of a run."""
    lengths = [one.settings["max_new_tokens"] for each in parsed for one in each.requests]
    return max(lengths, default=0)


class _Commands:
    """Writes commands to a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._closed = False

    def send(self, *command: str | int) -> None:
        with self._lock:
            if not self._closed:
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(" ".join(map(str, command)) + "\n")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._file.unlink(missing_ok=True)


@contextmanager
def _obeying(commands: Path, control: RunControl) -> Iterator[None]:
    """Pass the commands in a file on to a control, as they are written."""
    over = threading.Event()

    def read() -> None:
        done = 0
        while not over.wait(_POLL):
            if not commands.exists():
                continue
            lines = commands.read_text(encoding="utf-8").split("\n")[:-1]
            for name, *numbers in map(str.split, lines[done:]):
                getattr(control, name)(*map(int, numbers))
            done = len(lines)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
