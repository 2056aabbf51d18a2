"""Which text a detector looks at: a column's, a pasted one, or a file's.

Knows boards, files and their limits. Refuses to know detectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engine.errors import PlaygroundError
from engine.settings import Limits
from playground.ui.compare.results import Board, Column

COLUMN, PASTED, FILE = SOURCES = ("a column", "pasted text", "a file")

EMPTY = {
    COLUMN: (
        "Nothing has been written yet. Run a comparison in which a card has a watermarking_config "
        "(the examples about watermarks do), paste a text, or open a file."
    ),
    PASTED: "Paste a text, without the prompt it was written from.",
    FILE: "Open a text file. It is read as UTF-8.",
}


class Text(NamedTuple):
    """A text, or the tokens a run wrote it in, and what to call it."""

    text: str | Sequence[int]
    name: str
    column: Column | None = None


def columns(board: Board | None) -> list[tuple[str, str]]:
    """The columns that have a text, by their place."""
    if board is None:
        return []
    return [
        (f"{column.key + 1}. {column.asked.heading[0]}", str(column.key))
        for column in board.columns
        if column.trace is not None and column.trace.sequences
    ]


def chosen(board: Board | None, key: str | None) -> Column | None:
    """The column that was chosen, where it is still there and has a text."""
    if board is None or key not in {place for _, place in columns(board)}:
        return None
    return board.column(int(key))


def of_column(board: Board, column: Column, model: str) -> Text:
    """A column's best text from its first token to its last, inherited ones included: the tokens
    themselves for the model that wrote them, characters for any other."""
    assert column.trace is not None
    best = column.trace.sequences[0]
    name = f"{column.key + 1}. {column.asked.heading[0]}"
    if model != board.model:
        return Text("".join(each.text for each in column.before) + best.text, name, column)
    before = [inherited.token.id for inherited in column.before]
    return Text([*before, *best.token_ids], name, column)


def of_file(path: str, limits: Limits) -> Text:
    """The text of an uploaded file."""
    file = Path(path)
    try:
        if (size := file.stat().st_size) > limits.upload_bytes:
            raise PlaygroundError(
                f"{file.name} has {size:,} bytes; at most {limits.upload_bytes:,} are read"
            )
        return Text(file.read_text(encoding="utf-8"), file.name)
    except UnicodeDecodeError as error:
        raise PlaygroundError(f"{file.name} is no text: it must be UTF-8") from error
    except OSError as error:
        raise PlaygroundError(f"{file.name} is no longer here; open it again") from error
