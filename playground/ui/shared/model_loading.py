"""The models behind the page, loaded in the background so that the page is there before them.

Knows that loading takes time and may fail, and how many models stay. Refuses to know how a model is
loaded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
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


class Labs:
    """The labs visitors may choose from, by their models' names; the first one is the usual one.

    At most ``kept`` are held: a model nobody has used for longest makes room, and its memory is
    free once the runs on it have ended. With ``open`` a visitor may name any model.
    """

    def __init__(
        self,
        names: Sequence[str],
        load: Callable[[str], Playground],
        *,
        kept: int = 2,
        open: bool = False,
    ) -> None:
        self.names = tuple(names)
        self.open = open
        self._load = load
        self._kept = kept
        self._lock = threading.Lock()
        self._loaders: dict[str, Loader] = {}  # the one used last is last

    @property
    def usual(self) -> str:
        """The model the page begins with."""
        return self.names[0]

    def loader(self, name: str) -> Loader:
        """The loader of one model, begun; a `PlaygroundError` for a model that is not offered."""
        if name not in self.names and not self.open:
            raise PlaygroundError(
                f"the model {name!r} is not offered here: {', '.join(self.names)}"
            )
        with self._lock:
            loader = self._loaders.pop(name, None) or Loader(name, lambda: self._load(name))
            self._loaders[name] = loader
            # One that is still loading is kept: it would be loaded twice.
            done = [other for other in self._loaders if self._loaders[other].done]
            for other in done[: max(0, len(self._loaders) - self._kept)]:
                if other != name:
                    del self._loaders[other]
        loader.start()
        return loader

    def lab(self, name: str) -> Playground:
        """The lab of one model, waited for."""
        return self.loader(name).lab()
