"""A server of nothing but the API, that writes down who it asks and which streams are open.

Run by test_api as `python api_server.py PORT`, with the embedded model behind it.
"""

import os
import sys

# As app.py has it: MCP calls go through a client that would else ask the Hub who is calling.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

import gradio as gr

from playground import Playground, PlaygroundError
from playground.ui.api import add_endpoints
from playground.ui.shared.model_loading import Labs


def say(line):
    # In one go: other threads say something too.
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


class Watched(Playground):
    """Says when a stream begins and when it is closed."""

    def stream(self, *words, **settings):
        news = super().stream(*words, **settings)
        return self._told(news)

    def _told(self, news):
        say("stream: begun")
        try:
            yield from news
        finally:
            say("stream: closed")


def load(name):
    if name == "broken":
        raise PlaygroundError("there is no <broken> model")
    return Watched(name)


def write_down(event, words):
    if event == "socket.connect":
        address = words[1]
        say(f"asked: {address[0] if isinstance(address, tuple) else 'a file'}")
    if event == "socket.getaddrinfo":
        say(f"asked: {words[0]}")


def main():
    sys.addaudithook(write_down)
    with gr.Blocks(title="Playground") as page:
        shown = gr.Markdown()
        page.load(lambda: "A page", None, shown, api_visibility="private")
        add_endpoints(page, Labs(["smollm2", "broken"], load))
    page.launch(server_port=int(sys.argv[1]), mcp_server=True, run_history=False)


if __name__ == "__main__":
    main()
