"""The model menu in the page's header; beside it how loading proceeds and how the model is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gradio as gr

from engine.errors import PlaygroundError
from engine.trie.backends import BackendStatus
from playground.ui.shared import html
from playground.ui.shared.events import QUICK
from playground.ui.shared.model_loading import Labs

_POLL = 0.5  # seconds between two checks while a model loads


class _State(NamedTuple):
    text: str  # the progress, or why loading failed; empty once the model is loaded
    loaded: str = ""  # the model's name once it is loaded
    backend: str = ""  # HTML: a hint that says how the model is run
    fallbacks: str = ""  # HTML: what could not be used
    waiting: bool = False


@dataclass(frozen=True)
class ModelPicker:
    """The components."""

    menu: gr.Dropdown
    status: gr.Markdown
    backend: gr.HTML
    fallbacks: gr.HTML
    loaded: gr.State  # the name of the loaded model; empty while there is none

    def connect(
        self,
        page: gr.Blocks,
        labs: Labs,
        buttons: Sequence[gr.Button],
        busy: Callable[[gr.Request], bool],
    ) -> None:
        """Poll until the chosen model is loaded. ``buttons`` need it, and can be pressed unless
        the visitor is ``busy``."""

        def poll(name: str, loaded: str, request: gr.Request) -> tuple[Any, ...]:
            state = _state(name, labs)
            ready = bool(state.loaded) and not busy(request)
            return (
                state.text,
                state.backend,
                state.fallbacks,
                state.loaded or loaded,
                gr.Timer(active=state.waiting),
                *(gr.Button(interactive=ready) for _ in buttons),
            )

        timer = gr.Timer(_POLL)  # also repeats a request whose answer was lost
        outputs = [self.status, self.backend, self.fallbacks, self.loaded, timer, *buttons]
        gr.on(
            [page.load, timer.tick, self.menu.change],
            poll,
            [self.menu, self.loaded],
            outputs,
            **QUICK,
        )


def model_picker(labs: Labs) -> ModelPicker:
    """The menu, for the models that ``labs`` offers."""
    with gr.Column(elem_id="model-place", min_width=220):
        menu = gr.Dropdown(
            list(labs.names),
            value=labs.default,
            label="Model",
            show_label=False,
            container=False,
            allow_custom_value=labs.allow_any,
            filterable=labs.allow_any,
            interactive=True,
            elem_id="model",
        )
        status = gr.Markdown(f"Loading {labs.default} …", elem_id="loading")
        backend = gr.HTML(elem_id="backend", padding=False, apply_default_css=False)
    fallbacks = gr.HTML(elem_id="fallbacks", padding=False)
    return ModelPicker(menu, status, backend, fallbacks, gr.State(""))


def _state(name: str, labs: Labs) -> _State:
    try:
        loader = labs.loader(name)
        if not loader.done:
            return _State(f"Loading {name} … {loader.seconds:.0f} s", waiting=True)
        run_by = loader.lab().backend_status
        fallbacks = html.remarks([f"Not used: {reason}." for reason in _missing(run_by)])
        hint = html.hint("backend-hint", f"How {name} is run", _backend(run_by))
        return _State("", loaded=name, backend=hint, fallbacks=fallbacks)
    except Exception as error:
        reason = error if isinstance(error, PlaygroundError) else "see the server log"
        return _State(f"{name} could not be loaded: {reason}")


def _backend(status: BackendStatus) -> str:
    """Which backend and accelerations run a model."""
    used = f" with {', '.join(status.accelerations)}" if status.accelerations else ""
    return f"Runs on the {status.backend} backend{used}."


def _missing(status: BackendStatus) -> list[str]:
    """Why the trie or an acceleration is not used."""
    return [*([status.reason] if status.reason else []), *status.fallbacks]
