"""The app: its header, its list of pages, and the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from engine.settings import Limits
from playground.ui import api
from playground.ui.compare import page as compare
from playground.ui.compare import stream
from playground.ui.compare.runs import Runs
from playground.ui.shared import browser, gradio_internals
from playground.ui.shared.model_loading import Labs
from playground.ui.shared.model_picker import model_picker
from playground.ui.shared.monitoring import Monitoring
from playground.ui.shared.pages import COMPARE, App, Page, Pages, PageSpec
from playground.ui.shared.run_queue import RunQueue
from playground.ui.shared.share import share_button
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
_THREADS = 40  # for listeners of the page
_SESSIONS = 500  # visitors whose state Gradio keeps; those who came first lose theirs first


@dataclass(frozen=True)
class Site:
    """The Gradio page, and what its other routes serve."""

    blocks: gr.Blocks
    runs: Runs
    monitoring: Monitoring
    threads: int

    def launch(self, **options: Any) -> None:
        """Serve the page; ``options`` are those of `gr.Blocks.launch`."""
        styles, paths = [page.style for page in PAGES], [page.path for page in PAGES]
        routes = [*stream.routes(self.runs), *self.monitoring.routes()]
        own = theme_options(self.blocks, styles, paths, routes)
        self.blocks.launch(
            state_session_capacity=_SESSIONS, max_threads=self.threads, **own, **options
        )

    def close(self) -> None:
        """Stop all runs and end the server."""
        self.runs.close()
        self.blocks.close(verbose=False)


def build(labs: Labs, limits: Limits) -> Site:
    """The page for these models, within these limits."""
    queue = RunQueue(limits.comparisons, limits.waiting)
    monitoring = Monitoring(labs, queue)
    blocks = gr.Blocks(title="Decoding Playground", fill_width=True, delete_cache=_FILE_CLEANUP)
    with blocks:
        with gr.Row(elem_id="head"):
            gr.Markdown(_TITLE)
            model = model_picker(labs)
            share = share_button()
        app = App(blocks, labs, limits, model, share, browser.component(), queue, monitoring)
        runs = _build_pages(app)
        app.browser.render()  # type: ignore[no-untyped-call]  # Gradio annotates no return
        api.add_endpoints(blocks, labs, queue, monitoring)
    blocks.queue(
        max_size=limits.comparisons + limits.waiting, default_concurrency_limit=limits.comparisons
    )
    gradio_internals.set_queue_interval(blocks, _QUEUE_INTERVAL)
    # Calls of the API hold a thread while they run.
    return Site(blocks, runs, monitoring, threads=_THREADS + limits.comparisons)


def _build_pages(app: App) -> Runs:
    each: dict[str, gr.Tab] = {}
    built: dict[str, Page] = {}
    with gr.Tabs(elem_id="pages", overflow_behavior="wrap"):
        with gr.Tab("Compare", id=COMPARE) as each[COMPARE]:
            comparison = compare.build(app)
        for page in PAGES:
            with gr.Tab(page.title, id=page.id) as each[page.id]:
                built[page.id] = page.build(app)
    comparison.connect(Pages(each, built))
    return comparison.runs
