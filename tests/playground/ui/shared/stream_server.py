"""A Gradio app with one event, which returns the time at which it ran.

Run as `python stream_server.py PORT WAIT`: a closing stream holds the next event for WAIT seconds.
"""

import sys
import time

import gradio as gr
from starlette.middleware import Middleware

from playground.ui.shared import event_streams

event_streams._LONGEST_WAIT = float(sys.argv[2])

with gr.Blocks() as page:
    button, ran = gr.Button(), gr.Number()
    button.click(time.time, None, ran)

page.launch(
    server_port=int(sys.argv[1]),
    quiet=True,
    app_kwargs={"middleware": [Middleware(event_streams.EventStreams)]},
)
