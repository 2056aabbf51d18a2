"""The texts that a detector examines: of a column, pasted, or from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformers import WatermarkingConfig

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.trace import Trace
from engine.watermark import config as marks
from playground import Playground
from playground.ui.shared.comparison import Column, Comparison
from playground.ui.shared.model_loading import Labs

PASTED, COLUMN, FILE = SOURCES = ("pasted text", "a column", "a file")

EMPTY = {
    PASTED: (
        "Paste a text, without the prompt it was generated from. The verdict appears here, for the "
        "scheme and the key above."
    ),
    COLUMN: (
        "There is no text yet. Run a comparison with a watermarking_config (two examples have "
        "one), paste a text, or open a file."
    ),
    FILE: "Open a text file (UTF-8).",
}


class Text(NamedTuple):
    """A text, or the tokens of a run, and its name."""

    text: str | Sequence[int]
    name: str
    column: Column | None = None


class WatermarkedText(NamedTuple):
    """The tokens of a column, its model, and the arguments of `detect` for its watermark."""

    lab: Playground
    ids: tuple[int, ...]
    detection: dict[str, Any]


def columns(comparison: Comparison | None) -> list[tuple[str, str]]:
    """The choices of a menu: the columns that have a text, by key."""
    return [(column.title, str(column.key)) for column in _with_text(comparison)]


def columns_with_watermark(comparison: Comparison | None) -> list[tuple[str, str, bool]]:
    """The same, and whether each column was generated with a watermark."""
    found = []
    for column in _with_text(comparison):
        marked = _detection(column.trace) is not None
        note = "watermarked" if marked else "no watermark"
        found.append((f"{column.title} ({note})", str(column.key), marked))
    return found


def _with_text(comparison: Comparison | None) -> list[Column]:
    all_columns = comparison.columns if comparison else []
    return [column for column in all_columns if column.trace and column.trace.sequences]


def chosen(comparison: Comparison | None, key: str | None) -> Column | None:
    """The chosen column, if it exists and has a text."""
    if comparison is None or key not in {each for _, each in columns(comparison)}:
        return None
    return comparison.column(int(key))


def of_column(comparison: Comparison, column: Column, model: str) -> Text:
    """A column's best text: its tokens if ``model`` generated them, else its characters."""
    assert column.trace is not None
    best = column.trace.sequences[0]
    if model != comparison.model:
        prefix = "".join(inherited.text for inherited in column.prefix)
        return Text(prefix + best.text, column.title, column)
    return Text([*column.prefix_ids, *best.token_ids], column.title, column)


def of_file(path: str, limits: Limits) -> Text:
    """The text of an uploaded file."""
    file = Path(path)
    try:
        if (size := file.stat().st_size) > limits.upload_bytes:
            raise PlaygroundError(
                f"{file.name} has {size:,} bytes; at most {limits.upload_bytes:,} are allowed"
            )
        return Text(file.read_text(encoding="utf-8"), file.name)
    except UnicodeDecodeError as error:
        raise PlaygroundError(f"{file.name} is not a UTF-8 text file") from error
    except OSError as error:
        raise PlaygroundError(f"{file.name} is no longer on the server; open it again") from error


def watermarked(comparison: Comparison | None, key: str | None, labs: Labs) -> WatermarkedText:
    """A column's text, or a `PlaygroundError` if it has none or no watermark."""
    if comparison is None or not key:
        raise PlaygroundError("there is no text yet; run a strategy with a watermark first")
    column = comparison.column(int(key) if key.isdigit() else key)
    if column.trace is None:
        raise PlaygroundError("this column is still running; stop it first")
    detection = _detection(column.trace)
    if detection is None:
        raise PlaygroundError(
            "this column has no watermark to attack; set a watermarking_config and run it again"
        )
    lab = labs.lab(comparison.model)
    return WatermarkedText(lab, _ids(column, lab), {**detection, "limits": lab.limits})


def _detection(trace: Trace | None) -> dict[str, Any] | None:
    """The arguments of `detect` for a trace's watermark; None if it has none."""
    settings = trace.settings.get("watermarking_config") if trace else None
    if not settings:
        return None
    config = marks.parse_watermark(settings)
    scheme = config.seeding_scheme if isinstance(config, WatermarkingConfig) else "synthid"
    known = marks.settings_for(scheme)
    fields = {name: value for name, value in config.to_dict().items() if name in known}
    return {"scheme": scheme, **fields}


def _ids(column: Column, lab: Playground) -> tuple[int, ...]:
    """A column's tokens without special tokens at the end."""
    assert column.trace is not None
    ids = [*column.prefix_ids, *column.trace.sequences[0].token_ids]
    special = set(lab.model.tokenizer.all_special_ids)
    while ids and ids[-1] in special:
        ids.pop()
    return tuple(ids)
