"""A server with only the API on the embedded model; it logs its connections and open streams.

Run as `python api_server.py PORT`.
"""

import os
import sys

# As in app.py: MCP calls go through a client that would otherwise contact the Hub.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

import gradio as gr

from playground import Playground, PlaygroundError
from playground.ui.api import add_endpoints
from playground.ui.shared.model_loading import Labs
from playground.ui.shared.monitoring import Monitoring
from playground.ui.shared.run_queue import RunQueue


def log(line):
    # In one call: other threads write too.
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


class Watched(Playground):
    """Logs when a stream starts and when it is closed."""

    def stream(self, *words, **settings):
        return self._logged(super().stream(*words, **settings))

    def _logged(self, updates):
        log("stream: begun")
        try:
            yield from updates
        finally:
            log("stream: closed")


def load(name):
    if name == "broken":
        raise PlaygroundError("there is no <broken> model")
    return Watched(name)


def log_connection(event, words):
    if event == "socket.connect":
        address = words[1]
        log(f"connects to {address[0] if isinstance(address, tuple) else 'a file'}")
    if event == "socket.getaddrinfo":
        log(f"connects to {words[0]}")


def main():
    sys.addaudithook(log_connection)
    with gr.Blocks(title="Playground") as page:
        shown = gr.Markdown()
        page.load(lambda: "A page", None, shown, api_visibility="private")
        labs, queue = Labs(["smollm2", "broken"], load), RunQueue(8, waiting=8)
        add_endpoints(page, labs, queue, Monitoring(labs, queue))
    page.launch(server_port=int(sys.argv[1]), mcp_server=True, run_history=False)


if __name__ == "__main__":
    main()
