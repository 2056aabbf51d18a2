"""Calibrations: statistics against counting by hand, and what is measured against the detector."""

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import PlaygroundError
from engine.watermark import detector as watermark
from playground import Playground
from playground.cli.main import main
from playground.watermarks import roc as rates
from playground.watermarks import text_generation as sampling
from playground.watermarks.calibrate import CalibrationSpec, calibrate
from playground.watermarks.disk_cache import DiskCache
from playground.watermarks.text_generation import Order
from tests.playground.watermarks.test_attacks import Soon
from tests.tiny import tiny

SCORES = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)
SMALL = CalibrationSpec(texts=20, length=60, lengths=(20, 40), biases=(0.0, 5.0), others=3, keys=2)


@pytest.fixture(scope="module")
def lab():
    return Playground(tiny("llama"))


def result(steps):
    """The last word of a calibration."""
    *_, last = steps
    return last.result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def small(lab, folder):
    return result(calibrate(lab, SMALL, folder=folder))


# Rates


@settings(deadline=None)  # how busy the machine is, is no matter
@given(null=SCORES, marked=SCORES)
def test_the_area_is_how_often_a_marked_text_scores_above_another(null, marked):
    wins = [(b > a) + (b == a) / 2 for a in null for b in marked]
    assert rates.auc(null, marked) == pytest.approx(sum(wins) / len(wins))
    corners = rates.roc(null, marked)
    assert (corners[0].false_positives, corners[0].true_positives) == (0, 0)
    assert (corners[-1].false_positives, corners[-1].true_positives) == (1, 1)
    for corner in corners:
        share = sum(score > corner.threshold for score in marked) / len(marked)
        assert corner.true_positives == pytest.approx(share)


@settings(deadline=None)  # how busy the machine is, is no matter
@given(null=SCORES, marked=SCORES, asked=st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]))
def test_an_operating_point_keeps_within_the_rate_asked_for_and_no_lower_one_would(
    null, marked, asked
):
    point = rates.operating(null, marked, asked)
    assert point.false_positives.share <= asked + 1e-12
    lower = [score for score in null if score < point.threshold]
    if lower:
        assert sum(score > max(lower) for score in null) > asked * len(null)
    assert point.true_positives.count == sum(score > point.threshold for score in marked)


def test_a_rate_that_so_few_texts_cannot_show_is_said_to_be_unresolved():
    null = [float(score) for score in range(450)]
    assert rates.operating(null, [500.0], 0.01).resolved
    point = rates.operating(null, [500.0], 0.001)
    assert not point.resolved and point.threshold == 449 and point.false_positives.count == 0
    assert point.false_positives.high == pytest.approx(1 - 0.025 ** (1 / 450))
    assert rates.operating(null * 3, [500.0], 0.001).resolved


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(0, 10, 0, 0.3085), (10, 10, 0.6915, 1), (5, 10, 0.1871, 0.8129), (1, 100, 0.0003, 0.0545)],
)
def test_intervals_are_those_of_clopper_and_pearson(count, of, low, high):
    told = rates.rate(count, of)
    assert (told.low, told.high) == pytest.approx((low, high), abs=5e-5)
    assert told.share == count / of
    assert (rates.rate(0, 0).low, rates.rate(0, 0).high) == (0, 1)  # nothing is known


def test_the_length_needed_is_the_one_from_which_on_the_power_holds():
    shares = rates.power([[0, 5, 5, 5], [0, 5, 3, 5], [0, 0, 0, 5]], 4.0)
    assert shares == (0, 2 / 3, 1 / 3, 1)
    assert rates.needed(shares, 0.6) == 4  # it was reached before, and lost again
    assert rates.needed(shares, 0.3) == 2
    assert rates.needed(shares, 0.0) == 1
    assert rates.needed(shares[:3], 0.9) is None


# What is measured


def test_scores_at_every_length_are_the_detectors(lab, small, folder):
    order = Order(20, 60, 0, {}, SMALL.mark(2.0))
    for written, sample in zip(texts(lab, order, folder), small.marked[:20], strict=True):
        found = [
            watermark.detect(lab.model, written.ids[:length], ignore_repeated=True)
            for length in (20, 40, 60)
        ]
        assert sample.scores == pytest.approx([told.z_score for told in found])
        assert sample.as_text == found[-1].round_trip.score.z_score
        assert (sample.source, sample.bias) == (written.source, 2.0)


def texts(lab, order, folder):
    """The texts of an order, with what is kept in the folder."""
    steps = sampling.write(lab, order, "", DiskCache(lab.model, folder), None)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_each_text_goes_on_from_a_prompt_of_its_own_and_is_as_long_as_asked(lab, folder):
    written = texts(lab, Order(20, 60, 0, {}, SMALL.mark(2.0)), folder)
    assert len({text.source for text in written}) == 20
    assert {len(text.ids) for text in written} == {60}
    alone = [sampling._prompt(lab, 0, number) for number in range(20)]
    settings = {"seed": 17, "watermarking_config": SMALL.mark(2.0)}
    [trace] = lab.compare(
        alone[17][1], [("sample", settings)], max_new_tokens=60, min_new_tokens=60
    )
    assert trace.sequences[0].token_ids == written[17].ids
    surprisal = -math.fsum(step.raw for step in trace.steps) / 60
    assert written[17].surprisal == pytest.approx(surprisal, abs=1e-4)


def test_no_more_texts_are_written_at_once_than_the_limits_allow(lab):
    with pytest.raises(PlaygroundError, match="17 prompts; at most 16"):
        lab.stream_each([("hi", "greedy")] * 17)


def test_the_figures_are_those_of_the_scores(small):
    assert [told.length for told in small.by_length] == [20, 40, 60]
    assert small.human_texts >= 420 and small.human_scores == 2 * small.human_texts
    last = small.by_length[-1]
    own = [sample.scores[-1] for sample in small.marked if sample.bias == 2.0]
    null = [sample.scores[-1] for sample in small.human]
    assert last.found.count == sum(score > 4 for score in own) and last.found.of == 20
    assert last.false_alarms.count == sum(score > 4 for score in null)
    assert last.auc == rates.auc(null, own) and small.roc == rates.roc(null, own)
    assert small.power[-1] == last.found.share
    assert [told.bias for told in small.costs] == [0.0, 2.0, 5.0]
    assert [told.texts for told in small.costs] == [3, 20, 3]
    none, _, strong = small.costs
    assert strong.perplexity > none.perplexity and strong.mean > none.mean
    assert strong.low < strong.perplexity < strong.high


def test_it_can_be_had_as_json_and_as_a_table_for_spreadsheets(small):
    told = json.loads(small.to_json())
    assert told["by_length"][2]["found"]["of"] == 20 and told["spec"]["length"] == 60
    rows = list(csv.DictReader(io.StringIO(small.to_csv(), newline="")))
    assert len(rows) == 3 * (len(small.human) + len(small.marked))
    assert float(rows[2]["z_score"]) == small.human[0].scores[2]
    assert rows[-1]["kind"] == "marked" and float(rows[-1]["perplexity"]) > 1


# Kept, stopped, refused


def test_what_is_kept_is_not_written_or_scored_again(lab, small, folder, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("it is all there")

    monkeypatch.setattr(lab, "stream_each", refuse)
    monkeypatch.setattr(watermark, "detect", refuse)
    again = result(calibrate(lab, replace(SMALL, threshold=3.0), folder=folder))
    assert again.human == small.human and again.marked == small.marked
    assert again.by_length[-1].found.count >= small.by_length[-1].found.count


def test_a_file_that_was_damaged_is_made_anew(lab, tmp_path):
    shelf = DiskCache(lab.model, tmp_path)
    shelf.put({"what": "test"}, [1, 2.5])
    [file] = tmp_path.iterdir()
    assert shelf.get({"what": "test"}) == [1, 2.5] and shelf.get({"what": "else"}) is None
    assert DiskCache(tiny("gpt2"), tmp_path).get({"what": "test"}) is None  # another model's
    file.write_text(file.read_text()[:-5])
    assert shelf.get({"what": "test"}) is None
    nowhere = DiskCache(lab.model, None)
    nowhere.put({}, 1)
    assert nowhere.get({}) is None


def test_a_folder_that_cannot_be_written_costs_only_time(lab, tmp_path):
    tmp_path.joinpath("file").write_text("in the way")
    shelf = DiskCache(lab.model, tmp_path / "file")
    shelf.put({"what": "test"}, 1)
    assert shelf.get({"what": "test"}) is None


def test_stop_ends_it_within_a_tick_and_what_was_whole_is_kept(lab, tmp_path):
    spec = replace(SMALL, keys=1, biases=())
    human = 450  # asked once before each human text
    stop = Soon(human + 60 + 20)  # the second batch of texts is under way
    steps = list(calibrate(lab, spec, stop=stop, folder=tmp_path))
    assert stop.left == -1 and steps[-1].result is None
    assert 16 * 60 < steps[-1].done < 20 * 60
    asked = []
    stream = lab.stream_each

    def watched(prompts, **settings):
        asked.append(len(prompts))
        return stream(prompts, **settings)

    lab.stream_each = watched
    try:
        assert result(calibrate(lab, spec, folder=tmp_path)).by_length[-1].found.of == 20
    finally:
        del lab.stream_each
    assert asked == [4]


def test_progress_is_told_token_by_token(lab):
    spec = replace(SMALL, texts=2, length=10, lengths=(), biases=(), keys=1)
    steps = list(calibrate(lab, spec, keep=False))
    assert [step.done for step in steps if step.unit == "tokens"] == [*range(1, 21), 20]
    assert {step.total for step in steps if step.unit == "tokens"} == {20}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scheme": "left"}, "unknown scheme 'left'"),
        ({"fields": {"biass": 1}}, "did you mean 'bias'"),
        ({"texts": 1}, "texts is 1; it must be a whole number of at least 2"),
        ({"length": 10**6}, "length is 1000000; it must be .* at most 1000"),
        ({"lengths": (0,)}, "lengths has 0"),
        ({"biases": (1e9,)}, "bias is 1000000000.0"),
        ({"threshold": math.nan}, "threshold is nan"),
        ({"scheme": "synthid"}, "synthid has no bias"),
        ({"settings": {"seed": 3}}, "seed is no setting of sampling"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_runs(lab, change, words):
    with pytest.raises(PlaygroundError, match=words):
        calibrate(lab, replace(CalibrationSpec(), **change))


def test_selfhash_and_synthid_are_measured_as_well(lab):
    fields = {"scheme": "selfhash", "fields": {"context_width": 2}}
    few = replace(SMALL, texts=4, length=40, lengths=(), biases=(), keys=1)
    for spec in (replace(few, **fields), replace(few, scheme="synthid", biases=(0.0,))):
        found = result(calibrate(lab, spec, keep=False))
        marked = [sample.scores[-1] for sample in found.marked[:4]]
        assert max(marked) > 2 and found.by_length[-1].auc > 0.8


def test_other_keys_are_none_that_was_written_with():
    keys = [CalibrationSpec().detection(key).get("hashing_key", 15485863) for key in range(5)]
    assert len(set(keys)) == 5
    layers = [CalibrationSpec(scheme="synthid").detection(key)["keys"] for key in range(1, 4)]
    assert len({key for layer in layers for key in layer}) == 3 * len(layers[0])


# The real model


def test_marked_texts_of_the_real_model_are_found_and_unmarked_ones_are_not(embedded):
    prompts = [sampling._prompt(embedded, 0, number)[1] for number in range(4)]
    mark = CalibrationSpec(fields={"bias": 3.0}).mark(3.0)
    asked = [
        (prompt, ("sample", {"seed": number, "watermarking_config": config}))
        for config in (mark, None)
        for number, prompt in enumerate(prompts)
    ]
    updates = embedded.stream_each(asked, max_new_tokens=48, min_new_tokens=48)
    ids = {update.run: update.trace.sequences[0].token_ids for update in updates if update.trace}
    scores = [watermark.detect(embedded.model, ids[run]).z_score for run in range(8)]
    assert min(scores[:4]) > 4 > max(scores[4:])


def test_the_command_prints_a_table_and_writes_files(lab, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("playground.cli.calibrate.Playground", lambda name: lab, raising=True)
    monkeypatch.setenv("DECODING_PLAYGROUND_CACHE", str(tmp_path / "cache"))
    written, scores = tmp_path / "all.json", tmp_path / "scores.csv"
    small = ["calibrate", "--texts", "4", "--length", "30", "--lengths", "10,20", "--keys", "1"]
    files = ["--json", str(written), "--csv", str(scores)]
    assert main([*small, "--biases", "0", "--others", "2", "--set", "bias=4", *files]) == 0
    printed = capsys.readouterr().out
    told = json.loads(written.read_text())
    assert told["spec"]["fields"] == {"bias": 4} and len(told["by_length"]) == 3
    assert f"{told['by_length'][-1]['auc']:.5f}" in printed and "tokens needed to find" in printed
    assert "* too few human-written texts" in printed
    assert scores.read_text().startswith("kind,source,bias,length,z_score,perplexity")
    assert list((tmp_path / "cache" / "calibrations").glob("*.json"))
    for wrong, words in (("--scheme=left", "unknown scheme"), ("--lengths=1.5", "--lengths is")):
        assert main(["calibrate", wrong]) == 2
        assert words in capsys.readouterr().err


def test_the_readmes_watermarks_run_as_written(lab, monkeypatch, tmp_path, capsys):
    readme = Path(__file__).parents[3].joinpath("README.md").read_text(encoding="utf-8")
    section = readme.split("## Watermarks: how sure is a detector?\n")[1]
    monkeypatch.setattr("playground.Playground", lambda: lab)
    monkeypatch.setenv("DECODING_PLAYGROUND_CACHE", str(tmp_path))
    exec(section.split("```python\n")[1].split("```")[0], {})
    *_, area = capsys.readouterr().out.split()
    assert 0 <= float(area) <= 1
