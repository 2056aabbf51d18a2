"""The routes between a page and its runs: a stream of the feed's lines, and commands.

The stream consists of server-sent events. The id of an event is the number of lines read after it,
so that a browser that reconnects continues where it was. The id of a feed cannot be guessed and is
all that a request needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from playground.ui.compare.runs import Runs

_KEEP_ALIVE = 15.0  # seconds; proxies close connections that are silent for longer
_RETRY = 1000  # ms after which a browser reconnects
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # not collected by a proxy


def routes(runs: Runs) -> list[Route]:
    """The server's routes to the runs of all visitors."""

    async def lines(request: Request) -> Response:
        read = request.headers.get("last-event-id") or request.query_params.get("from", "0")
        if not read.isdecimal():
            return PlainTextResponse("from must be a number of lines", status_code=400)
        events = _events(runs, request.path_params["feed"], int(read))
        return StreamingResponse(events, media_type="text/event-stream", headers=_HEADERS)

    async def command(request: Request) -> Response:
        runs.command(request.path_params["feed"], request.path_params["command"])
        return Response(status_code=204)

    return [
        Route("/runs/{feed}/lines", lines),
        Route("/runs/{feed}/{command}", command, methods=["POST"]),
    ]


async def _events(runs: Runs, feed: str, read: int) -> AsyncIterator[str]:
    yield f"retry: {_RETRY}\n\n"
    with runs.reading(feed) as found:
        if found is None:
            yield "event: end\ndata: gone\n\n"
            return
        async for lines in found.read(read, _KEEP_ALIVE):
            read += len(lines)
            data = "".join(f"data: {line}\n" for line in lines)
            yield f"id: {read}\n{data}\n" if lines else ": \n\n"
    yield "event: end\ndata: over\n\n"
