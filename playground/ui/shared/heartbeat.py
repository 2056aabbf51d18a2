"""Answers Gradio's heartbeat at once.

A Gradio page with state holds one connection for as long as it is open, so that the server notices
when it is closed. Over HTTP/1.1 a browser opens at most six connections to a server: six tabs would
use them all, and every further request would wait. This page notices by its own stream of a run
(`compare.stream`), which exists only while the run does, and Gradio limits the number of sessions
whose state it keeps.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from playground.ui.shared.gradio_internals import HEARTBEAT


class NoHeartbeat:
    """Middleware that answers heartbeats without content, after which a page sends no others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http" and HEARTBEAT in scope["path"]:
            await Response(status_code=204)(scope, receive, send)
        else:
            await self._app(scope, receive, send)
