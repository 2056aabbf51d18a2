"""The addresses of the pages.

The server answers each with the one Gradio page, and the browser opens the tab that belongs to it.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send


class PageAddresses:
    """Middleware that answers the paths of pages as it answers ``/``."""

    def __init__(self, app: ASGIApp, paths: Collection[str]) -> None:
        self._app = app
        self._paths = frozenset(f"/{path}" for path in paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            root = scope.get("root_path", "").rstrip("/")
            if scope["path"].removeprefix(root) in self._paths:
                scope = {**scope, "path": f"{root}/", "raw_path": f"{root}/".encode()}
        await self._app(scope, receive, send)
