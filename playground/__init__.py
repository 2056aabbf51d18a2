"""The playground: Python API, command line, exports, the two labs and the page."""

from engine.errors import PlaygroundError
from engine.run_control import RunControl
from engine.settings import Limits
from engine.trace import Trace, Update
from playground.lab import Playground

__all__ = ["Limits", "Playground", "PlaygroundError", "RunControl", "Trace", "Update"]
