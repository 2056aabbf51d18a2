"""Generation configs: what cards change, saved to files and loaded."""

import json

import pytest
from transformers import GenerationConfig

from engine.errors import PlaygroundError
from engine.settings import Limits
from playground import Playground
from playground import generation_configs as configs
from playground.ui.compare.cards import Card, choice
from playground.ui.compare.configurations import (
    MAX_BYTES,
    changes,
    common_settings,
    file_name,
    load,
    to_files,
)
from playground.ui.compare.presets import FIRST
from strategies import registered
from tests.playground.ui.browsing import (
    cards,
    opened,
    ready,
    remove_card,
    running,
    served,
    set_card,
    set_strategy,
    tab,
    wait,
)
from tests.tiny import tiny


@pytest.fixture(scope="module")
def lab():
    return Playground(tiny("llama"), drafts=[], allow_custom=False)


def saved(config, folder, name="config.json"):
    path = folder / name
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return path


# Cards to files and back


@pytest.mark.parametrize("strategy", registered())
def test_a_card_is_restored_from_its_file_or_a_warning_says_why_not(lab, tmp_path, strategy):
    card = Card(strategy)
    shared = {"max_new_tokens": 7, "repetition_penalty": 1.3, "stop_strings": "a, b"}
    files, words = to_files([card], shared, "mine", lab)
    if not files:
        assert any(why in words[0] for why in ("cannot be written as", "is not allowed here"))
        return
    assert list(files) == ["mine.json"]
    [loaded] = load([saved(files["mine.json"], tmp_path)], lab)
    assert words == [] or f"selects {loaded.card.strategy.replace('_', ' ')}" in words[0]
    if not words:
        assert choice(loaded.card, lab) == choice(card, lab)
    assert loaded.shared == shared
    assert loaded.warnings == ()


def test_the_settings_of_a_card_are_restored(lab, tmp_path):
    card = Card("sample", {"temperature": 0.5, "top_k": 7, "num_return_sequences": 2})
    files, _ = to_files([card], {}, "mine", lab)
    [loaded] = load([saved(files["mine.json"], tmp_path)], lab)
    assert choice(loaded.card, lab) == choice(card, lab)


def test_a_watermark_is_restored_with_its_fields(lab, tmp_path):
    watermark = {"greenlist_ratio": 0.25, "bias": 2.0}
    files, _ = to_files([Card("greedy")], {"watermarking_config": watermark}, "m", lab)
    [loaded] = load([saved(files["m.json"], tmp_path)], lab)
    assert loaded.shared["watermarking_config"].items() >= watermark.items()


def test_cards_with_the_same_strategy_get_separate_files(lab):
    cards = [Card("greedy"), Card("sample"), Card("greedy")]
    files, _ = to_files(cards, {}, "a/b", lab)
    assert list(files) == ["a-b-greedy.json", "a-b-sample.json", "a-b-greedy-2.json"]


@pytest.mark.parametrize(
    ("wish", "name"),
    [
        ("warm beams", "warm-beams"),
        ("../../etc/passwd", "etc-passwd"),
        ("über_<b>", "über_-b"),
        ("same.json", "same"),
        (" ./ ", "configuration"),
        ("x" * 300, "x" * 40),
    ],
)
def test_any_text_becomes_a_valid_file_name(wish, name):
    assert file_name(wish) == name


def test_a_field_set_to_its_default_is_marked_as_unchanged(lab):
    card = Card("sample", {"temperature": 0.5})
    rows = {row["field"]: row for row in changes(card, {}, lab)["rows"]}
    assert rows["temperature"] == {
        "field": "temperature",
        "own": "not set (1.0)",
        "run": "0.5",
        "same": False,
    }
    assert rows["num_beams"]["same"] and not rows["do_sample"]["same"]


BAD = {
    "no text": (b"\xff\xfe\x00", "it is not text"),
    "no JSON": (b"{", "is not a generation config"),
    "no object": (b"[1]", "it is not a JSON object"),
    "deep": (b"[" * 50_000, "is not a generation config"),
    "another's field": (b'{"num_beam": 3}', "did you mean 'num_beams'"),
    "python's field": (b'{"__class__": 3}', "has an unknown field"),
    "too many beams": (b'{"num_beams": 99}', "at most 16"),
    "no number": (b'{"penalty_alpha": "x", "top_k": 4}', "should be a number"),
    "no watermark": (b'{"watermarking_config": 3}', "is not a generation config"),
    "no token": (b'{"eos_token_id": 99999}', "token ids are whole numbers"),
    "too long": (b" " * (MAX_BYTES + 1), "at most 102,400 are allowed"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_file_is_rejected_by_name(lab, tmp_path, name):
    content, words = BAD[name]
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(PlaygroundError, match=words) as raised:
        load([path], lab)
    assert "mine.json" in str(raised.value)


def test_too_many_files_are_rejected(tmp_path):
    lab = Playground(tiny("llama"), limits=Limits(strategies=2))
    with pytest.raises(PlaygroundError, match="3 files; a comparison has at most 2 strategies"):
        load([saved({}, tmp_path)] * 3, lab)


def test_fields_without_a_control_are_reported(lab, tmp_path):
    [loaded] = load([saved({"max_length": 30, "top_p": 0.5, "pad_token_id": 0}, tmp_path)], lab)
    assert loaded.warnings == (
        "config.json: ignored, because greedy has no control for it: max_length, top_p",
    )


def test_shared_settings_are_used_if_all_files_agree(lab, tmp_path):
    both = {"max_new_tokens": 9, "no_repeat_ngram_size": 2}
    one = saved({**both, "repetition_penalty": 1.2}, tmp_path, "one.json")
    two = saved({**both, "num_beams": 2}, tmp_path, "two.json")
    settings, words = common_settings(load([one, two], lab))
    assert settings.items() >= both.items()
    assert settings["min_new_tokens"] is None and "repetition_penalty" not in settings
    assert words == [
        "repetition_penalty differs between the files and was not changed"
        " (one.json: 1.2; two.json: not set)"
    ]
    assert "max_new_tokens" not in common_settings(load([saved({}, tmp_path)], lab))[0]


# On the page


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The app on a tiny model."""
    folder = tmp_path_factory.mktemp("tiny")
    model = tiny("llama")
    model.module.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    command = ["app.py", "--port", "{port}", "--model", folder, "--allow-custom"]
    with served(command, folder / "log") as address:
        yield address


@pytest.fixture
def page(browser, address):
    with opened(browser, address) as page:
        ready(page)
        tab(page, "Export")
        page.click("#configurations > button")
        page.wait_for_selector("#changes table")
        yield page


def table(page, place):
    """The values in a card's table, by field."""
    section = page.locator("#changes section").nth(place)
    fields = section.locator("tbody th").all_inner_texts()
    values = section.locator("tbody td:last-child").all_inner_texts()
    return dict(zip(fields, values, strict=True))


def strategies(page):
    return [card["strategy"].replace("_", " ") for card in cards(page)]


def upload(page, *paths):
    with page.expect_file_chooser() as chosen:
        page.click("#load")
    chosen.value.set_files(list(paths))


def warning(page, words):
    """Wait for a message with this text, then close all messages."""
    page.wait_for_selector(f".toast-body >> text={words}")
    page.evaluate("document.querySelectorAll('.toast-close').forEach(button => button.click())")


def test_the_section_shows_the_models_config_and_what_each_card_changes(page, lab):
    own = lab.model.module.generation_config
    assert json.loads(page.inner_text("#changes pre"))["eos_token_id"] == own.eos_token_id
    assert page.locator("#changes h4").all_inner_texts()[1:] == [
        "1. greedy",
        "2. beam search",
        "3. sample",
    ]
    expected = configs.changes(own, lab.configuration(FIRST.cards[2]))
    assert table(page, 2) == {name: json.dumps(run) for name, (_, run) in expected.items()}
    set_card(page, 2, temperature=0.25)
    page.click("#show-changes")
    wait(lambda: table(page, 2)["temperature"] == "0.25")
    page.fill("#shared-max_new_tokens input[type=number]", "3")
    set_card(page, 2, temperature=0.5)
    with running(page):
        pass
    wait(lambda: table(page, 2)["temperature"] == "0.5")
    assert table(page, 0)["max_new_tokens"] == "3"


def test_a_card_without_a_config_says_why_and_text_is_not_html(page):
    set_strategy(page, 0, "custom")
    set_card(page, 0, custom_generate="<b>folder</b>")
    page.click("#show-changes")
    page.wait_for_selector("#changes .refused >> text=it has no field for custom_generate")
    assert page.locator("#changes table").count() == 2
    page.click("#shared button")
    page.fill("#shared-stop_strings textarea", '["<img src=x onerror=evil>')
    page.click("#show-changes")
    page.wait_for_selector("#changes .refused >> text=stop_strings looks like JSON")
    page.click("#save")
    warning(page, "stop_strings looks like JSON")
    page.fill("#shared-stop_strings textarea", '["<img src=x onerror=evil>"]')
    page.click("#show-changes")
    page.wait_for_selector("#changes td >> text=<img src=x onerror=evil>")
    assert page.locator("#changes img").count() == 0


def test_saved_files_can_be_loaded_by_transformers_and_on_the_page(page, lab, tmp_path):
    set_card(page, 2, temperature=0.3)
    page.fill("#save-as textarea, #save-as input", "my <b>run")
    downloads = []
    page.on("download", lambda download: downloads.append(download))
    page.click("#save")
    wait(lambda: page.wait_for_timeout(50) or len(downloads) == 3)
    paths = [tmp_path / download.suggested_filename for download in downloads]
    for download, path in zip(downloads, paths, strict=True):
        download.save_as(path)
    names = ("greedy", "beam_search", "sample")
    assert [path.name for path in paths] == [f"my-b-run-{name}.json" for name in names]
    choices = [*FIRST.cards[:2], ("sample", {**FIRST.cards[2][1], "temperature": 0.3})]
    for path, card in zip(paths, choices, strict=True):
        read = GenerationConfig.from_pretrained(tmp_path, path.name)
        assert configs.values(read) == configs.values(lab.configuration(card))

    remove_card(page, 2)
    upload(page, *paths)
    warning(page, "Loaded my-b-run-greedy.json")
    wait(lambda: strategies(page) == ["greedy", "beam search", "sample"])
    assert float(cards(page)[2]["values"]["temperature"]) == 0.3


def test_files_set_what_they_agree_on_and_invalid_ones_change_nothing(page, tmp_path):
    page.click("#shared button")
    page.fill("#shared-min_new_tokens input", "2")
    evil = saved({"<img src=x onerror=evil>": 1}, tmp_path, "evil.json")
    good = saved({"num_beams": 3, "max_new_tokens": 11, "repetition_penalty": 1.5}, tmp_path)
    other = saved({"do_sample": True, "max_new_tokens": 11}, tmp_path, "other.json")
    for files, words in [
        ([evil], "evil.json has an unknown field '<img src=x onerror=evil>'"),
        ([good, saved("{", tmp_path, "broken.json")], "broken.json is not a generation config"),
        ([saved(" " * (MAX_BYTES + 1), tmp_path, "big.json")], "big.json"),
    ]:
        upload(page, *files)
        warning(page, words)
        assert strategies(page) == ["greedy", "beam search", "sample"]
        assert page.input_value("#shared-min_new_tokens input") == "2"
    assert page.locator(".toast-body img").count() == 0

    upload(page, good, other)
    warning(page, "repetition_penalty differs between the files")
    wait(lambda: strategies(page) == ["beam search", "sample"])
    assert page.input_value("#shared-max_new_tokens input[type=number]") == "11"
    assert page.input_value("#shared-repetition_penalty input") == ""
    wait(lambda: page.input_value("#shared-min_new_tokens input") == "")
    upload(page, good)
    wait(lambda: strategies(page) == ["beam search"])
    wait(lambda: page.input_value("#shared-repetition_penalty input") == "1.5")
    with running(page):
        pass
    assert table(page, 0)["repetition_penalty"] == "1.5"
