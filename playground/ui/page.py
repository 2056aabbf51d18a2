"""The page: what stands where.

Knows the parts and their places. Refuses to know what happens when something is pressed: `events`
connects the parts, and controls, cards, runs, the live view and the figures each have their file.
"""

from __future__ import annotations

import gradio as gr
from gradio.components import Component

from engine.settings import SHARED, Limits
from playground.ui import configurations, figures, live
from playground.ui.controls import carriable, control
from playground.ui.deck import Deck
from playground.ui.events import IN_SIGHT, KINDS, Form, Parts, connect, draw_cards
from playground.ui.examples import EXAMPLES, FIRST
from playground.ui.handlers import Runs
from playground.ui.loading import Loader

_WHAT_THIS_IS = (
    "# Decoding Playground\n"
    "See how a language model picks its words: one prompt, several decoding strategies side by "
    "side, every number taken from the run itself."
)

# Saved and loaded files are looked through every hour, and cleared away a day after they came.
_FILES_LIVE = (3_600, 86_400)


def build(loader: Loader, limits: Limits) -> gr.Blocks:
    """The page for the lab that ``loader`` brings, within ``limits``."""
    runs = Runs()
    page = gr.Blocks(title="Decoding Playground", fill_width=True, delete_cache=_FILES_LIVE)
    with page:
        with gr.Row(elem_id="head"):
            gr.Markdown(_WHAT_THIS_IS)
            model = gr.Markdown(f"Loading the model {loader.name} …", elem_id="model")
        examples, point = _examples()
        form = _form(limits)
        deck = gr.State(Deck().deal(FIRST.cards[: limits.strategies]))
        loaded = gr.State(False)
        card_place = gr.Column()
        run, stop, add = _actions()
        parts = Parts(
            form=form,
            deck=deck,
            model=model,
            loaded=loaded,
            examples=examples,
            point=point,
            run=run,
            stop=stop,
            add=add,
            configurations=configurations.section(),
            live=live.component(),
            results=gr.State(figures.Results(), time_to_live=3600),
            plots=figures.places(),
        )
        with card_place:
            gr.Markdown("The strategies appear here when the model is loaded.", elem_id="to-come")
            draw_cards(parts, loader, limits, runs)
        connect(page, parts, loader, limits, runs)
    return page


def _examples() -> tuple[list[gr.Button], gr.Markdown]:
    with gr.Row(elem_id="examples"):
        gr.Markdown("Try")
        buttons = [
            gr.Button(example.title, size="sm", scale=0, min_width=0) for example in EXAMPLES
        ]
        return buttons, gr.Markdown(elem_id="point")


def _form(limits: Limits) -> Form:
    with gr.Row(elem_id="form", equal_height=False):
        with gr.Column(scale=3, min_width=300):
            prompt = gr.Textbox(
                FIRST.prompt,
                label="Prompt",
                lines=5,
                max_lines=12,
                interactive=True,
                elem_id="prompt",
            )
        with gr.Column(scale=2, min_width=300):
            kind = gr.Radio(
                KINDS, value=KINDS[0], label="The prompt is a", interactive=True, elem_id="kind"
            )
            with gr.Row(elem_classes="settings"):
                shared = {name: _shared(name, limits) for name in IN_SIGHT}
    with (
        gr.Accordion("Settings for every strategy", open=False, elem_id="shared"),
        gr.Row(elem_classes="settings"),
    ):
        folded = [name for name in carriable(SHARED) if name not in IN_SIGHT]
        shared |= {name: _shared(name, limits) for name in folded}
    return Form(prompt, kind, shared)


def _shared(name: str, limits: Limits) -> Component:
    setting = SHARED[name]
    return control(setting, None, setting.default, limits, elem_id=f"shared-{name}")


def _actions() -> tuple[gr.Button, gr.Button, gr.Button]:
    """Run waits for the model, Stop for a run."""
    with gr.Row(elem_id="actions"):
        return (
            gr.Button("Run", variant="primary", interactive=False, elem_id="run"),
            gr.Button("Stop", variant="stop", interactive=False, elem_id="stop"),
            gr.Button("Add a strategy", elem_id="add"),
        )
