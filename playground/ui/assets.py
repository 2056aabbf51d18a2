"""The page's scripts, styles and templates, and how the browser gets them.

Scripts are ES modules: the browser imports them from a route of the server, under a path that holds
a hash of their contents, so that no browser mixes two versions. Paths are relative to the page,
which therefore works behind a proxy.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

_ROOT = Path(__file__).parent
_MODULES = {
    path.relative_to(_ROOT).as_posix(): path.read_bytes() for path in sorted(_ROOT.rglob("*.js"))
}
_VERSION = hashlib.sha256(b"\0".join(_MODULES.values())).hexdigest()[:16]
_FOREVER = "public, max-age=31536000, immutable"
_FAILED = "This part of the page could not be loaded. Reload the page."


def path(name: str) -> Path:
    """The path of a file below ``playground/ui``."""
    return _ROOT / name


def text(*names: str) -> str:
    """The contents of files below ``playground/ui``, one after the other."""
    return "\n".join(path(name).read_text(encoding="utf-8") for name in names)


def mount(module: str, *events: str) -> str:
    """The ``js_on_load`` of a component: imports a module and calls its ``mount``.

    ``events`` are the events that the module triggers: Gradio offers a listener for every event
    that ``js_on_load`` names in quotes.
    """
    names = f"/* triggers {json.dumps(events)[1:-1]} */ " if events else ""
    failed = f"element.textContent = {json.dumps(_FAILED)}; throw error;"
    return (
        f"{names}{_import(module)}.then(({{ mount }}) => mount({{ element, trigger, props, "
        f"watch }})).catch((error) => {{ {failed} }});"
    )


def call(module: str, function: str, *arguments: Any) -> str:
    """A script that calls a module's function: a ``js_on_load`` without a view."""
    inside = ", ".join(map(json.dumps, arguments))
    return f"{_import(module)}.then((module) => module.{function}({inside}));"


def listener(module: str, function: str, *arguments: Any) -> str:
    """The ``js`` of an event listener: calls a module's function with the given arguments and the
    event's inputs."""
    inside = ", ".join([*map(json.dumps, arguments), "...inputs"])
    return f"async (...inputs) => (await {_import(module)}).{function}({inside})"


def preloads() -> str:
    """Links for the page's head: the browser fetches all modules before the page needs them."""
    return "".join(f'<link rel="modulepreload" href="{_address(name)}">' for name in _MODULES)


def route() -> Route:
    """The server's route to the modules."""
    return Route("/scripts/{version}/{name:path}", _serve)


def _serve(request: Request) -> Response:
    content = _MODULES.get(request.path_params["name"])
    if content is None:
        return PlainTextResponse("No such script.", status_code=404)
    # A page of another version gets what there is, but does not keep it.
    current = request.path_params["version"] == _VERSION
    headers = {"Cache-Control": _FOREVER if current else "no-store"}
    return Response(content, media_type="text/javascript", headers=headers)


def _import(module: str) -> str:
    if module not in _MODULES:
        raise ValueError(f"there is no script {module}")
    return f"import(new URL({json.dumps(_address(module))}, document.baseURI))"


def _address(module: str) -> str:
    return f"scripts/{_VERSION}/{module}"
