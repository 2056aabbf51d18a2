"""Where a fork leaves: a candidate, words of a person's own, or a text that was edited.

Knows what stands in a column and how words become tokens. Refuses to run anything. What it is
given comes from a browser and may be anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import PlaygroundError
from playground import Playground
from playground.ui.compare.results import Board, Column, Inherited

Place = tuple[Column, list[Inherited]]


def at_token(wish: Mapping[str, Any], board: Board, lab: Playground) -> Place:
    """Keep the first ``at`` tokens of a column's text, then a ``token`` or some ``text``."""
    column = board.column(wish.get("column"))
    at = _whole(wish.get("at"), "at")
    kept = column.written(_step(wish))[:at]
    if (text := wish.get("text")) is not None:
        given = lab.speller.ids(_words(text))
        if not given:
            raise PlaygroundError("there is nothing to go on with; type a word")
    else:
        given = [_whole(wish.get("token"), "token")]
    return column, [*kept, *_given(given, kept, lab)]


def at_edit(wish: Mapping[str, Any], board: Board, lab: Playground) -> Place:
    """Go on from a whole ``text``: the tokens it shares with the column's stay what they are."""
    column = board.column(wish.get("column"))
    text = _words(wish.get("text"))
    kept: list[Inherited] = []
    length = 0
    for inherited in column.written(_step(wish)):
        if not text.startswith(inherited.text, length):
            break
        kept.append(inherited)
        length += len(inherited.text)
    while kept and not kept[-1].text:  # an end token, or a character that was never completed
        kept.pop()
    given = lab.speller.ids(text[length:]) if text[length:] else []
    return column, [*kept, *_given(given, kept, lab)]


def _given(ids: Sequence[int], kept: Sequence[Inherited], lab: Playground) -> list[Inherited]:
    """Tokens as they read behind those that are kept."""
    pending: tuple[int, ...] = ()
    for inherited in kept:
        pending = () if inherited.text else (*pending, inherited.token.id)
    given = []
    for id in ids:
        text, pending = lab.speller.add(pending, id)
        given.append(Inherited(lab.speller.token(id), text))
    return given


def _step(wish: Mapping[str, Any]) -> int | None:
    lead = wish.get("lead")
    return None if lead is None else _whole(lead, "lead")


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or value < 0:
        raise PlaygroundError(f"{name} is {value!r}; it must be a whole number from 0 on")
    return value


def _words(value: Any) -> str:
    if not isinstance(value, str):
        raise PlaygroundError(f"a text is expected, not {value!r}")
    return value
