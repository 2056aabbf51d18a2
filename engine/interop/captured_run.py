"""A run that somebody else's code decodes: its call, watched, and what was seen of it told.

Knows the call that transformers prepared and the run's trace. Refuses to know what the code is
after, and to tell of it what was not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

from engine.interop.capture import Sighting, Witness
from engine.models.model import Model
from engine.trace.distributions import green, observe
from engine.trace.recorder import Recorder
from engine.trace.token_text import Speller
from engine.trie.backend import Reading


class Foreign:
    """One such run."""

    def __init__(
        self, model: Model, again: Callable[..., Any] | None, recorder: Recorder, speller: Speller
    ) -> None:
        assert again is not None, "a run of its own has a call of its own"
        self._model = model
        self._again = again
        self._recorder = recorder
        self._speller = speller

    def watch(self, decode: Callable[..., Any], arguments: Mapping[str, Any]) -> Witness:
        """Decoding code on the run's call, as transformers prepares it for a ``custom_generate``
        callable; not started yet."""

        def call(witness: Witness) -> Any:
            @wraps(decode)
            def watched(*args: Any, logits_processor: Any, **kwargs: Any) -> Any:
                return decode(*args, logits_processor=witness.watched(logits_processor), **kwargs)

            return self._again(self._model.generate, custom_generate=watched, **arguments)

        return Witness(self._model.module, call)

    def watch_raw(self, generate: Callable[..., Any], arguments: Mapping[str, Any]) -> Witness:
        """The same for code that wants what `generate` itself was given."""

        def call(witness: Witness) -> Any:
            on_model = partial(generate, model=self._model.module)
            return self._again(on_model, further=[witness.eye()], **arguments)

        return Witness(self._model.module, call)

    def tell(self, parent: int | None, token: int, sighting: Sighting | None) -> int:
        """Tell the trace of a token taken elsewhere, as far as it was seen; gives its step."""
        if sighting is None:
            entry = self._recorder.enter(parent, token, "chosen", {"captured": "nothing"})
            self._recorder.write(entry)
            return entry.id
        logits, stages, captured = sighting.read()
        [seen] = observe(Reading.of(logits), stages, [(0, token)], self._speller)
        [mark] = green(logits, sighting.stages, [(0, token)])
        entry = self._recorder.enter(parent, token, "chosen", {"captured": captured})
        self._recorder.write(entry, lambda: seen, mark)
        return entry.id
