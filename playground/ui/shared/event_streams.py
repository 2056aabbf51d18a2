"""Keeps events from being lost while Gradio closes a page's result stream.

A Gradio page reads the results of all its events from one stream. The server closes the stream when
no event is pending; the page opens a new one with its next event, if it knows by then that the last
one is closed. A busy page may learn that an event was accepted before it has read the closing
message. It then waits on the closed stream, takes its end for a lost connection, and loads itself
again. `EventStreams` lets the server wait instead: the answer to an event that arrives while a
page's stream is closing is sent when the page has dropped the stream.
"""

from __future__ import annotations

import asyncio
import json
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from playground.ui.shared.gradio_internals import RESULTS, SUBMIT
from playground.ui.shared.messages import FAILED
from playground.ui.shared.request_body import read_body

# Gradio's closing message.
_CLOSING = b'data: {"msg":"close_stream"'
# Gradio hides the text of an unexpected exception, which may name files, and gives no other.
_NO_WORDS = b'"output":{"error":null'
_WORDS = b'"output":{"error":' + json.dumps(FAILED).encode()
_LONGEST_WAIT = 10.0  # seconds; some proxies do not report that a page has dropped its stream


class EventStreams:
    """ASGI middleware that orders the end of a page's result stream and its next event."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._closing: dict[str, asyncio.Event] = {}  # by session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path = scope.get("path", "")
        if scope["type"] == "http" and path.endswith(RESULTS):
            await self._stream(scope, receive, send)
        elif scope["type"] == "http" and path.endswith(SUBMIT):
            await self._submit(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = parse_qs(scope["query_string"].decode())
        [session] = query.get("session_hash", [""])
        dropped = asyncio.Event()

        async def forward(message: Message) -> None:
            body = message.get("body", b"")
            if _NO_WORDS in body:
                message = {**message, "body": body.replace(_NO_WORDS, _WORDS)}
            if body.startswith(_CLOSING):
                self._closing[session] = dropped
            # The response ends when the page has dropped it: afterwards the server cannot see that.
            if self._closing.get(session) is dropped and not message.get("more_body", True):
                await _disconnected(receive)
            await send(message)

        try:
            await self._app(scope, receive, forward)
        finally:
            dropped.set()
            if self._closing.get(session) is dropped:
                del self._closing[session]

    async def _submit(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, again = await read_body(receive)
        session = _session(body)

        async def forward(message: Message) -> None:
            # Only now: the stream may have begun to close while the event was on its way.
            dropped = self._closing.get(session)
            if dropped is not None:
                await dropped.wait()
            await send(message)

        await self._app(scope, again, forward)


async def _disconnected(receive: Receive) -> None:
    try:
        async with asyncio.timeout(_LONGEST_WAIT):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        pass


def _session(body: bytes) -> str:
    try:
        return str(json.loads(body)["session_hash"])
    except (ValueError, KeyError, TypeError):
        return ""
