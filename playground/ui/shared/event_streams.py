"""Keeps events from being lost between Gradio and a page's result stream.

A Gradio page reads the results of all its events from one stream. The server closes the stream when
no event is pending; the page opens a new one with its next event, if it knows by then that the last
one is closed. On a busy machine two things go wrong:

* A page may learn that an event was accepted before it has read the closing message. It then waits
  on the closed stream, takes its end for a lost connection, and loads itself again. So the answer
  to an event that arrives while a stream is closing is sent when the page has dropped the stream.
* A page may open a second stream while the first one is open. Gradio would divide the messages
  between them, and the page no longer reads the first one. So a new stream takes over: it gets all
  further messages, and the one before ends.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
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


class _Connection:
    """One request of a page for its results."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self.send = send
        self.over = asyncio.Event()  # dropped by the page, or ended

    async def wait(self) -> None:
        """Wait until it is over."""
        dropped = asyncio.ensure_future(self._dropped())
        over = asyncio.ensure_future(self.over.wait())
        await asyncio.wait([dropped, over], return_when=asyncio.FIRST_COMPLETED)
        dropped.cancel()
        over.cancel()
        self.over.set()

    async def _dropped(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def end(self) -> None:
        """End the response."""
        if not self.over.is_set():
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})
            self.over.set()


class _Stream:
    """The messages for one page, on the connection that the page opened last."""

    def __init__(self, connection: _Connection) -> None:
        self.connection = connection
        self.closing = False  # the closing message was sent
        self.dropped = asyncio.Event()  # the page has dropped it
        self._start: Message | None = None

    async def take_over(self, connection: _Connection) -> None:
        """Send all further messages to another connection."""
        before, self.connection = self.connection, connection
        if self._start is not None:
            await connection.send(self._start)
        await before.end()

    async def receive(self) -> Message:
        """What Gradio receives: nothing until the page has dropped the stream."""
        await self.dropped.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send what Gradio sends."""
        body = message.get("body", b"")
        if message["type"] == "http.response.start":
            self._start = message
        elif _NO_WORDS in body:
            message = {**message, "body": body.replace(_NO_WORDS, _WORDS)}
        self.closing = self.closing or body.startswith(_CLOSING)
        # The response ends when the page has dropped it: afterwards the server cannot see that.
        if self.closing and not message.get("more_body", True):
            with suppress(TimeoutError):
                await asyncio.wait_for(self.dropped.wait(), _LONGEST_WAIT)
        if not self.connection.over.is_set():
            await self.connection.send(message)


class EventStreams:
    """ASGI middleware that orders the result streams of a page and its events."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._streams: dict[str, _Stream] = {}  # by session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path = scope.get("path", "")
        if scope["type"] == "http" and path.endswith(RESULTS):
            await self._results(scope, _Connection(receive, send))
        elif scope["type"] == "http" and path.endswith(SUBMIT):
            await self._submit(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _results(self, scope: Scope, connection: _Connection) -> None:
        query = parse_qs(scope["query_string"].decode())
        [session] = query.get("session_hash", [""])
        stream = self._streams.get(session)
        if stream is None or stream.closing:
            stream = self._streams[session] = _Stream(connection)
            served = asyncio.create_task(self._serve(scope, session, stream))
        else:
            served = None
            await stream.take_over(connection)
        try:
            await connection.wait()
        finally:
            if stream.connection is connection:
                stream.dropped.set()
        if served is not None:
            await served

    async def _serve(self, scope: Scope, session: str, stream: _Stream) -> None:
        """Let Gradio write a stream."""
        try:
            await self._app(scope, stream.receive, stream.send)
        finally:
            stream.dropped.set()
            stream.connection.over.set()
            if self._streams.get(session) is stream:
                del self._streams[session]

    async def _submit(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, again = await read_body(receive)
        session = _session(body)

        async def forward(message: Message) -> None:
            # Only now: the stream may have begun to close while the event was on its way.
            stream = self._streams.get(session)
            if stream is not None and stream.closing:
                await stream.dropped.wait()
            await send(message)

        await self._app(scope, again, forward)


def _session(body: bytes) -> str:
    try:
        return str(json.loads(body)["session_hash"])
    except (ValueError, KeyError, TypeError):
        return ""
