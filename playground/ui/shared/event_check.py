"""Checks the events that reach Gradio's queue, before Gradio reads them.

The page sends the values of a listener's inputs; requests written by hand may contain anything.
Gradio passes values on unchecked: a list in place of a text fails somewhere inside, with a
traceback in the log and no message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import NoneType
from typing import Any, NamedTuple

import gradio as gr
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.errors import PlaygroundError
from playground.ui.shared.gradio_internals import SUBMIT
from playground.ui.shared.request_body import read_body

_MOST_BYTES = 10_000_000
_MOST_CHARACTERS = 100  # of a session's name

# The types of JSON values by component type. States are kept by the server and not checked.
_TYPES: dict[str, tuple[type, ...]] = {
    "checkbox": (bool,),
    "checkboxgroup": (list,),
    "dropdown": (str, int, float, list, NoneType),
    "html": (str, NoneType),
    "number": (int, float, NoneType),
    "radio": (str, int, float, NoneType),
    "slider": (int, float),
    "textbox": (str, NoneType),
    "uploadbutton": (dict, list),
}


class _Listener(NamedTuple):
    inputs: Sequence[str]  # the types of the components whose values it gets
    reads_event: bool  # whether it reads what the page sends with the event


class EventCheck:
    """ASGI middleware that answers invalid events in words."""

    def __init__(self, app: ASGIApp, page: gr.Blocks) -> None:
        self._app = app
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not scope["path"].endswith(SUBMIT):
            await self._app(scope, receive, send)
            return
        body, again = await read_body(receive, _MOST_BYTES)
        try:
            self._check(body)
        except PlaygroundError as error:
            await JSONResponse({"detail": str(error)}, status_code=422)(scope, receive, send)
        else:
            await self._app(scope, again, send)

    def _check(self, body: bytes) -> None:
        event = _parse(body)
        session = event.get("session_hash")
        if not isinstance(session, str) or not 0 < len(session) <= _MOST_CHARACTERS:
            raise PlaygroundError("session_hash must be a short text")
        number, trigger = event.get("fn_index"), event.get("trigger_id")
        listener = self._listeners.get(number) if type(number) is int else None
        if listener is None:
            raise PlaygroundError("fn_index names no listener of this page; reload it")
        if trigger is not None and type(trigger) is not int:
            raise PlaygroundError("trigger_id must be a whole number")
        if listener.reads_event and not isinstance(event.get("event_data"), dict):
            raise PlaygroundError("event_data must be an object")
        _check_values(event.get("data"), listener.inputs)

    @cached_property
    def _listeners(self) -> Mapping[int, _Listener]:
        config: Any = self._page.get_config_file()
        kinds = {component["id"]: component["type"] for component in config["components"]}
        return {
            listener["id"]: _Listener(
                [kinds[id] for id in listener["inputs"]], listener["collects_event_data"]
            )
            for listener in config["dependencies"]
            if listener["backend_fn"]
        }


def _parse(body: bytes) -> dict[str, Any]:
    if len(body) > _MOST_BYTES:
        raise PlaygroundError(f"the request has more than {_MOST_BYTES:,} bytes")
    try:
        event = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise PlaygroundError("the request is not valid JSON") from error
    if not isinstance(event, dict):
        raise PlaygroundError("the request must be an object")
    return event


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _check_values(values: Any, kinds: Sequence[str]) -> None:
    if not isinstance(values, list) or len(values) != len(kinds):
        raise PlaygroundError(f"data must be a list of {len(kinds)} values")
    for value, kind in zip(values, kinds, strict=True):
        allowed = _TYPES.get(kind)
        if allowed is None:
            continue
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise PlaygroundError(f"a {kind} has no value or one of a wrong type")
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise PlaygroundError("a text contains half of a character (a lone surrogate)")
        if kind == "uploadbutton":
            _check_files(value if isinstance(value, list) else [value])


def _check_files(files: list[Any]) -> None:
    for file in files:
        path = file.get("path") if isinstance(file, dict) else None
        if not isinstance(path, str) or file.get("meta") != {"_type": "gradio.FileData"}:
            raise PlaygroundError("an uploaded file has no path")
