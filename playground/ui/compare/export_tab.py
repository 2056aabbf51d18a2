"""The tab Take it with you: a link, the traces, a report, the program, the configurations.

Knows which files there are and what they are called. Refuses to know what is in them: traces, the
report and the code each have a module of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gradio as gr

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.trace import Trace, dump_traces, load_traces
from playground import Playground, metrics
from playground.export.code import code, python_api
from playground.export.report import report
from playground.ui.compare import cards, configurations
from playground.ui.compare.results import Asked, Board
from visualizers import labels

WHOLE = "the whole comparison"
_LINK = (
    "The link holds the prompt, the cards, the settings and this view. It is the state itself: "
    "nothing is stored on the server."
)
_FILES = "Traces hold every number of every run; a saved file opens again without running anything."
_CODE = (
    "Plain transformers where it writes the same tokens, our strategies where it has none. The "
    "program is of the run as it was asked."
)


@dataclass(frozen=True)
class Take:
    """The parts of the tab."""

    make_link: gr.Button
    link: gr.Textbox
    traces: gr.Button
    open: gr.UploadButton
    report: gr.Button
    which: gr.Dropdown
    code: gr.Code
    save_code: gr.Button
    configurations: configurations.Section


def tab() -> Take:
    """The tab."""
    with gr.Row(elem_id="link-row"):
        make_link = gr.Button("Make a link", size="sm", scale=0, elem_id="make-link")
        link = gr.Textbox(
            show_label=False,
            container=False,
            interactive=False,
            max_lines=1,
            placeholder="A link that restores all of this",
            buttons=["copy"],
            elem_id="link",
            label="Link",
        )
    gr.Markdown(_LINK, elem_classes="summary")
    with gr.Row(elem_id="files-row"):
        traces = gr.Button("Save the traces (JSON)", size="sm", elem_id="save-traces")
        made = gr.Button("Save a report (HTML)", size="sm", elem_id="save-report")
        opened = gr.UploadButton(
            "Open saved traces", file_types=[".json"], size="sm", elem_id="open-traces"
        )
    gr.Markdown(_FILES, elem_classes="summary")
    with gr.Accordion("Python code", open=True, elem_id="code"):
        with gr.Row(elem_id="code-row"):
            which = gr.Dropdown(
                [WHOLE],
                value=WHOLE,
                label="Of",
                interactive=True,
                filterable=False,
                elem_id="which",
            )
            save_code = gr.Button("Save the program", size="sm", scale=0, elem_id="save-code")
        program = gr.Code(
            language="python",
            interactive=False,
            show_label=False,
            label="Python code",
            wrap_lines=True,
            buttons=["copy"],
        )
        gr.Markdown(_CODE, elem_classes="summary")
    section = configurations.section()
    return Take(make_link, link, traces, opened, made, which, program, save_code, section)


def names(board: Board) -> list[tuple[str, str]]:
    """What there is a program of: the whole comparison, and every column by its place."""
    columns = (
        (f"{column.key + 1}. {column.asked.heading[0]}", str(column.key))
        for column in board.columns
    )
    return [(WHOLE, WHOLE), *columns]


def program(board: Board, which: str, lab: Playground) -> str:
    """The program of a column, or of all that are no forks."""
    if which == WHOLE:
        first = [column.asked for column in board.columns if column.origin is None]
        if any(asked.prompt != first[0].prompt for asked in first):
            raise PlaygroundError("these runs have several prompts; choose one of them")
        choices = [asked.choice for asked in first]
        return python_api(lab, first[0].prompt, choices, **first[0].shared)
    column = board.column(int(which) if which.isdigit() else which)
    asked, before = column.asked, [inherited.token.id for inherited in column.before]
    return code(lab, asked.prompt, asked.choice, prefix=before, **asked.shared)


# A file's text and its name


def trace_file(traces: Sequence[Trace]) -> tuple[str, str]:
    """Every trace."""
    return dump_traces(traces), "traces.json"


def report_file(traces: Sequence[Trace]) -> tuple[str, str]:
    """The self-contained page."""
    return report(traces), "report.html"


def table_file(traces: Sequence[Trace]) -> tuple[str, str]:
    """All figures for a spreadsheet."""
    return metrics.as_csv(traces, labels(traces)), "figures.csv"


def opened(path: str, limits: Limits) -> Board:
    """A board of the traces in a file; a `PlaygroundError` where it holds none."""
    file = Path(path)
    if (size := file.stat().st_size) > limits.upload_bytes:
        raise PlaygroundError(f"{file.name} has {size:,} bytes; at most {limits.upload_bytes:,}")
    try:
        traces = load_traces(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise PlaygroundError(f"{file.name} is no text") from error
    if not traces:
        raise PlaygroundError(f"{file.name} holds no trace")
    if len(traces) > limits.columns:
        raise PlaygroundError(
            f"{file.name} holds {len(traces)} traces; at most {limits.columns} columns are shown"
        )
    try:
        board = _board(traces)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise PlaygroundError(f"{file.name} holds a trace that cannot be shown") from error
    board.feed.say(f"Opened {file.name}: nothing was run.")
    board.feed.pace("over")
    return board


def _board(traces: Sequence[Trace]) -> Board:
    """The traces as columns; anybody may have written them, and what is in them may be anything."""
    # A name of several is no model's: nothing is run, but everything can be looked at.
    board = Board(" and ".join(dict.fromkeys(trace.model for trace in traces)))
    for trace in traces:
        if not all(isinstance(words, str) for words in (trace.model, trace.prompt)):
            raise TypeError("a model and a prompt are words")
        board.put(_asked(trace), trace)
    return board


def _asked(trace: Trace) -> Asked:
    """What a trace says it was asked, which may be asked again."""
    settings = ", ".join(f"{name} {value}" for name, value in trace.settings.items())
    return Asked(
        prompt=trace.prompt,
        choice=(trace.strategy, {**trace.settings, "seed": trace.seed}),
        shared={},
        heading=(cards.readable(trace.strategy), settings or "no settings of its own"),
    )
