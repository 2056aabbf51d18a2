"""The HTTP API and the MCP tools: compare, stream and detect.

Annotations are evaluated here, unlike elsewhere, because Gradio derives the API from them.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import gradio as gr
from gradio.events import api

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.trace import Step, Trace, Update
from engine.watermark import config as marks
from engine.watermark import detector
from playground import Playground, metrics
from playground.ui.shared.gradio_internals import describe_arguments, summary
from playground.ui.shared.model_loading import Labs
from playground.ui.shared.monitoring import Monitoring, Watch
from playground.ui.shared.run_queue import RunQueue
from strategies import find, registered

REFRESH = 0.1  # seconds between two messages of a stream, at least

Answer = list[dict[str, Any]]


def add_endpoints(page: gr.Blocks, labs: Labs, queue: RunQueue, monitoring: Monitoring) -> None:
    """Add the three functions to the API and the MCP tools of a page."""
    endpoints = _Endpoints(labs, queue, monitoring)
    known = ", ".join(id for id, found in registered().items() if not found.runs_user_code)
    models = f"Models: {', '.join(labs.names)}."
    _add(page, endpoints.compare, f"Strategies: {known}. {models}")
    _add(page, endpoints.stream, f"Strategies: {known}. {models}")
    _add(page, endpoints.detect, models)


def _add(page: gr.Blocks, function: Callable[..., Any], names: str) -> None:
    endpoint = api(
        function,
        api_name=function.__name__,
        api_description=f"{summary(function)} {names}",
        concurrency_limit="default",
        concurrency_id="api",
    )
    describe_arguments(page, endpoint, function)


class _Endpoints:
    """The three functions. Their docstrings are what callers read; Gradio takes one line for each
    argument."""

    def __init__(self, labs: Labs, queue: RunQueue, monitoring: Monitoring) -> None:
        self._labs = labs
        self._queue = queue  # shared with the runs on the page
        self._monitoring = monitoring

    def compare(
        self,
        prompt: str,
        runs: list[str | list[Any]],
        settings: dict[str, Any] | None = None,
        chat: bool = False,
        model: str = "",
        full: bool = False,
        request: gr.Request | None = None,
    ) -> Answer:
        """Run decoding strategies side by side on one prompt. Returns for each run its text, token
        ids, score, stop reason, and metrics such as perplexity, repetition and forward passes.

        Args:
            prompt: The text to continue; with chat, the message to answer.
            runs: Strategies, for example "greedy" or ["beam_search", {"num_beams": 5}].
            settings: Settings of all runs, as in GenerationConfig, e.g. {"max_new_tokens": 48}.
            chat: Whether to apply the model's chat template to the prompt.
            model: The model to run; the first one by default.
            full: Return whole traces with all steps and candidates. Large.
        """
        with self._turn(model, request) as watch:
            lab = self._lab(model)
            ended = {}
            for update in lab.stream(_prompt(prompt, chat), _choices(runs, settings)):
                watch.add([update])
                if update.trace:
                    ended[update.run] = update.trace
            traces = [ended[run] for run in sorted(ended)]
            data = [json.loads(trace.to_json()) if full else _summary(trace) for trace in traces]
            answer: Answer = _encoded(data, request)
            return answer

    def stream(
        self,
        prompt: str,
        runs: list[str | list[Any]],
        settings: dict[str, Any] | None = None,
        chat: bool = False,
        model: str = "",
        request: gr.Request | None = None,
    ) -> Iterator[Answer]:
        """Run decoding strategies side by side and stream their texts. Returns the current text of
        all runs several times a second; beams may revise theirs. Cancelling stops the runs.

        Args:
            prompt: The text to continue; with chat, the message to answer.
            runs: Strategies, for example "greedy" or ["beam_search", {"num_beams": 5}].
            settings: Settings of all runs, as in GenerationConfig, e.g. {"max_new_tokens": 48}.
            chat: Whether to apply the model's chat template to the prompt.
            model: The model to run; the first one by default.
        """
        with self._turn(model, request) as watch:
            lab = self._lab(model)
            choices = _choices(runs, settings)
            texts = [_StreamedRun() for _ in choices]
            updates: Any = lab.stream(_prompt(prompt, chat), choices)
            due = 0.0
            with closing(updates):
                for update in updates:
                    watch.add([update])
                    texts[update.run].add(update)
                    if all(text.done for text in texts) or time.monotonic() >= due:
                        data = [{"run": run, **text.to_dict()} for run, text in enumerate(texts)]
                        yield _encoded(data, request)
                        due = time.monotonic() + REFRESH

    def detect(
        self,
        text: str,
        scheme: str = "lefthash",
        z_threshold: float = 3.0,
        ignore_repeated: bool = False,
        config: dict[str, Any] | None = None,
        model: str = "",
        request: gr.Request | None = None,
    ) -> dict[str, Any]:
        """Detect a watermark in a text. Returns how many tokens were scored, how many of them are
        green, the z-score, its p-value and the exact p-value, whether the text counts as marked or
        is too short to say, and the verdict on each token.

        Args:
            text: The text, without the prompt it was generated from.
            scheme: The watermark: "lefthash" or "selfhash" (green lists), or "synthid".
            z_threshold: The z-score above which a text counts as marked.
            ignore_repeated: Count each n-gram only once.
            config: The watermark's settings: greenlist_ratio, hashing_key …, or keys …
            model: The model whose tokenizer is used; the first one by default.
        """
        with _errors():
            lab = self._lab(model)
            _check_text(text, lab.limits)
            _expect("z_threshold", z_threshold, int | float, "a number")
            _expect("ignore_repeated", ignore_repeated, bool, "true or false")
            fields = _named("config", config)
            scheme = fields.pop("seeding_scheme", None) or scheme or detector.SCHEMES[0]
            marks.build_config(scheme, fields, lab.limits)  # before they become keyword arguments
            fields |= {"z_threshold": z_threshold, "ignore_repeated": ignore_repeated}
            found = detector.detect(lab.model, text, scheme=scheme, limits=lab.limits, **fields)
            if not found.tokens_scored:
                raise PlaygroundError(found.reason)
            answer: dict[str, Any] = _encoded(found.to_dict(), request)
            return answer

    @contextmanager
    def _turn(self, model: str, request: gr.Request | None) -> Iterator[Watch]:
        """A turn in the queue."""
        watch, failed = self._monitoring.watch(model or self._labs.default), False
        try:
            with _errors(), self._queue.turn(_caller(request)):
                watch.started()
                yield watch
        except Exception:
            failed = True
            raise
        finally:
            watch.ended(failed=failed)

    def _lab(self, model: str) -> Playground:
        _expect("model", model, str, "a string")
        return self._labs.lab(model or self._labs.default)


def _caller(request: gr.Request | None) -> str:
    """Whose call it is: a session's, or that of an address without one."""
    if request is None:
        return ""
    return str(request.session_hash or (request.client and request.client.host))


@contextmanager
def _errors() -> Iterator[None]:
    """Pass a `PlaygroundError` on to the caller. No page shows it, so it is not escaped."""
    try:
        yield
    except PlaygroundError as error:
        raise gr.Error(str(error), print_exception=False) from error


def _encoded(answer: Any, request: gr.Request | None) -> Any:
    """The answer; for MCP as JSON text, because Gradio would use Python's notation."""
    mcp = request is not None and request.headers.get("x-gradio-user") == "mcp"
    return json.dumps(answer, ensure_ascii=False) if mcp else answer


def _expect(name: str, value: Any, kind: Any, description: str) -> None:
    # In Python, True is a number.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise PlaygroundError(f"{name} is {value!r}; it must be {description}")


def _named(name: str, values: Any) -> dict[str, Any]:
    values = {} if values is None else values
    _expect(name, values, dict, "an object")
    return dict(values)


def _check_text(text: Any, limits: Limits) -> None:
    _expect("text", text, str, "a string")
    if len(text) > (most := limits.prompt_characters):
        raise PlaygroundError(f"the text has {len(text)} characters; at most {most} are allowed")


def _prompt(prompt: Any, chat: Any) -> str | list[dict[str, str]]:
    _expect("prompt", prompt, str, "a string")
    _expect("chat", chat, bool, "true or false")
    return [{"role": "user", "content": prompt}] if chat else str(prompt)


def _choices(runs: Any, settings: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Each strategy with all its settings; as keyword arguments they could clash with others."""
    shared = _named("settings", settings)
    _expect("runs", runs, list, "a list of strategies")
    return [_choice(run, shared) for run in runs]


def _choice(run: Any, shared: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    match run:
        case str(id) | [str(id)]:
            given = dict(shared)
        case [str(id), dict(own)]:
            given = {**shared, **own}
        case _:
            raise PlaygroundError(
                f"a run must be a strategy or [strategy, settings], not {json.dumps(run)}"
            )
    known = find(id).settings
    for name in given:
        if name in known and known[name].python_only:
            raise PlaygroundError(f"{name} takes a Python object and is not available in the API")
    return id, given


def _summary(trace: Trace) -> dict[str, Any]:
    """A trace without its steps."""
    texts: Answer = [
        {"text": found.text, "token_ids": list(found.token_ids), "score": found.score}
        for found in trace.sequences
    ]
    best, *others = texts or [{"text": "", "token_ids": [], "score": None}]
    return {
        "strategy": trace.strategy,
        "settings": trace.settings,
        "seed": trace.seed,
        "model": trace.model,
        **best,
        "others": others,  # further sequences, best first
        "stop": vars(trace.stop),
        "error": trace.error,
        "figures": vars(metrics.run_metrics(trace)),
    }


@dataclass
class _StreamedRun:
    """The text of one run of a stream so far."""

    steps: dict[int, Step] = field(default_factory=dict)
    lead: int | None = None
    trace: Trace | None = None

    def add(self, update: Update) -> None:
        self.steps |= {step.id: step for step in update.steps}
        self.lead, self.trace = update.lead, update.trace or self.trace

    @property
    def done(self) -> bool:
        return self.trace is not None

    def to_dict(self) -> dict[str, Any]:
        error = self.trace.error if self.trace else None
        return {"text": self._text(), "done": self.done, "error": error}

    def _text(self) -> str:
        if self.trace:
            return self.trace.text
        texts, id = [], self.lead
        while id is not None:
            texts.append(self.steps[id].text)
            id = self.steps[id].parent
        return "".join(reversed(texts))
