"""The tab Export: traces, a report, Python code, and generation configs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.blocks import Block

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.trace import Trace, dump_traces, load_traces
from playground import Playground, metrics
from playground.export.code import code, python_api
from playground.export.report import report
from playground.ui.compare.configurations import ConfigurationSection, build_configurations
from playground.ui.compare.runs import Runs
from playground.ui.shared import browser
from playground.ui.shared.comparison import Comparison, RunRequest, strategy_title
from playground.ui.shared.events import QUICK, Updates, visitor
from playground.ui.shared.messages import shows_errors
from playground.ui.shared.pages import App
from strategies import registered
from visualizers import labels

WHOLE = "the whole comparison"
_FILES = "A file with traces contains all data of the runs. Open it later without running anything."
_CODE = (
    "Plain transformers code where `generate` gives the same tokens; code with this project's "
    "strategies where it does not."
)


@dataclass(frozen=True)
class Export:
    """The components of the tab."""

    traces: gr.Button
    open: gr.UploadButton
    report: gr.Button
    which: gr.Dropdown
    code: gr.Code
    save_code: gr.Button
    configurations: ConfigurationSection

    @property
    def outputs(self) -> list[Block]:
        """The components that `draw` updates."""
        return [self.which, self.code]

    def draw(self, comparison: Comparison, lab: Callable[[], Playground]) -> Updates:
        """Show the program of the whole comparison."""
        columns = [(column.title, str(column.key)) for column in comparison.columns]
        return {
            self.which: gr.Dropdown(choices=[(WHOLE, WHOLE), *columns], value=WHOLE),
            self.code: program_or_reason(comparison, WHOLE, lab),
        }


def build_export() -> Export:
    """The tab."""
    with gr.Row(elem_id="files-row"):
        traces = gr.Button("Save traces (JSON)", size="sm", elem_id="save-traces")
        report_button = gr.Button("Save report (HTML)", size="sm", elem_id="save-report")
        upload = gr.UploadButton(
            "Open traces", file_types=[".json"], size="sm", elem_id="open-traces"
        )
    gr.Markdown(_FILES, elem_classes="summary")
    with gr.Accordion("Python code", open=True, elem_id="code"):
        with gr.Row(elem_id="code-row"):
            which = gr.Dropdown(
                [WHOLE],
                value=WHOLE,
                label="Code for",
                interactive=True,
                filterable=False,
                elem_id="which",
            )
            save_code = gr.Button("Save code", size="sm", scale=0, elem_id="save-code")
        program = gr.Code(
            language="python",
            interactive=False,
            show_label=False,
            label="Python code",
            wrap_lines=True,
            buttons=["copy"],
        )
        gr.Markdown(_CODE, elem_classes="summary")
    configurations = build_configurations()
    return Export(traces, upload, report_button, which, program, save_code, configurations)


def connect_export(
    export: Export, app: App, runs: Runs, live: gr.HTML, save_table: gr.Button
) -> None:
    """Connect the files; ``save_table`` saves the table of metrics."""

    def saving(make: Callable[[Sequence[Trace]], str], name: str) -> Callable[[gr.Request], Any]:
        @shows_errors
        def save(request: gr.Request) -> str:
            return browser.download({name: make(finished(runs, request).traces)})

        return save

    @shows_errors
    def save_code(which: str, request: gr.Request) -> str:
        comparison = finished(runs, request)
        text = program(comparison, which, app.labs.lab(comparison.model))
        return browser.download({"decode.py": text})

    def choose(which: str, request: gr.Request) -> Any:
        comparison = runs.comparison(visitor(request))
        if comparison is None:
            return gr.skip()
        return program_or_reason(comparison, which, lambda: app.labs.lab(comparison.model))

    @shows_errors
    def open_file(path: str, request: gr.Request) -> Any:
        if runs.is_running(visitor(request)):
            raise PlaygroundError("stop the current run before opening traces")
        return runs.show(visitor(request), read_traces(path, app.limits))

    def table(traces: Sequence[Trace]) -> str:
        return metrics.as_csv(traces, labels(traces))

    for button, make, name in (
        (export.traces, dump_traces, "traces.json"),
        (export.report, report, "report.html"),
        (save_table, table, "figures.csv"),
    ):
        button.click(saving(make, name), None, app.browser, **QUICK)
    export.save_code.click(save_code, export.which, app.browser, **QUICK)
    export.which.input(choose, export.which, export.code, **QUICK)
    export.open.upload(open_file, export.open, live, **QUICK)


def finished(runs: Runs, request: gr.Request) -> Comparison:
    """The visitor's comparison, or a `PlaygroundError` if no run of it has ended."""
    comparison = runs.comparison(visitor(request))
    if comparison is None or not comparison.traces:
        raise PlaygroundError("run a comparison first")
    return comparison


def program(comparison: Comparison, which: str, lab: Playground) -> str:
    """The program of a column, or of all columns that are not forks."""
    if which == WHOLE:
        first = [column.request for column in comparison.columns if column.origin is None]
        if any(request.prompt != first[0].prompt for request in first):
            raise PlaygroundError("these runs have different prompts; choose one of them")
        choices = [request.choice for request in first]
        return python_api(lab, first[0].prompt, choices, **first[0].shared)
    column = comparison.column(int(which) if which.isdigit() else which)
    request = column.request
    return code(lab, request.prompt, request.choice, prefix=column.prefix_ids, **request.shared)


def program_or_reason(comparison: Comparison, which: str, lab: Callable[[], Playground]) -> str:
    """The program, or a comment that says why there is none."""
    try:
        return program(comparison, which, lab())
    except PlaygroundError as error:
        return "\n".join(f"# {line}" for line in str(error).splitlines())


# Opening traces


def read_traces(path: str, limits: Limits) -> Comparison:
    """The traces in a file as a comparison, or a `PlaygroundError`."""
    file = Path(path)
    if (size := file.stat().st_size) > limits.upload_bytes:
        raise PlaygroundError(
            f"{file.name} has {size:,} bytes; at most {limits.upload_bytes:,} are allowed"
        )
    try:
        traces = load_traces(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise PlaygroundError(f"{file.name} is not a text file") from error
    if not traces:
        raise PlaygroundError(f"{file.name} contains no trace")
    if len(traces) > limits.columns:
        raise PlaygroundError(
            f"{file.name} contains {len(traces)} traces; at most {limits.columns} are shown"
        )
    try:
        comparison = _comparison(traces)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise PlaygroundError(f"{file.name} contains an invalid trace") from error
    comparison.feed.set_status(f"Opened {file.name}. Nothing was run.")
    comparison.feed.set_state("over")
    return comparison


def _comparison(traces: Sequence[Trace]) -> Comparison:
    """The traces as columns. The file may come from anyone and contain anything."""
    # Several names joined are no model's name: such columns can be read but not forked.
    comparison = Comparison(" and ".join(dict.fromkeys(trace.model for trace in traces)))
    for trace in traces:
        _check_settings(trace)
        comparison.add_trace(_request(trace), trace)
    return comparison


def _check_settings(trace: Trace) -> None:
    """Raise if a number among the settings is none: figures calculate with them."""
    strategy = registered().get(trace.strategy)
    for name, setting in strategy.settings.items() if strategy else ():
        value = trace.settings.get(name)
        if setting.kind in (int, float) and not isinstance(value, int | float | None):
            raise TypeError(f"{name} is {value!r}; it must be a number")


def _request(trace: Trace) -> RunRequest:
    """The request that a trace records."""
    settings = ", ".join(f"{name} {value}" for name, value in trace.settings.items())
    return RunRequest(
        prompt=trace.prompt,
        choice=(trace.strategy, {**trace.settings, "seed": trace.seed}),
        shared={},
        heading=(strategy_title(trace.strategy), settings or "no settings"),
    )
