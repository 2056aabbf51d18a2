"""Controls and cards: what a form shows becomes settings by name."""

import json
from types import SimpleNamespace

import gradio as gr
import pytest

import app
from benchmarks.scripted import Lab as ScriptedLab
from engine.errors import PlaygroundError
from engine.settings import SHARED, Limits, Setting, check
from playground import Playground
from playground.ui.compare import cards
from playground.ui.compare.cards import Card, cards_of, catalog, choice, from_json, to_json
from playground.ui.compare.presets import PRESETS
from playground.ui.shared import model_picker
from playground.ui.shared.controls import control, given, read, shown
from playground.ui.shared.model_loading import Labs
from strategies import find, registered
from tests.tiny import tiny

LIMITS = Limits()
EVERY = [
    *SHARED.values(),
    *(setting for known in registered().values() for setting in known.own_settings.values()),
]


def setting(kind, default=None, **bounds):
    return Setting("name", kind, default, "Help.", **bounds)


@pytest.fixture
def lab():
    """A lab with the defaults of all strategies, some of them the model's."""
    usual = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "length_penalty": 1.0}

    def defaults(id):
        return {
            name: usual.get(name) if declared.default is None else declared.default
            for name, declared in find(id).own_settings.items()
        }

    return SimpleNamespace(defaults=defaults, offered=registered)


@pytest.mark.parametrize(
    ("declared", "default", "kind"),
    [
        (setting(int, 5, low=1, limit="rows"), 5, gr.Slider),
        (setting(float, low=0.0, high=1.0), 0.9, gr.Slider),
        (setting(float, low=0.0, high=1.0), None, gr.Textbox),  # no position for a slider
        (setting(float, 1.0, low=0.0, high=100.0), 1.0, gr.Textbox),  # too wide for a slider
        (setting(float, 1.0, low=0.0), 1.0, gr.Textbox),
        (setting(object, choices=(False, True, "never")), False, gr.Dropdown),
        (setting(bool), None, gr.Dropdown),
        (setting(bool, False), False, gr.Checkbox),
        (setting(str), None, gr.Textbox),
        (setting(object), None, gr.Textbox),
    ],
)
def test_the_control_depends_on_the_kind_of_setting(declared, default, kind):
    assert type(control(declared, default, LIMITS)) is kind


def test_a_slider_is_bounded_by_the_servers_limit():
    slider = control(setting(int, 5, low=1, limit="rows"), 5, Limits(rows=3))
    assert (slider.minimum, slider.maximum, slider.value) == (1, 3, 3)


@pytest.mark.parametrize("declared", EVERY, ids=lambda declared: declared.name)
def test_each_setting_has_a_control_with_its_name_and_help(declared):
    drawn = control(declared, declared.default, LIMITS)
    assert drawn.label == declared.name
    assert drawn.info.startswith(declared.help)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (setting(int), 3),
        (setting(float), 0.25),
        (setting(bool), True),
        (setting(bool), False),
        (setting(bool, True), False),
        (setting(str), "words, and more"),
        (setting(object, choices=(False, True, "never")), True),
        (setting(object, choices=(False, True, "never")), "never"),
        (setting(object), "fox, and dog"),
        (setting(object), "[fox"),
        (setting(object), "42"),
        (setting(object), ["fox", "dog"]),
        (setting(object), {"fox": -5.0}),
        (setting(object), [[1, 2], [3]]),
        (setting(object), 42),
    ],
)
def test_a_shown_value_is_read_back(declared, value):
    given = read(declared, shown(declared, value))
    assert given == value
    assert type(given) is type(value)


@pytest.mark.parametrize("declared", EVERY, ids=lambda declared: declared.name)
def test_an_unchanged_control_sets_nothing(declared):
    assert given({"x": declared}, {"x": shown(declared, None)}, {}) == {}


def test_a_default_is_not_set_again():
    known = find("sample").own_settings
    values = {"temperature": 1.0, "top_p": 0.9}
    assert given(known, values, {"temperature": 1.0, "top_p": 1.0}) == {"top_p": 0.9}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("fox, lazy dog ,", ["fox", "lazy dog"]),
        ("fox", "fox"),
        ("fox,", "fox"),
        ('"fox"', "fox"),
        ("[1, 2]", [1, 2]),
        ("  ", None),
        ("<img src=x>", "<img src=x>"),
    ],
)
def test_free_values_are_json_or_words_separated_by_commas(text, value):
    assert read(setting(object), text) == value


@pytest.mark.parametrize("text", ['{"fox": ', "[1, 2", '"fox', "[" * 100_000])
def test_invalid_json_is_rejected_with_the_settings_name(text):
    with pytest.raises(PlaygroundError, match="name looks like JSON"):
        read(setting(object), text)


def test_a_fraction_for_a_whole_number_is_rejected_by_the_lab():
    beams = find("beam_search").own_settings
    settings = given(beams, {"num_beams": 2.5}, {"num_beams": 5})
    with pytest.raises(PlaygroundError, match=r"num_beams is 2\.5; it must be a whole number"):
        check(settings, beams, LIMITS, "beam_search")


@pytest.mark.parametrize(
    ("kind", "shown", "value"),
    [
        (int, 4.0, "4"),
        (int, "4", "4"),
        (int, "4.0", "4"),
        (int, "4.5", "4.5"),
        (float, "1e-3", "0.001"),
        (float, "0.8", "0.8"),
        (float, "0,8", "'0,8'"),
        (float, "", "None"),
    ],
)
def test_a_number_is_read_from_a_slider_or_from_text(kind, shown, value):
    assert repr(read(setting(kind), shown)) == value


def test_text_for_a_number_is_rejected_by_the_lab():
    known = find("sample").own_settings
    settings = given(known, {"temperature": "warm"}, {"temperature": 1.0})
    with pytest.raises(PlaygroundError, match="temperature is 'warm'; it must be a number"):
        check(settings, known, LIMITS, "sample")


# Cards


def fields(lab, strategy):
    """The fields of a strategy in the catalog, by name."""
    [found] = [
        one for one in json.loads(catalog(lab, LIMITS))["strategies"] if one["id"] == strategy
    ]
    return {field["name"]: field for field in found["fields"]}


def test_fields_show_the_models_defaults(lab):
    shown = {name: field["value"] for name, field in fields(lab, "sample").items()}
    assert shown["temperature"] == "1.0"
    assert (shown["top_k"], shown["top_p"], shown["min_p"]) == ("50", 1.0, None)


@pytest.mark.parametrize(
    ("strategy", "first"),
    [
        ("sample", ["temperature", "top_k", "top_p"]),
        ("beam_search", ["num_beams", "length_penalty", "early_stopping"]),
        ("beam_sample", ["num_beams", "length_penalty", "early_stopping"]),
        ("dola", ["dola_layers", "do_sample", "temperature"]),
        ("universal_speculative", ["assistant_model", "do_sample", "num_assistant_tokens"]),
    ],
)
def test_the_strategys_own_settings_come_first(lab, strategy, first):
    assert list(fields(lab, strategy))[:3] == first


@pytest.mark.parametrize("strategy", registered())
def test_all_settings_that_can_be_entered_have_a_field(lab, strategy):
    own = find(strategy).own_settings
    assert set(fields(lab, strategy)) == {name for name in own if not own[name].python_only}


def test_settings_that_need_another_one_name_it(lab):
    assert fields(lab, "prompt_lookup")["temperature"]["onlyWith"] == "do_sample"
    assert fields(lab, "sample")["temperature"]["onlyWith"] is None  # it always samples


@pytest.mark.parametrize("allowed", [True, False])
def test_the_custom_strategy_is_offered_if_it_is_allowed(allowed):
    lab = Playground(tiny("llama"), allow_custom=allowed)
    offered = {one["id"]: one["offered"] for one in json.loads(catalog(lab, LIMITS))["strategies"]}
    assert offered["custom"] == allowed


def test_allow_custom_is_off_by_default(monkeypatch):
    def start(*_, allow_custom, **__):
        return SimpleNamespace(model=SimpleNamespace(name="toy"), allows=allow_custom)

    monkeypatch.setattr(app, "Playground", start)
    monkeypatch.setattr(app, "load", lambda *_, **__: None)
    usual, allowing = (
        app._load("toy", app.parser().parse_args(words), LIMITS)
        for words in ([], ["--allow-custom"])
    )
    assert (usual.allows, allowing.allows) == (False, True)


def test_a_switch_has_an_environment_variable_that_a_flag_overrides(monkeypatch):
    monkeypatch.setenv("PLAYGROUND_ALLOW_CUSTOM", "true")
    assert app.parser().parse_args([]).allow_custom
    assert not app.parser().parse_args(["--no-allow-custom"]).allow_custom


def test_cards_are_read_back_from_json():
    sent = [Card("greedy", {}, 0), Card("sample", {"temperature": "0.5", "top_p": 0.9}, 4)]
    assert from_json(to_json(sent), LIMITS) == sent


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read"),
        ("[", "cannot be read"),
        ("3", "cannot be read"),
        ("[3]", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        (None, "too large"),
        ('[{"strategy": "greedy", "values": {"x": 1}}]', "unknown setting 'x'"),
        ('[{"strategy": "greedy", "values": {"seed": [1]}}]', "invalid value of seed"),
        ('[{"strategy": "<b>", "values": {}}]', "unknown strategy '<b>'"),
        ('[{"strategy": "greedy"}]', "cannot be read"),
        ("[]", "0 strategies; a comparison has 1 to 6"),
        (to_json([Card("greedy")] * 7), "7 strategies; a comparison has 1 to 6"),
        (" " * 500_000, "too large"),
    ],
)
def test_forged_cards_are_rejected(text, words):
    with pytest.raises(PlaygroundError, match=words):
        from_json(text, LIMITS)


def test_a_run_gets_only_changed_settings(lab):
    values = {"temperature": "0.5", "top_k": "50", "top_p": 0.9, "min_p": ""}
    assert choice(Card("greedy"), lab) == ("greedy", {})
    assert choice(Card("sample", values), lab) == ("sample", {"temperature": 0.5, "top_p": 0.9})


def test_a_card_can_override_a_shared_setting(lab):
    penalty = {"repetition_penalty": "1.3"}
    assert choice(Card("sample", penalty), lab) == ("sample", {"repetition_penalty": 1.3})
    assert choice(Card("sample", {"repetition_penalty": ""}), lab) == ("sample", {})


def test_a_heading_lists_the_settings_that_were_given():
    assert cards.heading("beam_search", {"num_beams": 3, "early_stopping": True}) == (
        "beam search",
        "num_beams 3 · early_stopping true",
    )
    assert cards.heading("greedy", {})[1] == "default settings"


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.title)
def test_the_settings_of_each_preset_are_valid(lab, preset):
    assert len(preset.cards) <= LIMITS.strategies
    for card in from_json(to_json(cards_of(preset.cards, LIMITS)), LIMITS):
        id, settings = choice(card, lab)
        check(settings, find(id).settings, LIMITS, id)


def test_the_lab_of_the_benchmark_works_on_the_page():
    lab = ScriptedLab()
    assert fields(lab, "greedy") is not None
    labs = Labs(["scripted"], lambda name: lab)
    labs.lab("scripted")
    assert model_picker._state("scripted", labs).loaded == "scripted"
