"""The form of a race: the prompt, the drafters, and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

import strategies
from engine.errors import PlaygroundError
from engine.prompt import Chat
from engine.settings import Limits
from engine.trace import Trace
from playground import Playground
from playground.speculation.drafters import Drafter, all_drafters, early_exit_description
from playground.ui.shared import html
from playground.ui.shared.back_button import BackButton, build_back_button
from playground.ui.shared.comparison import prompt_text
from playground.ui.shared.controls import PROMPT_KINDS, as_prompt, fitting, prompt_kind
from playground.ui.shared.events import Updates, Values
from playground.ui.shared.jobs import JobControls, job_controls
from playground.ui.shared.messages import warn
from playground.ui.shared.pages import SentColumn
from playground.ui.speculative.examples import EXAMPLES

_MAX_TOKENS = 400
_MAX_TEMPERATURE = 2.0
_DRAFTER_DEFAULT = "drafter default"

_FIELDS = (
    *("prompt", "kind", "drafters", "tokens", "length", "threshold", "layer"),
    *("sampling", "temperature", "seed"),
)

# The settings for the number of drafted tokens, by the names strategies have for it.
_LENGTHS = ("num_assistant_tokens", "prompt_lookup_num_tokens", "medusa_depth")
_CONSTANT = {"num_assistant_tokens_schedule": "constant"}


@dataclass(frozen=True)
class Form:
    """The controls of the form."""

    examples: tuple[gr.Button, ...]
    point: gr.Markdown
    prompt: gr.Textbox
    kind: gr.Radio
    back: BackButton
    drafters: gr.CheckboxGroup
    from_link: gr.State  # the drafters that a link selects, until the visitor selects others
    missing: gr.HTML
    tokens: gr.Slider
    length: gr.Slider
    threshold: gr.Dropdown
    layer: gr.Slider
    sampling: gr.Checkbox
    temperature: gr.Slider
    seed: gr.Number

    @property
    def fields(self) -> dict[str, Any]:
        """What a race depends on, by name."""
        return {name: getattr(self, name) for name in _FIELDS}

    @property
    def inputs(self) -> set[Any]:
        """The fields, as inputs of an event."""
        return {*self.fields.values()}

    def changes(self, lab: Playground, values: Values) -> dict[str, Any]:
        """The values that differ from the initial ones, by field name."""
        first = {field: field.value for field in self.inputs}
        first[self.drafters] = self.available(lab)
        return {name: values[f] for name, f in self.fields.items() if values[f] != first[f]}

    @property
    def restorable(self) -> list[Any]:
        """The components that `restore` updates."""
        return [*(self.inputs - {self.drafters}), self.from_link]

    def restore(self, changes: Mapping[str, Any]) -> Updates:
        """Show the values of a link; those that do not fit get their initial value."""
        selected = changes.get("drafters")
        updates: Updates = {self.from_link: selected if isinstance(selected, list) else None}
        for name, field in self.fields.items():
            if field is not self.drafters:
                updates[field] = fitting(field, changes.get(name), field.value)
        return updates

    @property
    def received(self) -> list[Any]:
        """The components that `receive` updates."""
        fields = [self.prompt, self.kind, self.tokens, self.seed, self.sampling, self.temperature]
        return [self.point, *fields, *self.back.outputs]

    def receive(self, sent: SentColumn) -> Updates:
        """Show the prompt and the settings of a column."""
        trace, prompt = sent.column.trace, sent.column.request.prompt
        assert trace is not None, "only columns whose run has ended are sent"
        temperature = _temperature(trace)
        sampled: dict[str, Any] = (
            {} if temperature is None else {"value": _within(self.temperature, temperature)}
        )
        tokens = trace.settings.get("max_new_tokens", self.tokens.value)
        return {
            self.point: f"The prompt and the settings of {sent.column.label}.",
            self.prompt: prompt_text(prompt),
            self.kind: PROMPT_KINDS[not isinstance(prompt, str)],
            self.tokens: _within(self.tokens, tokens),
            self.seed: trace.seed,
            self.sampling: temperature is not None,
            self.temperature: gr.Slider(visible=temperature is not None, **sampled),
            **self.back.show(sent),
        }

    def prompt_of(self, values: Values) -> str | Chat:
        """The prompt as a lab takes it."""
        prompt = values[self.prompt]
        if not prompt.strip():
            raise PlaygroundError("the prompt is empty; enter one, or choose an example")
        return as_prompt(prompt, values[self.kind])

    def shared_of(self, values: Values) -> dict[str, Any]:
        """The settings of all runs."""
        seed = values[self.seed]
        return {"max_new_tokens": int(values[self.tokens]), "seed": 0 if seed is None else seed}

    def sampling_of(self, values: Values) -> dict[str, Any]:
        """Whether and how tokens are sampled, as arguments of `entrants`."""
        if not values[self.sampling]:
            return {}
        return {"do_sample": True, "shaping": {"temperature": float(values[self.temperature])}}

    def selected(self, lab: Playground, values: Values) -> tuple[Drafter, ...]:
        """Plain decoding and the selected drafters, with the settings of the form."""
        names = set(values[self.drafters])
        known = all_drafters(lab, **self.sampling_of(values))
        racing = [one for one in known if one.plain or one.name in names]
        if len(racing) < 2:
            raise PlaygroundError("Select at least one drafter.")
        return tuple(self._configured(lab, one, values) for one in racing)

    def drafter(self, lab: Playground, name: str | None, values: Values) -> Drafter:
        """One drafter, with the settings of the form."""
        known = all_drafters(lab, **self.sampling_of(values))
        found = next((one for one in known if one.name == name and not one.plain), None)
        if found is None:
            raise PlaygroundError("Select a drafter.")
        return self._configured(lab, found, values)

    def _configured(self, lab: Playground, drafter: Drafter, values: Values) -> Drafter:
        if drafter.plain:
            return drafter
        given = values[self.threshold]
        threshold = float(given) if given else None
        layer = int(values[self.layer])
        return configured(lab, drafter, int(values[self.length]), threshold, layer)

    def available(self, lab: Playground) -> list[str]:
        """The drafters that work with a model."""
        return [
            one.name
            for one in all_drafters(lab)
            if not one.plain and one.unavailable_reason is None
        ]

    def show_model(self, lab: Playground, selected: list[str] | None, layer: int) -> Updates:
        """Adapt the controls to a model: its drafters and its number of layers."""
        names, last = self.available(lab), max(1, _layers(lab) - 1)
        fits: dict[str, Any] = {} if layer <= last else {"value": 0}
        value = [name for name in names if selected is None or name in selected]
        unavailable = [
            one for one in all_drafters(lab) if not one.plain and one.unavailable_reason is not None
        ]
        reasons = [
            html.disabled_choice(one.name, one.unavailable_reason or "") for one in unavailable
        ]
        return {
            self.drafters: gr.CheckboxGroup(choices=names, value=value),
            self.missing: "".join(reasons),
            self.layer: gr.Slider(maximum=last, **fits),
        }


def configured(
    lab: Playground, drafter: Drafter, length: int, threshold: float | None, layer: int
) -> Drafter:
    """A drafter with the settings of the form that its strategy has. A length or layer of 0, and
    a threshold of None, keep the drafter's own."""
    known = lab.offered()[drafter.strategy].own_settings
    wanted: dict[str, Any] = {}
    if threshold is not None:
        wanted["assistant_confidence_threshold"] = threshold
    if layer:
        wanted["assistant_early_exit"] = layer
    if length:
        wanted |= {**dict.fromkeys(_LENGTHS, length), **_CONSTANT}
    own = {name: value for name, value in wanted.items() if name in known}
    settings = {**drafter.settings, **own}
    for name in settings.keys() & set(_LENGTHS):
        # The drafter's own length may exceed the limit of the server or of its strategy.
        most = known[name].highest(lab.limits)
        settings[name] = settings[name] if most is None else min(settings[name], int(most))
    about = early_exit_description(lab, layer) if "assistant_early_exit" in own else drafter.about
    return replace(drafter, settings=settings, about=about)


def _layers(lab: Playground) -> int:
    config = lab.model.module.config.get_text_config(decoder=True)
    return int(getattr(config, "num_hidden_layers", 2))


def _temperature(trace: Trace) -> float | None:
    """The temperature of a run that sampled; None of one that did not."""
    known = strategies.registered().get(trace.strategy)
    sampled = trace.settings.get("do_sample", known is not None and known.fixed.get("do_sample"))
    return float(trace.settings.get("temperature") or 1.0) if sampled else None


def _within(slider: gr.Slider, value: float) -> float:
    """The value, or the nearest one of the slider; then a warning says so."""
    used = max(slider.minimum, min(value, slider.maximum))
    if used != value:
        warn(f"The column's {slider.label} is {value:g}; the race uses {used:g}, its limit.")
    return used


def build_form(limits: Limits) -> tuple[Form, JobControls]:
    """The form, filled with the first example, and the buttons of the race."""
    first = EXAMPLES[0]
    with gr.Row(elem_id="spec-examples", elem_classes="lab-actions"):
        gr.Markdown("Examples")
        examples = [
            gr.Button(one.title, size="sm", scale=0, min_width=0, elem_id=f"spec-example-{place}")
            for place, one in enumerate(EXAMPLES)
        ]
    point = gr.Markdown(first.point, elem_id="spec-point", elem_classes="summary")
    with gr.Column(elem_id="spec-text"):
        prompt = gr.Textbox(
            first.prompt,
            label="Prompt",
            lines=3,
            max_lines=8,
            interactive=True,
            elem_id="spec-prompt",
        )
        back = build_back_button("spec-back")
        kind = prompt_kind("spec-kind")
    with gr.Column(elem_id="spec-lineup"):
        drafters = gr.CheckboxGroup(
            [],
            label="Drafters, compared with plain decoding",
            interactive=True,
            elem_id="spec-drafters",
        )
        missing = gr.HTML(elem_id="spec-missing", elem_classes="lab-output", padding=False)
    controls = job_controls("spec", race="Race")
    settings = _settings(limits, min(first.max_new_tokens, limits.max_new_tokens))
    named = {"drafters": drafters, "from_link": gr.State(None), "missing": missing, **settings}
    return Form(tuple(examples), point, prompt, kind, back, **named), controls


def _settings(limits: Limits, tokens: int) -> Mapping[str, Any]:
    """The settings of the drafters; the ones people change least are in an accordion."""
    with gr.Row(elem_classes="settings", elem_id="spec-settings"):
        often = _often_changed(limits, tokens)
    with (
        gr.Accordion("More settings", open=False, elem_id="spec-more"),
        gr.Row(elem_classes="settings"),
    ):
        return {**often, **_rarely_changed()}


def _often_changed(limits: Limits, tokens: int) -> Mapping[str, Any]:
    return {
        "tokens": _slider(
            "tokens",
            (1, min(limits.max_new_tokens, _MAX_TOKENS), tokens, 1),
            "The number of tokens each lane writes.",
            "new tokens",
        ),
        "length": _slider(
            "length",
            (0, limits.draft_tokens, 0, 1),
            "The number of tokens drafted per round; 0 uses each drafter's default. Longer "
            "drafts save more passes if they are accepted, and cost more if they are not.",
            "draft length",
        ),
        "sampling": gr.Checkbox(
            False,
            label="sample",
            info="Sample instead of taking the most probable token. Lanes then write different "
            "texts, from the same distribution.",
            interactive=True,
            elem_id="spec-sampling",
        ),
        "temperature": _slider(
            "temperature",
            (0.1, _MAX_TEMPERATURE, 1.0, 0.1),
            "Above 1, less probable tokens are sampled more often, and fewer drafts accepted.",
            "temperature",
            visible=False,
        ),
    }


def _rarely_changed() -> Mapping[str, Any]:
    return {
        "threshold": gr.Dropdown(
            [(_DRAFTER_DEFAULT, ""), *(f"{tenth / 10:g}" for tenth in range(10))],
            value="",
            label="confidence threshold",
            info="A draft model stops after a token with a probability below this. It does "
            "not apply to prompt lookup and heads.",
            interactive=True,
            filterable=False,
            elem_id="spec-threshold",
        ),
        "layer": _slider(
            "layer",
            (0, 32, 0, 1),
            "The layer after which early exit drafts; 0 uses the best trained exit, or half "
            "of the layers if there is none.",
            "exit layer",
        ),
        "seed": gr.Number(
            0,
            precision=0,
            minimum=0,
            label="seed",
            info="The same seed gives the same tokens.",
            interactive=True,
            elem_id="spec-seed",
        ),
    }


def _slider(
    id: str, span: tuple[float, float, float, float], info: str, label: str, **options: Any
) -> gr.Slider:
    low, high, value, step = span
    return gr.Slider(
        *(low, high),
        value=value,
        step=step,
        label=label,
        info=info,
        interactive=True,
        elem_id=f"spec-{id}",
        **options,
    )
