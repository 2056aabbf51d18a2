"""What other programs may ask of the page: compare, stream and detect, over HTTP and as MCP tools.

Knows how JSON becomes runs and traces become JSON. Refuses to know the page's parts. What a caller
got wrong comes back in the words of its `PlaygroundError`.

Annotations are evaluated here, unlike elsewhere: Gradio reads what is returned off them.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.context import get_blocks_context
from gradio.events import api
from gradio.utils import get_function_description

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.trace import Step, Trace, Update
from engine.watermark import config as marks
from engine.watermark import detector
from playground import Playground, metrics
from playground.ui.shared.model_loading import Labs
from strategies import find, registered

REFRESH = 0.1  # seconds between two answers of a stream, at least

Answer = list[dict[str, Any]]


def offer(labs: Labs) -> None:
    """Put the three on the API page and among the MCP tools of the page being built."""
    endpoints = _Endpoints(labs)
    known = ", ".join(id for id, found in registered().items() if not found.foreign)
    names = f"Strategies: {known}. Models: {', '.join(labs.names)}."
    _offer(endpoints.compare, names)
    _offer(endpoints.stream, names)
    _offer(endpoints.detect, f"Models: {', '.join(labs.names)}.")


def _offer(function: Callable[..., Any], names: str) -> None:
    words, arguments, _ = get_function_description(function)
    listener = api(
        function,
        api_name=function.__name__,
        api_description=f"{words} {names}",
        concurrency_limit="default",  # as for the page's runs, whose limit it shares
        concurrency_id="model",
    )
    page = get_blocks_context()
    assert page is not None, "gr.api has refused before"
    told = [text for name, text in arguments.items() if name != "request"]
    for id, text in zip(listener["inputs"], told, strict=True):
        argument = page.blocks[id]
        assert isinstance(argument, Component)
        # MCP reads the docstring's arguments by itself, the API page only this.
        argument.api_info()["additional_description"] = text


class _Endpoints:
    """The three functions. A docstring's first words and each argument's line are what callers
    read: Gradio takes only one line of an argument."""

    def __init__(self, labs: Labs) -> None:
        self._labs = labs

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
        """Run decoding strategies side by side on one prompt. Gives for each run its text, token
        ids, score, what ended it, and figures such as perplexity, repetition and forward passes.

        Args:
            prompt: The text to continue, or with chat the message to answer.
            runs: Strategies, as "greedy" or with settings, as ["beam_search", {"num_beams": 5}].
            settings: Settings of every run, named as in GenerationConfig: {"max_new_tokens": 48}.
            chat: Whether the prompt is a message, put into the model's chat template.
            model: Which of the models to ask; the first one unless named.
            full: Give whole traces instead: every step with its candidates. Large.
        """
        with _refusals():
            lab = self._lab(model)
            traces = lab.compare(_prompt(prompt, chat), _choices(runs, settings))
            told = [json.loads(trace.to_json()) if full else _summary(trace) for trace in traces]
            answer: Answer = _spoken(told, request)
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
        """Run decoding strategies side by side and watch their texts grow. Gives every run as it
        stands, several times a second; beams may take words back. Cancelling stops the runs.

        Args:
            prompt: The text to continue, or with chat the message to answer.
            runs: Strategies, as "greedy" or with settings, as ["beam_search", {"num_beams": 5}].
            settings: Settings of every run, named as in GenerationConfig: {"max_new_tokens": 48}.
            chat: Whether the prompt is a message, put into the model's chat template.
            model: Which of the models to ask; the first one unless named.
        """
        with _refusals():
            lab = self._lab(model)
            choices = _choices(runs, settings)
            writings = [_Writing() for _ in choices]
            news: Any = lab.stream(_prompt(prompt, chat), choices)
            due = 0.0
            with closing(news):
                for update in news:
                    writings[update.run].hear(update)
                    over = all(writing.done for writing in writings)
                    if over or time.monotonic() >= due:
                        told = [{"run": run, **one.told()} for run, one in enumerate(writings)]
                        yield _spoken(told, request)
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
        """Look for a watermark in a text. Gives how many tokens were scored, how many of them are
        green, the z-score, p-value and exact tail of that, whether the text counts as marked or is
        too short to say, and what each token was taken for.

        Args:
            text: The text to judge, without the prompt it was written from.
            scheme: How it was marked: "lefthash" or "selfhash" (green lists), or "synthid".
            z_threshold: The z-score above which a text counts as marked.
            ignore_repeated: Count each pair of a token and those before it only once.
            config: The watermark as it was written: greenlist_ratio, hashing_key …, or keys …
            model: The model whose tokenizer wrote the text; the first one unless named.
        """
        with _refusals():
            lab = self._lab(model)
            _check_text(text, lab.limits)
            _expect("z_threshold", z_threshold, int | float, "a number")
            _expect("ignore_repeated", ignore_repeated, bool, "true or false")
            fields = _named("config", config)
            scheme = fields.pop("seeding_scheme", None) or scheme or detector.SCHEMES[0]
            marks.checked(scheme, fields, lab.limits)  # by name they could be other arguments
            fields |= {"z_threshold": z_threshold, "ignore_repeated": ignore_repeated}
            found = detector.detect(lab.model, text, scheme=scheme, limits=lab.limits, **fields)
            if not found.tokens_scored:
                raise PlaygroundError(found.reason)
            answer: dict[str, Any] = _spoken(found.to_dict(), request)
            return answer

    def _lab(self, model: str) -> Playground:
        _expect("model", model, str, "a name")
        return self._labs.lab(model or self._labs.usual)


@contextmanager
def _refusals() -> Iterator[None]:
    """What a caller may read reaches it as it is: no page shows it, so nothing is escaped."""
    try:
        yield
    except PlaygroundError as error:
        raise gr.Error(str(error), print_exception=False) from error


def _spoken(answer: Any, request: gr.Request | None) -> Any:
    """The answer, as JSON text where MCP hands it on: Gradio would spell it as Python does."""
    mcp = request is not None and request.headers.get("x-gradio-user") == "mcp"
    return json.dumps(answer, ensure_ascii=False) if mcp else answer


def _expect(name: str, value: Any, kind: Any, words: str) -> None:
    # True is a number to Python, but to nobody else.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise PlaygroundError(f"{name} is {value!r}; it must be {words}")


def _named(name: str, values: Any) -> dict[str, Any]:
    values = {} if values is None else values
    _expect(name, values, dict, "names and values")
    return dict(values)


def _check_text(text: Any, limits: Limits) -> None:
    _expect("text", text, str, "a text")
    if len(text) > (most := limits.prompt_characters):
        raise PlaygroundError(f"the text has {len(text)} characters; at most {most} are read")


def _prompt(prompt: Any, chat: Any) -> str | list[dict[str, str]]:
    _expect("prompt", prompt, str, "a text")
    _expect("chat", chat, bool, "true or false")
    return [{"role": "user", "content": prompt}] if chat else str(prompt)


def _choices(runs: Any, settings: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Each strategy with all its settings: by name they could be taken for other arguments."""
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
                f"a run is a strategy's name, or [name, settings], not {json.dumps(run)}"
            )
    known = find(id).settings
    for name in given:
        if name in known and known[name].python_only:
            raise PlaygroundError(f"{name} takes what only Python has; it cannot be sent")
    return id, given


def _summary(trace: Trace) -> dict[str, Any]:
    """A trace without its steps: small enough for a caller that reads every word."""
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
        "others": others,  # further texts of the same run, best first
        "stop": vars(trace.stop),
        "error": trace.error,
        "figures": vars(metrics.run_metrics(trace)),
    }


@dataclass
class _Writing:
    """One run of a stream, as far as it has been heard of."""

    steps: dict[int, Step] = field(default_factory=dict)
    lead: int | None = None
    trace: Trace | None = None

    def hear(self, update: Update) -> None:
        self.steps |= {step.id: step for step in update.steps}
        self.lead, self.trace = update.lead, update.trace or self.trace

    @property
    def done(self) -> bool:
        return self.trace is not None

    def told(self) -> dict[str, Any]:
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
