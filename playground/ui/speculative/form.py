"""What a visitor fills in before a race: the prompt, who drafts, and how.

Knows the controls and how they become entrants of a race. Refuses to run anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr
from gradio.blocks import Block

from engine.errors import PlaygroundError
from engine.prompt import Chat
from engine.settings import Limits
from playground import Playground
from playground.speculation.drafters import Drafter, all_drafters, early_exit_description
from playground.ui.compare.components import KINDS, Values
from playground.ui.shared.controls import fitting
from playground.ui.speculative import markup
from playground.ui.speculative.example_prompts import EXAMPLES

Drawn = dict[Block, Any]

LONGEST = 400  # tokens of a race: more is a marathon
_HOTTEST = 2.0
_OWN = "each drafter's own"

_ASKED = (
    *("prompt", "kind", "drafters", "tokens", "length", "threshold", "layer"),
    *("sampling", "temperature", "seed"),
)

# The settings that say how many tokens a round drafts, whatever a strategy calls them.
_LENGTHS = ("num_assistant_tokens", "prompt_lookup_num_tokens", "medusa_depth")
_CONSTANT = {"num_assistant_tokens_schedule": "constant"}


@dataclass(frozen=True)
class Form:
    """The controls."""

    examples: tuple[gr.Button, ...]
    point: gr.Markdown
    prompt: gr.Textbox
    kind: gr.Radio
    above: gr.Button  # takes over the prompt of the page
    drafters: gr.CheckboxGroup
    wished: gr.State  # who a link has drafting, until the visitor says otherwise
    missing: gr.HTML
    tokens: gr.Slider
    length: gr.Slider
    threshold: gr.Dropdown
    layer: gr.Slider
    sampling: gr.Checkbox
    temperature: gr.Slider
    seed: gr.Number

    @property
    def asked(self) -> dict[str, Any]:
        """What a race depends on, by name."""
        return {name: getattr(self, name) for name in _ASKED}

    @property
    def inputs(self) -> set[Any]:
        """The same, as an event takes it."""
        return {*self.asked.values()}

    def changed(self, lab: Playground, values: Values) -> dict[str, Any]:
        """What is not as it was at first, by name: as a link has it."""
        first = {**{field: field.value for field in self.inputs}, self.drafters: self.able(lab)}
        return {name: values[f] for name, f in self.asked.items() if values[f] != first[f]}

    @property
    def restorable(self) -> list[Any]:
        """What `restored` has news for."""
        return [*(self.inputs - {self.drafters}), self.wished]

    def restored(self, changed: Mapping[str, Any]) -> Drawn:
        """The controls as a link has them; what they cannot show is as it was at first."""
        ticked = changed.get("drafters")
        drawn: Drawn = {self.wished: ticked if isinstance(ticked, list) else None}
        for name, field in self.asked.items():
            if field is not self.drafters:
                drawn[field] = fitting(field, changed.get(name), field.value)
        return drawn

    def text(self, values: Values) -> str | Chat:
        """The prompt as a lab takes it."""
        prompt = values[self.prompt]
        if not prompt.strip():
            raise PlaygroundError("there is no prompt; write one, or take an example")
        return [{"role": "user", "content": prompt}] if values[self.kind] == KINDS[1] else prompt

    def shared(self, values: Values) -> dict[str, Any]:
        """What all entrants are told."""
        seed = values[self.seed]
        return {"max_new_tokens": int(values[self.tokens]), "seed": 0 if seed is None else seed}

    def drawing(self, values: Values) -> dict[str, Any]:
        """How tokens are chosen, as `entrants` takes it."""
        if not values[self.sampling]:
            return {}
        return {"do_sample": True, "shaping": {"temperature": float(values[self.temperature])}}

    def chosen(self, lab: Playground, values: Values) -> tuple[Drafter, ...]:
        """Plain decoding and those that were ticked, with the settings of the form."""
        ticked = set(values[self.drafters])
        everyone = all_drafters(lab, **self.drawing(values))
        racing = [one for one in everyone if one.plain or one.name in ticked]
        if len(racing) < 2:
            raise PlaygroundError("nobody drafts; tick at least one drafter")
        return tuple(self._told(lab, one, values) for one in racing)

    def one(self, lab: Playground, name: str | None, values: Values) -> Drafter:
        """One drafter, with the settings of the form."""
        everyone = all_drafters(lab, **self.drawing(values))
        found = next((one for one in everyone if one.name == name and not one.plain), None)
        if found is None:
            raise PlaygroundError("choose a drafter first")
        return self._told(lab, found, values)

    def _told(self, lab: Playground, drafter: Drafter, values: Values) -> Drafter:
        if drafter.plain:
            return drafter
        given = values[self.threshold]
        threshold = float(given) if given else None
        return told(lab, drafter, int(values[self.length]), threshold, int(values[self.layer]))

    def able(self, lab: Playground) -> list[str]:
        """The drafters that can run on a model."""
        return [
            one.name
            for one in all_drafters(lab)
            if not one.plain and one.unavailable_reason is None
        ]

    def fitted(self, lab: Playground, ticked: list[str] | None, layer: int) -> Drawn:
        """The controls for a model: who can draft there, and how many layers it has."""
        everyone = [one for one in all_drafters(lab) if not one.plain]
        able, last = self.able(lab), max(1, _layers(lab) - 1)
        fits: dict[str, Any] = {} if layer <= last else {"value": 0}
        return {
            self.drafters: gr.CheckboxGroup(
                choices=able, value=[name for name in able if ticked is None or name in ticked]
            ),
            self.missing: _missing([one for one in everyone if one.unavailable_reason is not None]),
            self.layer: gr.Slider(maximum=last, **fits),
        }


def told(
    lab: Playground, drafter: Drafter, length: int, threshold: float | None, layer: int
) -> Drafter:
    """An entrant with what the form says, where its strategy has such settings; a length or a
    layer of 0, and no threshold, leave it to the drafter."""
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
        # What suits a drafter may be more than this server allows, or its strategy.
        most = known[name].highest(lab.limits)
        settings[name] = settings[name] if most is None else min(settings[name], int(most))
    about = early_exit_description(lab, layer) if "assistant_early_exit" in own else drafter.about
    return replace(drafter, settings=settings, about=about)


def _layers(lab: Playground) -> int:
    config = lab.model.module.config.get_text_config(decoder=True)
    return int(getattr(config, "num_hidden_layers", 2))


def _missing(those: list[Drafter]) -> str:
    """Who cannot draft here, and why."""
    return "".join(markup.off(one.name, one.unavailable_reason or "") for one in those)


def draw(limits: Limits) -> Form:
    """The controls, filled with the first example."""
    first = EXAMPLES[0]
    with gr.Row(elem_id="spec-examples", elem_classes="lab-actions"):
        gr.Markdown("Try")
        examples = [
            gr.Button(one.title, size="sm", scale=0, min_width=0, elem_id=f"spec-example-{place}")
            for place, one in enumerate(EXAMPLES)
        ]
    point = gr.Markdown(first.point, elem_id="spec-point", elem_classes="summary")
    with gr.Row(equal_height=False, elem_id="spec-form"):
        with gr.Column(scale=3, min_width=280):
            prompt = gr.Textbox(
                first.prompt,
                label="Prompt of the race",
                lines=4,
                max_lines=10,
                interactive=True,
                elem_id="spec-prompt",
            )
            above = gr.Button("Take the prompt from above", size="sm", elem_id="spec-above")
        with gr.Column(scale=2, min_width=280):
            kind = gr.Radio(
                KINDS,
                value=KINDS[0],
                label="The prompt is a",
                interactive=True,
                elem_id="spec-kind",
            )
            drafters = gr.CheckboxGroup(
                [],
                label="Who drafts, against plain decoding",
                interactive=True,
                elem_id="spec-drafters",
            )
            missing = gr.HTML(elem_id="spec-missing", elem_classes="lab-told", padding=False)
    settings = _settings(limits, min(first.max_new_tokens, limits.max_new_tokens))
    named = {"drafters": drafters, "wished": gr.State(None), "missing": missing, **settings}
    return Form(tuple(examples), point, prompt, kind, above, **named)


def _settings(limits: Limits, tokens: int) -> Mapping[str, Any]:
    """The sliders; help comes where somebody points."""
    with gr.Row(elem_classes="settings detection", elem_id="spec-settings"):
        return {
            "tokens": _slider(
                "tokens",
                (1, min(limits.max_new_tokens, LONGEST), tokens, 1),
                "How many tokens each of them writes at most.",
                "new tokens",
            ),
            "length": _slider(
                "length",
                (0, limits.draft_tokens, 0, 1),
                "How many tokens a round drafts, the same for all; 0 leaves it to each drafter. "
                "Longer drafts save more passes if they are kept, and cost more if not.",
                "draft length",
            ),
            "threshold": gr.Dropdown(
                [(_OWN, ""), *(f"{tenth / 10:g}" for tenth in range(10))],
                value="",
                label="confidence threshold",
                info="A drafting model stops early after a token it finds less probable than "
                "this. Lookup and heads have no such number.",
                interactive=True,
                filterable=False,
                elem_id="spec-threshold",
            ),
            "layer": _slider(
                "layer",
                (0, 32, 0, 1),
                "After how many of the model's layers early exit drafts; 0 is where an exit was "
                "trained that pays, or else half of them.",
                "exit layer",
            ),
            "sampling": gr.Checkbox(
                False,
                label="draw tokens",
                info="Draw instead of taking the most probable token. Lanes then write different "
                "texts: what is kept the same is how probable each text is.",
                interactive=True,
                elem_id="spec-sampling",
            ),
            "temperature": _slider(
                "temperature",
                (0.1, _HOTTEST, 1.0, 0.1),
                "Above 1 less probable tokens are drawn more often, and drafts hit less often.",
                "temperature",
                visible=False,
            ),
            "seed": gr.Number(
                0,
                precision=0,
                minimum=0,
                label="seed",
                info="Equal seeds give equal draws.",
                interactive=True,
                elem_id="spec-seed",
            ),
        }


def _slider(
    id: str, span: tuple[float, float, float, float], info: str, label: str, **how: Any
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
        **how,
    )
