"""The app: its header, its list of pages, and the API."""

from __future__ import annotations

from typing import Any

import gradio as gr

from engine.settings import Limits
from playground.ui import api
from playground.ui.compare import page as compare
from playground.ui.shared import browser, gradio_internals
from playground.ui.shared.model_loading import Labs
from playground.ui.shared.model_picker import model_picker
from playground.ui.shared.pages import COMPARE, App, Page, Pages, PageSpec
from playground.ui.shared.theme import theme_options
from playground.ui.speculative import page as speculative
from playground.ui.watermark import page as watermark

# The pages besides the compare page.
PAGES = (
    PageSpec(
        "speculative", "race", "Speculative", speculative.build, "speculative/web/speculative.css"
    ),
    PageSpec("watermark", "watermark", "Watermark", watermark.build, "watermark/web/watermark.css"),
)

_TITLE = "# Decoding Playground"
_FILE_CLEANUP = (3_600, 86_400)  # seconds between two cleanups, and the age of deleted files
_QUEUE_INTERVAL = 0.01  # seconds


def build(labs: Labs, limits: Limits) -> gr.Blocks:
    """The page for these models, within these limits."""
    blocks = gr.Blocks(title="Decoding Playground", fill_width=True, delete_cache=_FILE_CLEANUP)
    with blocks:
        with gr.Row(elem_id="head"):
            gr.Markdown(_TITLE)
            model = model_picker(labs)
        app = App(blocks, labs, limits, model, browser.component())
        _build_pages(app)
        app.browser.render()  # type: ignore[no-untyped-call]  # Gradio annotates no return
        api.add_endpoints(blocks, labs)
    blocks.queue(max_size=4 * limits.comparisons, default_concurrency_limit=limits.comparisons)
    gradio_internals.set_queue_interval(blocks, _QUEUE_INTERVAL)
    return blocks


def _build_pages(app: App) -> None:
    each: dict[str, gr.Tab] = {}
    built: dict[str, Page] = {}
    with gr.Tabs(elem_id="pages", overflow_behavior="wrap") as tabs:
        with gr.Tab("Compare", id=COMPARE) as each[COMPARE]:
            comparison = compare.build(app, tabs, [page.id for page in PAGES])
        for page in PAGES:
            with gr.Tab(page.title, id=page.id) as each[page.id]:
                built[page.id] = page.build(app)
    comparison.connect(Pages(tabs, each, built))


def launch_options() -> dict[str, Any]:
    """The arguments of `launch` that the page needs."""
    return theme_options([page.style for page in PAGES], [page.path for page in PAGES])
