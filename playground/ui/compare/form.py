"""The form of the compare page: the prompt, the settings of all runs, and the buttons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr
from gradio.components import Component

from engine.prompt import Chat
from engine.settings import SHARED, Limits
from playground.ui.shared.controls import (
    as_prompt,
    control,
    given,
    prompt_kind,
    shown,
    with_controls,
)
from playground.ui.shared.events import Updates, Values

_ALWAYS_VISIBLE = ("max_new_tokens", "seed")  # of the shared settings; the rest is in an accordion


@dataclass(frozen=True)
class Form:
    """The fields, apart from those on the strategy cards."""

    prompt: gr.Textbox
    kind: gr.Radio
    shared: Mapping[str, Component]  # the settings of all runs, by name

    @property
    def fields(self) -> list[Component]:
        """All fields."""
        return [self.prompt, self.kind, *self.shared.values()]

    def prompt_of(self, values: Values) -> str | Chat:
        """The prompt as a lab takes it."""
        return as_prompt(values[self.prompt], values[self.kind])

    def shared_of(self, values: Values) -> dict[str, Any]:
        """The shared settings that were set."""
        return given(SHARED, {name: values[field] for name, field in self.shared.items()}, {})

    def show_shared(self, settings: Mapping[str, Any]) -> Updates:
        """Show these shared settings, and the default for all others."""
        updates: Updates = {}
        for name, field in self.shared.items():
            value = settings.get(name)
            updates[field] = shown(SHARED[name], SHARED[name].default if value is None else value)
        return updates


@dataclass(frozen=True)
class Actions:
    """The buttons above the columns."""

    run: gr.Button
    step: gr.Button
    stop: gr.Button
    add: gr.Button

    @property
    def start(self) -> list[gr.Button]:
        """The buttons that start runs."""
        return [self.run, self.step]

    @property
    def switched(self) -> list[gr.Button]:
        """The buttons that `switch` updates."""
        return [self.run, self.step, self.stop]

    def switch(self, *, running: bool) -> Updates:
        """Enable Stop during a run, and the start buttons otherwise."""
        updates: Updates = {button: gr.Button(interactive=not running) for button in self.start}
        return {**updates, self.stop: gr.Button(interactive=running)}


def build_bar(prompt: str, limits: Limits) -> tuple[Form, Actions]:
    """The bar at the top: the prompt, the settings people change most, and the buttons."""
    with gr.Row(elem_id="bar", equal_height=False):
        text = gr.Textbox(
            prompt,
            label="Prompt",
            lines=2,
            max_lines=12,
            interactive=True,
            elem_id="prompt",
            min_width=260,
            scale=4,
        )
        kind = prompt_kind("kind")
        shared = {name: _shared(name, limits) for name in _ALWAYS_VISIBLE}
        actions = _build_actions()
    return Form(text, kind, shared), actions


def build_shared(form: Form, limits: Limits) -> Form:
    """The form with the other settings of all runs, in an accordion."""
    with (
        gr.Accordion("Settings for all strategies", open=False, elem_id="shared"),
        gr.Row(elem_classes="settings"),
    ):
        names = [name for name in with_controls(SHARED) if name not in _ALWAYS_VISIBLE]
        others = {name: _shared(name, limits) for name in names}
    return replace(form, shared={**form.shared, **others})


def _shared(name: str, limits: Limits) -> Component:
    setting = SHARED[name]
    return control(setting, setting.default, limits, elem_id=f"shared-{name}")


def _build_actions() -> Actions:
    """The buttons. Run and Step are enabled once the model is loaded, Stop during a run."""
    with gr.Row(elem_id="actions"):
        return Actions(
            run=gr.Button("Run", variant="primary", interactive=False, elem_id="run"),
            step=gr.Button("Step", interactive=False, elem_id="step"),
            stop=gr.Button("Stop", variant="stop", interactive=False, elem_id="stop"),
            add=gr.Button("Add strategy", elem_id="add"),
        )
