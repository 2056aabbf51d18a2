"""The model behind the page, loaded once in the background so that the page is there before it.

Knows that loading takes time and may fail. Refuses to know how a model is loaded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from engine.errors import PlaygroundError
from playground import Playground


class Loader:
    """A lab that may still be on its way."""

    def __init__(self, name: str, load: Callable[[], Playground]) -> None:
        self.name = name
        self._load = load
        self._lock = threading.Lock()
        self._lab: Future[Playground] | None = None
        self._began = 0.0

    def start(self) -> None:
        """Begin loading, or begin again where it failed."""
        with self._lock:
            if self._lab is not None and not (self._lab.done() and self._lab.exception()):
                return
            self._lab = Future()
            self._began = time.monotonic()
            threading.Thread(target=self._work, args=(self._lab,), daemon=True).start()

    def _work(self, lab: Future[Playground]) -> None:
        try:
            lab.set_result(self._load())
        except BaseException as error:
            lab.set_exception(error)
            if not isinstance(error, PlaygroundError):
                raise

    @property
    def done(self) -> bool:
        """Whether loading has ended, well or not."""
        return self._lab is not None and self._lab.done()

    @property
    def loaded(self) -> bool:
        """Whether the lab is there."""
        return self._lab is not None and self._lab.done() and not self._lab.exception()

    @property
    def seconds(self) -> float:
        """How long loading has gone on."""
        return time.monotonic() - self._began

    def lab(self) -> Playground:
        """The lab, waited for; raises what loading it raised."""
        if self._lab is None:
            self.start()
        assert self._lab is not None
        return self._lab.result()
