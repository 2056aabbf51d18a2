"""A Gradio app with one event.

Run as `python stream_server.py PORT WAIT`: a closing stream holds the answer to the next event for
WAIT seconds. An event with the header `hold` is on its way until `/release` is requested; `/held`
answers when it is.
"""

import asyncio
import sys
import time

import gradio as gr
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Route

from playground.ui.shared import event_streams

event_streams._LONGEST_WAIT = float(sys.argv[2])
held, released = asyncio.Event(), asyncio.Event()


class Hold:
    """Holds events between this server's middleware and Gradio."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if (b"hold", b"yes") in scope.get("headers", []):
            held.set()
            await released.wait()
        await self.app(scope, receive, send)


async def wait_for_held(request):
    await held.wait()
    return Response()


async def release(request):
    released.set()
    return Response()


with gr.Blocks() as page:
    button, ran = gr.Button(), gr.Number()
    button.click(time.time, None, ran)

page.launch(
    server_port=int(sys.argv[1]),
    quiet=True,
    app_kwargs={
        "routes": [Route("/held", wait_for_held), Route("/release", release)],
        "middleware": [Middleware(event_streams.EventStreams), Middleware(Hold)],
    },
)
