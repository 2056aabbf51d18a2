"""What happens in the tabs below the columns: figures drawn, texts scored, files saved and opened.

Knows the parts of the tabs. Refuses to know the form and the cards. A figure is drawn when its tab
is opened, when a run has ended and when another place of the texts is pointed out; never unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gradio as gr
from gradio.blocks import Block

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.trace import Trace
from playground import Playground
from playground.ui.compare import charts_tab, configurations, export_tab
from playground.ui.compare.card_events import shared
from playground.ui.compare.card_state import Deck
from playground.ui.compare.components import QUICK, Parts, Tabs, Values, buttons, visitor
from playground.ui.compare.results import Board
from playground.ui.compare.runs import Runs, wished
from playground.ui.shared import browser
from playground.ui.shared.messages import spoken
from playground.ui.shared.model_loading import Labs

Drawn = dict[Block, Any]
File = Callable[[Sequence[Trace]], tuple[str, str]]


def connect(parts: Parts, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Connect all tabs."""
    _connect_figures(parts, labs, runs)
    _connect_files(parts, labs, limits, runs)
    _connect_configurations(parts, labs)


def _connect_figures(parts: Parts, labs: Labs, runs: Runs) -> None:
    tabs = parts.tabs
    figures = _outputs(tabs)

    def finish(opened: str, request: gr.Request) -> Drawn:
        now = buttons(running=runs.going(visitor(request)))
        switched = dict(zip(parts.actions.switched, now, strict=True))
        return {**switched, **turned(opened, request)}

    def turned(opened: str, request: gr.Request) -> Drawn:
        board = runs.board(visitor(request))
        if board is not None:
            board.tab = opened
        return {tabs.opened: opened, **_drawn(tabs, board, labs)}

    def pin(event: gr.EventData, request: gr.Request) -> Drawn:
        board = runs.board(visitor(request))
        at = wished(event._data).get("at")
        if board is not None:
            board.at = at if type(at) is int and at >= 0 else None
        return _drawn(tabs, board, labs)

    @spoken
    def score(request: gr.Request) -> Drawn:
        board = _board(runs, request)
        traces = charts_tab.scored(board, labs.lab(board.model))
        return _named(tabs.across.scored.outputs, tabs.across.scored.drawn(traces, board.at))

    # By default Gradio drops an event while the last one like it is on its way.
    told = {**QUICK, "trigger_mode": "multiple"}
    further = [*parts.actions.switched, tabs.opened, *figures]
    parts.live.over(finish, tabs.opened, further, **told)
    parts.live.pinned(pin, None, figures, **{**QUICK, "trigger_mode": "always_last"})
    for name, each in tabs.each.items():
        listener, outputs = _turning(turned, name), [tabs.opened, *figures]
        each.select(listener, None, outputs, js=browser.turned(name), **QUICK)
    how = {**QUICK, "show_progress": "minimal", "show_progress_on": None, "concurrency_limit": 2}
    tabs.across.score.click(score, None, tabs.across.scored.outputs, **how)


def _turning(
    turned: Callable[[str, gr.Request], Drawn], name: str
) -> Callable[[gr.Request], Drawn]:
    """A listener of one tab; a closure, as Gradio hands no request to a partial."""

    def turn(request: gr.Request) -> Drawn:
        return turned(name, request)

    return turn


def _outputs(tabs: Tabs) -> list[Block]:
    return [
        *tabs.why.outputs,
        *tabs.across.figures.outputs,
        tabs.across.table,
        tabs.take.which,
        tabs.take.code,
    ]


def _drawn(tabs: Tabs, board: Board | None, labs: Labs) -> Drawn:
    """What the open tab shows of a board, by component."""
    if board is None or not board.traces:
        return {tabs.take.which: gr.skip()}  # Gradio wants some answer
    with board.drawing:
        return _drawn_now(tabs, board, labs)


def _drawn_now(tabs: Tabs, board: Board, labs: Labs) -> Drawn:
    if board.tab == "why":
        return _named(tabs.why.outputs, tabs.why.drawn(board.traces, board.at))
    if board.tab == "across":
        outputs = [*tabs.across.figures.outputs, tabs.across.table]
        return _named(outputs, charts_tab.drawn(tabs.across, board.traces, board.at))
    if board.tab == "take":
        return {
            tabs.take.which: gr.Dropdown(choices=export_tab.names(board), value=export_tab.WHOLE),
            tabs.take.code: _program(board, export_tab.WHOLE, labs),
        }
    return {tabs.take.which: gr.skip()}


def _program(board: Board, which: str, labs: Labs) -> str:
    """The program, or why there is none: code is where one looks for it."""
    try:
        return export_tab.program(board, which, labs.lab(board.model))
    except PlaygroundError as error:
        return "\n".join(f"# {line}" for line in str(error).splitlines())


def _named(outputs: Sequence[Block], values: Sequence[Any]) -> Drawn:
    return dict(zip(outputs, values, strict=True))


def _board(runs: Runs, request: gr.Request) -> Board:
    board = runs.board(visitor(request))
    if board is None or not board.traces:
        raise PlaygroundError("there is nothing yet; run a comparison first")
    return board


def _connect_files(parts: Parts, labs: Labs, limits: Limits, runs: Runs) -> None:
    tabs = parts.tabs

    def saving(make: File) -> Callable[[gr.Request], Any]:
        @spoken
        def save(request: gr.Request) -> str:
            return browser.saves(*make(_board(runs, request).traces))

        return save

    @spoken
    def save_code(which: str, request: gr.Request) -> str:
        board = _board(runs, request)
        return browser.saves(export_tab.program(board, which, labs.lab(board.model)), "decode.py")

    def choose(which: str, request: gr.Request) -> Any:
        board = runs.board(visitor(request))
        return _program(board, which, labs) if board else gr.skip()

    @spoken
    def open_file(path: str, request: gr.Request) -> Any:
        if runs.going(visitor(request)):
            raise PlaygroundError("a run is going on; stop it before opening saved ones")
        return runs.show(visitor(request), export_tab.opened(path, limits))

    for button, make in (
        (tabs.take.traces, export_tab.trace_file),
        (tabs.take.report, export_tab.report_file),
        (tabs.across.save, export_tab.table_file),
    ):
        button.click(saving(make), None, parts.browser, **QUICK)
    tabs.take.save_code.click(save_code, tabs.take.which, parts.browser, **QUICK)
    tabs.take.which.input(choose, tabs.take.which, tabs.take.code, **QUICK)
    tabs.take.open.upload(open_file, tabs.take.open, parts.live, **QUICK)


def _connect_configurations(parts: Parts, labs: Labs) -> None:
    """What needs no card: a deck that has just changed holds all that its controls show."""
    form, section = parts.form, parts.tabs.take.configurations

    def lab_of(loaded: str) -> Playground | None:
        return labs.lab(loaded) if loaded else None

    def taken(values: Values) -> tuple[Deck, Mapping[str, Any]]:
        return values[parts.deck], shared(form, values)

    inputs: set[Block] = {parts.deck, parts.loaded, *form.shared.values()}
    changed = (parts.deck.change, parts.loaded.change)
    look = partial(_lab_of_values, parts, lab_of)
    configurations.connect_deck(section, inputs, taken, look, changed, **QUICK)
    configurations.connect_load(section, parts.deck, form.shared, parts.loaded, lab_of, **QUICK)


def _lab_of_values(
    parts: Parts, find: Callable[[str], Playground | None], values: Values
) -> Playground | None:
    return find(values[parts.loaded])
