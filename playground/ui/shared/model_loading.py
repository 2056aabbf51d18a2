"""Models loaded in the background, so that the page is there before them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from engine.errors import PlaygroundError
from playground import Playground


class Loader:
    """Loads one model in a thread."""

    def __init__(self, name: str, load: Callable[[], Playground]) -> None:
        self.name = name
        self._load = load
        self._lock = threading.Lock()
        self._lab: Future[Playground] | None = None
        self._started = 0.0

    def start(self) -> None:
        """Start loading, or start again after a failure."""
        with self._lock:
            if self._lab is not None and not (self._lab.done() and self._lab.exception()):
                return
            self._lab = Future()
            self._started = time.monotonic()
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
        """Whether loading has ended, successfully or not."""
        return self._lab is not None and self._lab.done()

    @property
    def failed(self) -> bool:
        """Whether loading has failed."""
        return self._lab is not None and self._lab.done() and self._lab.exception() is not None

    @property
    def seconds(self) -> float:
        """The time since loading started."""
        return time.monotonic() - self._started

    def lab(self) -> Playground:
        """Wait for the model; raises what loading raised."""
        if self._lab is None:
            self.start()
        assert self._lab is not None
        return self._lab.result()


class Labs:
    """The models visitors can choose from, by name; the first is the default.

    At most ``max_loaded`` stay in memory: the least recently used one is dropped, and freed when
    its runs have ended. With ``allow_any``, a visitor may enter the name of any model.
    """

    def __init__(
        self,
        names: Sequence[str],
        load: Callable[[str], Playground],
        *,
        max_loaded: int = 2,
        allow_any: bool = False,
    ) -> None:
        self.names = tuple(names)
        self.allow_any = allow_any
        self._load = load
        self._max_loaded = max_loaded
        self._lock = threading.Lock()
        self._loaders: dict[str, Loader] = {}  # least recently used first

    @property
    def default(self) -> str:
        """The model the page starts with."""
        return self.names[0]

    @property
    def loaded(self) -> list[str]:
        """The models in memory."""
        loaders = list(self._loaders.items())
        return [name for name, loader in loaders if loader.done and not loader.failed]

    def state(self, name: str) -> str:
        """ "loading", "ready" or "failed". One that was dropped is ready: it is loaded again when
        it is needed."""
        loader = self._loaders.get(name)
        if loader is None or (loader.done and not loader.failed):
            return "ready"
        return "failed" if loader.failed else "loading"

    def loader(self, name: str) -> Loader:
        """The started loader of a model; a `PlaygroundError` if the model is not offered."""
        if name not in self.names and not self.allow_any:
            raise PlaygroundError(
                f"this server does not offer the model {name!r}; it offers {', '.join(self.names)}"
            )
        with self._lock:
            loader = self._loaders.pop(name, None) or Loader(name, lambda: self._load(name))
            self._loaders[name] = loader
            # Loaders that are still at work stay: dropped, they would load a model twice.
            done = [other for other in self._loaders if self._loaders[other].done]
            for other in done[: max(0, len(self._loaders) - self._max_loaded)]:
                if other != name:
                    del self._loaders[other]
        loader.start()
        return loader

    def lab(self, name: str) -> Playground:
        """Wait for a model."""
        return self.loader(name).lab()
