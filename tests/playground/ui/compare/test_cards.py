"""Controls and cards: what a form shows becomes settings by name."""

import asyncio
import copy
from types import SimpleNamespace

import gradio as gr
import pytest
from gradio.context import LocalContext

import app
from benchmarks.scripted import Lab as ScriptedLab
from engine.errors import PlaygroundError
from engine.settings import SHARED, Limits, Setting, check
from playground import Playground
from playground.ui.compare import cards
from playground.ui.compare.cards import CardList
from playground.ui.compare.presets import PRESETS
from playground.ui.page import build
from playground.ui.shared import model_picker
from playground.ui.shared.controls import control, given, read, shown
from playground.ui.shared.model_loading import Labs
from strategies import find, registered
from tests.playground.ui.scripted_page import Lab
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


def on_a_page(draw):
    """The result of ``draw`` on a page; without a running event loop Gradio leaves one open."""

    async def drawn():
        with gr.Blocks():
            return draw()

    return asyncio.run(drawn())


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
    assert type(control(declared, None, default, LIMITS)) is kind


def test_a_slider_is_bounded_by_the_servers_limit():
    slider = control(setting(int, 5, low=1, limit="rows"), None, 5, Limits(rows=3))
    assert (slider.minimum, slider.maximum, slider.value) == (1, 3, 3)


@pytest.mark.parametrize("declared", EVERY, ids=lambda declared: declared.name)
def test_each_setting_has_a_control_with_its_name_and_help(declared):
    drawn = control(declared, None, declared.default, LIMITS)
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


def test_cards_keep_their_values_when_others_are_added_and_removed():
    state = CardList().replaced((("greedy", {}), ("sample", {"temperature": 0.5})))
    state = state.set_values({1: {"temperature": 0.7, "top_k": None}}).add("greedy").remove(0)
    assert [(card.key, card.strategy, card.values) for card in state.cards] == [
        (1, "sample", {"temperature": 0.7, "top_k": None}),
        (2, "greedy", {}),
    ]
    assert hash(state) != hash(state.remove(2))


def test_a_card_key_is_never_reused():
    state = CardList().add("greedy").remove(0).add("greedy")
    assert [card.key for card in state.cards] == [1]
    assert [card.key for card in state.replaced((("greedy", {}),)).cards] == [2]


def drawn(state, lab):
    """The cards on a page, and the values of their controls as an event delivers them."""
    row = on_a_page(lambda: cards.build_cards(state, lab, LIMITS))
    fields = [field for card in row for field in card.controls.values()]
    return row, {field: field.value for field in fields}


def test_cards_show_their_values_and_the_models_defaults(lab):
    [card], _ = drawn(CardList().add("sample", {"temperature": 0.5}), lab)
    assert card.controls["temperature"].value == "0.5"
    assert card.controls["top_k"].value == "50"
    assert card.controls["top_p"].value == 1.0
    assert card.controls["min_p"].value is None


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
def test_a_card_lists_the_strategys_own_settings_first(lab, strategy, first):
    [card], _ = drawn(CardList().add(strategy), lab)
    assert list(card.controls)[:3] == first


@pytest.mark.parametrize("strategy", registered())
def test_a_card_has_all_settings_with_controls(lab, strategy):
    [card], _ = drawn(CardList().add(strategy), lab)
    own = find(strategy).own_settings
    assert set(card.controls) == {name for name in own if not own[name].python_only}


@pytest.mark.parametrize("allowed", [True, False])
def test_the_custom_strategy_is_offered_if_it_is_allowed(allowed):
    lab = Playground(tiny("llama"), allow_custom=allowed)
    [card], _ = drawn(CardList().add("greedy"), lab)
    assert ("custom" in [id for _, id in card.strategy.choices]) == allowed


def test_allow_custom_is_off_by_default(monkeypatch):
    def start(*_, allow_custom, **__):
        return SimpleNamespace(model=SimpleNamespace(name="toy"), allows=allow_custom)

    monkeypatch.setattr(app, "Playground", start)
    usual, allowing = (
        app._load("toy", app.parser().parse_args(words), LIMITS)
        for words in ([], ["--allow-custom"])
    )
    assert (usual.allows, allowing.allows) == (False, True)


def test_a_run_gets_only_changed_settings(lab):
    state = CardList().replaced((("greedy", {}), ("sample", {"temperature": 0.5})))
    row, values = drawn(state, lab)
    values[row[1].controls["top_p"]] = 0.9
    taken = cards.read_cards(state, row, values, lab)
    assert cards.choices(taken, lab) == [
        ("greedy", {}),
        ("sample", {"temperature": 0.5, "top_p": 0.9}),
    ]


def test_changing_the_strategy_keeps_common_settings_but_not_defaults(lab):
    state = CardList().add("sample", {"temperature": 0.5})
    row, values = drawn(state, lab)
    switched = cards.read_cards(state, row, values, lab).set_strategy(0, "beam_sample")
    assert cards.choices(switched, lab) == [("beam_sample", {"temperature": 0.5})]
    assert switched.cards[0].values["top_k"] is None


def test_a_heading_lists_the_first_settings_and_those_given(lab):
    name, settings = cards.heading("beam_search", {"early_stopping": True}, lab)
    assert name == "beam search"
    assert settings == "num_beams 5 · length_penalty 1.0 · early_stopping true"
    assert cards.heading("greedy", {}, lab)[1] == "no settings"


def test_cards_are_duplicated_and_moved():
    state = CardList().replaced((("greedy", {}), ("sample", {"temperature": 0.5}), ("dola", {})))
    twice = state.duplicate(1)
    assert [card.strategy for card in twice.cards] == ["greedy", "sample", "sample", "dola"]
    assert twice.cards[1].values == twice.cards[2].values == {"temperature": 0.5}
    assert len({card.key for card in twice.cards}) == 4

    def order(state):
        return [card.key for card in state.cards]

    assert order(state.move(2, -1)) == [0, 2, 1]
    assert order(state.move(0, 1)) == [1, 0, 2]
    assert order(state.move(0, -1)) == order(state.move(2, 1)) == [0, 1, 2]


def test_a_card_can_override_a_shared_setting(lab):
    state = CardList().replaced((("sample", {}), ("sample", {"repetition_penalty": "1.3"})))
    row, values = drawn(state, lab)
    assert "repetition_penalty" not in row[0].controls
    assert row[1].controls["repetition_penalty"].value == "1.3"
    taken = cards.read_cards(state, row, values, lab)
    assert cards.choices(taken, lab) == [("sample", {}), ("sample", {"repetition_penalty": 1.3})]
    values[row[1].controls["repetition_penalty"]] = ""
    assert cards.choices(cards.read_cards(state, row, values, lab), lab) == [("sample", {})] * 2


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.title)
def test_the_settings_of_each_preset_are_valid(lab, preset):
    assert len(preset.cards) <= LIMITS.strategies
    for id, settings in cards.choices(CardList().replaced(preset.cards), lab):
        check(settings, find(id).settings, LIMITS, id)


def test_settings_that_need_another_one_are_shown_with_it(lab):
    [drawing], _ = drawn(CardList().add("prompt_lookup", {"do_sample": True}), lab)
    [plain], _ = drawn(CardList().add("prompt_lookup"), lab)
    [sampling], _ = drawn(CardList().add("sample"), lab)
    assert drawing.conditional["do_sample"].visible and not plain.conditional["do_sample"].visible
    assert sampling.conditional == {}  # it always samples
    assert set(plain.controls) == set(drawing.controls)  # hidden controls keep their values


@pytest.mark.parametrize(("typed", "shows"), [("7", 7), ("500", "500"), ("many", 4), ("", 4)])
def test_text_of_one_strategy_is_shown_by_another(lab, typed, shows):
    state = CardList().add("sample", {"top_k": typed}).set_strategy(0, "contrastive_search")
    [card], _ = drawn(state, lab)
    assert card.controls["top_k"].value == shows


class Growing(dict):
    """A visitor's components, to which another event adds while they are iterated over."""

    def values(self):
        for value in super().values():
            self[object()] = value
            yield value


def rendered(lab):
    """The element ids of the cards that the page renders for a lab."""

    async def render():
        page = build(Labs(["toy"], lambda name: lab), LIMITS)
        [rendering] = [event for event in page.fns.values() if event.renderable]
        config = copy.copy(page.default_config)
        config.blocks = Growing(config.blocks)
        LocalContext.blocks_config.set(config)
        rendering.fn(CardList().add("greedy"), "toy", None, 1)
        return config.get_config(rendering.renderable)["components"]

    return {each["props"].get("elem_id") for each in asyncio.run(render())}


def test_cards_are_rendered_while_another_event_of_the_visitor_adds_components():
    assert "card-0-remove" in rendered(Lab())


def test_the_lab_of_the_benchmark_works_on_the_page():
    lab = ScriptedLab()
    assert "card-0-remove" in rendered(lab)
    labs = Labs(["scripted"], lambda name: lab)
    labs.lab("scripted")
    assert model_picker._state("scripted", labs).loaded == "scripted"
