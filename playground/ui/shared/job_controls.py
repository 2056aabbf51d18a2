"""The buttons that begin and stop a job, and the line that tells how far it is.

Knows what is usable while a job goes on, and that a job may fail. Refuses to know the job.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import Block

from engine.errors import PlaygroundError
from playground import Playground
from playground.ui.compare.components import QUIET
from playground.ui.shared import html
from playground.ui.shared.messages import warn
from playground.ui.shared.model_loading import Labs
from playground.watermarks.attacks.registry import Stopped

# Jobs count themselves and refuse what is too much, so that nobody stands in a queue unseen.
WORKING: dict[str, Any] = {**QUIET, "concurrency_limit": None}

Drawn = dict[Block, Any]


@dataclass(frozen=True)
class Bench:
    """The parts."""

    begin: tuple[gr.Button, ...]
    stop: gr.Button
    progress: gr.HTML

    @property
    def outputs(self) -> list[Block]:
        """What a job changes, whatever it is."""
        return [*self.begin, self.stop, self.progress]

    def say(self, words: str, done: int = 0, total: int = 0) -> Drawn:
        """How far it is."""
        return {self.progress: html.bar(words, done, total)}

    def run(self, steps: Iterator[Drawn]) -> Iterator[Drawn]:
        """A job's screens; before them and after them what is usable, and what went wrong."""
        yield {**self._switched(running=True), **self.say("Starting …")}
        words = ""
        try:
            yield from steps
        except PlaygroundError as error:
            warn(str(error))
            words = str(error)
        except Stopped:
            words = "Stopped."
        except Exception:
            traceback.print_exc()
            words = "The program failed; the server's log says where."
        yield {**self._switched(running=False), **(self.say(words) if words else {})}

    def _switched(self, *, running: bool) -> Drawn:
        usable: Drawn = {button: gr.Button(interactive=not running) for button in self.begin}
        return {**usable, self.stop: gr.Button(interactive=running)}


def bench(id: str, *titles: str) -> Bench:
    """A row of buttons with these titles, the first one as what one would press, and Stop."""
    with gr.Row(elem_classes="lab-actions"):
        begin = [
            gr.Button(
                title,
                size="sm",
                variant="secondary" if place else "primary",
                elem_id=f"{id}-{title.lower().replace(' ', '-')}",
            )
            for place, title in enumerate(titles)
        ]
        stop = gr.Button("Stop", size="sm", variant="stop", interactive=False, elem_id=f"{id}-stop")
    progress = gr.HTML(elem_id=f"{id}-progress", elem_classes="lab-told", padding=False)
    return Bench(tuple(begin), stop, progress)


def lab_of(labs: Labs, loaded: str) -> Playground:
    """The model that is there, or a word that it is not."""
    if not loaded:
        raise PlaygroundError("the model is still on its way")
    return labs.lab(loaded)
