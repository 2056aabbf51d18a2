"""Where a fork branches off: at a candidate, at text that was typed, or at an edited text.

The requests come from a browser and may be forged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import PlaygroundError
from playground import Playground
from playground.ui.shared.comparison import Column, Comparison, InheritedToken

Fork = tuple[Column, list[InheritedToken]]

# What the requests contain.
AT_TOKEN = ("column", "lead", "at", "token", "text")
AT_EDIT = ("column", "lead", "text")


def at_token(request: Mapping[str, Any], comparison: Comparison, lab: Playground) -> Fork:
    """Keep the first ``at`` tokens of a column, then continue with a ``token`` or a ``text``."""
    column = comparison.column(request.get("column"))
    at = _index(request.get("at"), "at")
    kept = column.tokens(_lead(request))[:at]
    if (text := request.get("text")) is not None:
        ids = lab.token_decoder.ids(_text(text))
        if not ids:
            raise PlaygroundError("enter a text to continue with")
    else:
        ids = [_index(request.get("token"), "token")]
    return column, [*kept, *_new_tokens(ids, kept, lab)]


def at_edit(request: Mapping[str, Any], comparison: Comparison, lab: Playground) -> Fork:
    """Continue from an edited ``text``; the tokens it has in common with the column are kept."""
    column = comparison.column(request.get("column"))
    text = _text(request.get("text"))
    kept: list[InheritedToken] = []
    length = 0
    for inherited in column.tokens(_lead(request)):
        if not text.startswith(inherited.text, length):
            break
        kept.append(inherited)
        length += len(inherited.text)
    while kept and not kept[-1].text:  # an end token, or part of a character
        kept.pop()
    ids = lab.token_decoder.ids(text[length:]) if text[length:] else []
    return column, [*kept, *_new_tokens(ids, kept, lab)]


def _new_tokens(
    ids: Sequence[int], kept: Sequence[InheritedToken], lab: Playground
) -> list[InheritedToken]:
    """Tokens with the text they add after those that are kept."""
    pending: tuple[int, ...] = ()
    for inherited in kept:
        pending = () if inherited.text else (*pending, inherited.token.id)
    new = []
    for id in ids:
        text, pending = lab.token_decoder.add(pending, id)
        new.append(InheritedToken(lab.token_decoder.token(id), text))
    return new


def _lead(request: Mapping[str, Any]) -> int | None:
    lead = request.get("lead")
    return None if lead is None else _index(lead, "lead")


def _index(value: Any, name: str) -> int:
    if type(value) is not int or value < 0:
        raise PlaygroundError(f"{name} is {value!r}; it must be a whole number, 0 or more")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise PlaygroundError(f"text is {value!r}; it must be a string")
    return value
