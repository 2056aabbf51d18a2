"""Background jobs: a thread for each, buttons to start and stop it, and a progress line."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import Block

from engine.errors import PlaygroundError
from playground import Playground
from playground.stopping import Stopped
from playground.ui.shared import html
from playground.ui.shared.events import QUIET, Updates, visitor
from playground.ui.shared.messages import FAILED, warn
from playground.ui.shared.model_loading import Labs
from playground.ui.shared.throttle import End, batches

REFRESH = 0.4  # seconds between two updates of the page

# Jobs limit themselves and reject what exceeds the limit, so that no visitor waits in a queue.
JOB: dict[str, Any] = {**QUIET, "concurrency_limit": None}

Report = Callable[[Any], None]
Work = Callable[[threading.Event, Report], None]


class Jobs:
    """Jobs of one kind: one per visitor, ``limit`` on the server; further ones are rejected."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._lock = threading.Lock()
        self._running: dict[str, threading.Event] = {}  # by visitor

    def stop(self, visitor: str) -> None:
        """Ask the visitor's job to stop."""
        if stop := self._running.get(visitor):
            stop.set()

    def connect_stop(self, button: gr.Button) -> None:
        """Stop a visitor's job when they press the button. One whose page was closed stops too:
        Gradio then closes the iterator of `run`."""

        def stop(request: gr.Request) -> None:
            self.stop(visitor(request))

        button.click(stop, None, None, queue=False)

    def run(self, visitor: str, work: Work, refresh: float = REFRESH) -> Iterator[list[Any]]:
        """Run ``work`` in a thread; yield what it reports, in batches.

        Closing the iterator stops the job. An exception in ``work`` is raised here.
        """
        stop = self._start(visitor)
        reports: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(
            target=self._work, args=(visitor, stop, work, reports), daemon=True
        ).start()
        try:
            yield from batches(reports, refresh)
        finally:
            stop.set()

    def _start(self, visitor: str) -> threading.Event:
        with self._lock:
            if visitor in self._running:
                raise PlaygroundError(f"{self._name} is already running; stop it first")
            if len(self._running) >= self._limit:
                raise PlaygroundError(
                    f"the server runs at most {self._limit} of these at once, and other visitors"
                    f" are using them; start {self._name} again later"
                )
            return self._running.setdefault(visitor, threading.Event())

    def _work(
        self, visitor: str, stop: threading.Event, work: Work, reports: queue.SimpleQueue[Any]
    ) -> None:
        error = None
        try:
            work(stop, reports.put)
        except BaseException as raised:
            error = raised
        with self._lock:
            del self._running[visitor]  # before the page sees the end and may start another job
        reports.put(End(error))


@dataclass(frozen=True)
class JobControls:
    """The buttons that start and stop a job, and its progress line."""

    start: tuple[gr.Button, ...]
    stop: gr.Button
    progress: gr.HTML

    @property
    def outputs(self) -> list[Block]:
        """The components that `run` and `status` update."""
        return [*self.start, self.stop, self.progress]

    def status(self, text: str, done: int = 0, total: int = 0) -> Updates:
        """Show the progress."""
        return {self.progress: html.progress(text, done, total)}

    def run(self, steps: Iterator[Updates]) -> Iterator[Updates]:
        """Yield a job's updates, switch the buttons before and after, and show what went wrong."""
        yield {**self._switch(running=True), **self.status("Starting …")}
        text = ""
        try:
            yield from steps
        except PlaygroundError as error:
            warn(str(error))
            text = str(error)
        except Stopped:
            text = "Stopped."
        except Exception:
            traceback.print_exc()
            text = FAILED
        yield {**self._switch(running=False), **(self.status(text) if text else {})}

    def _switch(self, *, running: bool) -> Updates:
        buttons: Updates = {button: gr.Button(interactive=not running) for button in self.start}
        return {**buttons, self.stop: gr.Button(interactive=running)}


def job_controls(id: str, **titles: str) -> JobControls:
    """A row of start buttons, the first one primary, a Stop button and a progress line.

    A button's element id is ``id`` followed by the name of its argument.
    """
    with gr.Row(elem_classes="lab-actions"):
        start = [
            gr.Button(
                title,
                size="sm",
                variant="secondary" if place else "primary",
                elem_id=f"{id}-{name}",
            )
            for place, (name, title) in enumerate(titles.items())
        ]
        stop = gr.Button("Stop", size="sm", variant="stop", interactive=False, elem_id=f"{id}-stop")
    progress = gr.HTML(elem_id=f"{id}-progress", elem_classes="lab-output", padding=False)
    return JobControls(tuple(start), stop, progress)


def loaded_lab(labs: Labs, loaded: str) -> Playground:
    """The loaded model, or a `PlaygroundError` while there is none."""
    if not loaded:
        raise PlaygroundError("the model is still loading")
    return labs.lab(loaded)
