"""The columns whose mark can be looked for: their tokens, and what a detector must know of it.

Knows boards and the settings a run was asked with. Refuses to detect anything.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from transformers import WatermarkingConfig

from engine.errors import PlaygroundError
from engine.trace import Trace
from engine.watermark import config as marks
from playground import Playground
from playground.ui.compare.results import Board, Column
from playground.ui.shared.model_loading import Labs


class Marked(NamedTuple):
    """A column's text, the model that wrote it, and the options of `watermark.detect`."""

    lab: Playground
    ids: tuple[int, ...]
    detection: dict[str, Any]


def names(board: Board | None) -> list[tuple[str, str]]:
    """The columns that hold a text, by their place."""
    columns = board.columns if board else []
    return [(_name(column), str(column.key)) for column in columns if _text(column)]


def found(board: Board | None, which: str | None, labs: Labs) -> Marked:
    """A column, or a `PlaygroundError` where there is none or no mark in it."""
    if board is None or not which:
        raise PlaygroundError("there is no text yet; run a strategy with a watermark first")
    column = board.column(int(which) if which.isdigit() else which)
    if column.trace is None:
        raise PlaygroundError("this column is still being written; stop it first")
    told = detection(column.trace)
    if told is None:
        raise PlaygroundError(
            "this column was written without a watermark: there is no mark to attack; give a"
            " strategy a watermarking_config and run it"
        )
    lab = labs.lab(board.model)
    return Marked(lab, _ids(column, lab), {**told, "limits": lab.limits})


def detection(trace: Trace) -> dict[str, Any] | None:
    """The scheme and its fields as a detector takes them; None for a run without a watermark."""
    given = trace.settings.get("watermarking_config")
    if not given:
        return None
    config = marks.mark_to_write(given)
    scheme = config.seeding_scheme if isinstance(config, WatermarkingConfig) else "synthid"
    known = marks.settings_for(scheme)
    fields = {name: value for name, value in config.to_dict().items() if name in known}
    return {"scheme": scheme, **fields}


def _ids(column: Column, lab: Playground) -> tuple[int, ...]:
    """What stands in the column; without the token that ended it, which is nobody's to read."""
    ids = [*(inherited.token.id for inherited in column.before), *_text(column)]
    special = set(lab.model.tokenizer.all_special_ids)
    while ids and ids[-1] in special:
        ids.pop()
    return tuple(ids)


def _text(column: Column) -> tuple[int, ...]:
    trace = column.trace
    return trace.sequences[0].token_ids if trace and trace.sequences else ()


def _name(column: Column) -> str:
    assert column.trace is not None
    marked = "marked" if column.trace.settings.get("watermarking_config") else "no mark"
    return f"{column.key + 1}. {column.asked.heading[0]} ({marked})"
