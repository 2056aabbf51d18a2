"""The page: what stands where.

Knows the parts and their places. Refuses to know what happens when something is pressed: `events`
connects the parts, and controls, cards, runs, the live view and the tabs each have their file.
"""

from __future__ import annotations

import gradio as gr
from gradio.components import Component

from engine.settings import SHARED, Limits
from playground.ui import api, speculative, watermark
from playground.ui.compare import charts_tab, export_tab, live_view, step_view, tree_view, why_tab
from playground.ui.compare.card_events import draw_cards
from playground.ui.compare.card_state import Deck
from playground.ui.compare.components import IN_SIGHT, KINDS, Actions, Form, Parts, Tabs
from playground.ui.compare.events import connect
from playground.ui.compare.presets import FIRST, PRESETS
from playground.ui.compare.runs import Runs
from playground.ui.shared import browser
from playground.ui.shared.controls import carriable, control
from playground.ui.shared.model_loading import Labs

_WHAT_THIS_IS = (
    "# Decoding Playground\n"
    "See how a language model picks its words: one prompt, several decoding strategies side by "
    "side, every number taken from the run itself."
)
_CARDS_TO_COME = "The strategies appear here when the model is loaded."

# Saved and loaded files are looked through every hour, and cleared away a day after they came.
_FILES_LIVE = (3_600, 86_400)

# Seconds between two looks into the queue. Gradio's own millisecond costs a server that nobody
# uses a fourteenth of a core, and one that is used takes it from the model.
_LOOK = 0.01


def build(labs: Labs, limits: Limits) -> gr.Blocks:
    """The page for the models that ``labs`` has, within ``limits``."""
    runs = Runs(limits)
    page = gr.Blocks(title="Decoding Playground", fill_width=True, delete_cache=_FILES_LIVE)
    with page:
        model, loading = _head(labs)
        presets, point = _presets()
        form = _form(limits)
        card_place = gr.Column()
        actions = _actions()
        parts = Parts(
            model=model,
            loading=loading,
            loaded=gr.State(""),
            presets=presets,
            point=point,
            form=form,
            deck=gr.State(Deck().deal(FIRST.cards[: limits.strategies])),
            actions=actions,
            live=live_view.component(runs.more),
            tabs=_tabs(labs, limits),
            browser=browser.component(),
        )
        with card_place:
            gr.Markdown(_CARDS_TO_COME, elem_id="to-come")
            draw_cards(parts, labs, limits, runs)
        connect(page, parts, labs, limits, runs)
        api.offer(labs)
    for event in page.fns.values():
        if event.renderable:  # gr.render takes no such argument; see QUIET
            event.show_progress_on = ()
    at_once = limits.comparisons
    page.queue(max_size=4 * at_once, default_concurrency_limit=at_once)
    page._queue.sleep_when_free = _LOOK
    return page


def _head(labs: Labs) -> tuple[gr.Dropdown, gr.Markdown]:
    with gr.Row(elem_id="head"):
        gr.Markdown(_WHAT_THIS_IS)
        with gr.Column(elem_id="model-place", min_width=220):
            model = gr.Dropdown(
                list(labs.names),
                value=labs.usual,
                label="Model",
                info="A Hub id or a folder may be typed." if labs.open else None,
                allow_custom_value=labs.open,
                filterable=labs.open,
                interactive=True,
                elem_id="model",
            )
            return model, gr.Markdown(f"Loading {labs.usual} …", elem_id="loading")


def _presets() -> tuple[list[gr.Button], gr.Markdown]:
    with gr.Row(elem_id="presets"):
        gr.Markdown("Try")
        buttons = [gr.Button(preset.title, size="sm", scale=0, min_width=0) for preset in PRESETS]
    return buttons, gr.Markdown(elem_id="point")


def _form(limits: Limits) -> Form:
    with gr.Row(elem_id="form", equal_height=False):
        with gr.Column(scale=3, min_width=300):
            prompt = gr.Textbox(
                FIRST.prompt,
                label="Prompt",
                lines=4,
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


def _actions() -> Actions:
    """Run and Step wait for the model, Stop for a run."""
    with gr.Row(elem_id="actions"):
        return Actions(
            run=gr.Button("Run", variant="primary", interactive=False, elem_id="run"),
            step=gr.Button("Run step by step", interactive=False, elem_id="step"),
            stop=gr.Button("Stop", variant="stop", interactive=False, elem_id="stop"),
            add=gr.Button("Add a strategy", elem_id="add"),
        )


def _tabs(labs: Labs, limits: Limits) -> Tabs:
    with gr.Tabs(elem_id="tabs", overflow_behavior="wrap") as all_tabs:
        with gr.Tab("Step", id="step") as of_step:
            step_view.view()
        with gr.Tab("Tree", id="tree") as of_tree:
            tree_view.view()
        with gr.Tab("Why", id="why") as of_why:
            reasons = why_tab.tab()
        with gr.Tab("Across strategies", id="across") as of_across:
            beside = charts_tab.tab()
        with gr.Tab("Speculative", id="speculative") as of_speculative:
            drafts = speculative.tab(limits)
        with gr.Tab("Watermark", id="watermark") as of_watermark:
            marks = watermark.tab(labs, limits)
        with gr.Tab("Take it with you", id="take") as of_take:
            taken = export_tab.tab()
    each = {"step": of_step, "tree": of_tree, "why": of_why, "across": of_across}
    each |= {"speculative": of_speculative, "watermark": of_watermark, "take": of_take}
    return Tabs(all_tabs, gr.State("step"), each, reasons, beside, drafts, marks, taken)
