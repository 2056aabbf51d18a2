"""Calibrations: rates against direct counts, scores against the detector."""

import csv
import inspect
import io
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import PlaygroundError
from engine.watermark import detector as watermark
from engine.watermark.statistics import Z_THRESHOLD
from playground import Playground
from playground.cli.main import main
from playground.watermarks import roc, text_generation
from playground.watermarks.calibrate import CalibrationSpec, calibrate
from playground.watermarks.disk_cache import DiskCache
from playground.watermarks.text_generation import GenerationSpec
from tests.playground.watermarks.test_attacks import StopAfterChecks
from tests.tiny import tiny

SCORES = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)
SMALL = CalibrationSpec(texts=20, length=60, lengths=(20, 40), biases=(0.0, 5.0), others=3, keys=2)


@pytest.fixture(scope="module")
def lab():
    return Playground(tiny("llama"))


def result(steps):
    """The result of a calibration."""
    *_, last = steps
    return last.result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def small(lab, folder):
    return result(calibrate(lab, SMALL, folder=folder))


# Rates


@settings(deadline=None)  # no time limit: the machine may be busy
@given(null=SCORES, marked=SCORES)
def test_auc_is_the_probability_that_a_marked_text_scores_higher(null, marked):
    wins = [(b > a) + (b == a) / 2 for a in null for b in marked]
    assert roc.auc(null, marked) == pytest.approx(sum(wins) / len(wins))
    points = roc.roc(null, marked)
    assert (points[0].false_positives, points[0].true_positives) == (0, 0)
    assert (points[-1].false_positives, points[-1].true_positives) == (1, 1)
    for point in points:
        share = sum(score > point.threshold for score in marked) / len(marked)
        assert point.true_positives == pytest.approx(share)


@settings(deadline=None)  # no time limit: the machine may be busy
@given(null=SCORES, marked=SCORES, rate=st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]))
def test_operating_point_is_the_lowest_threshold_within_the_rate(null, marked, rate):
    point = roc.operating(null, marked, rate)
    assert point.false_positives.share <= rate + 1e-12
    lower = [score for score in null if score < point.threshold]
    if lower:
        assert sum(score > max(lower) for score in null) > rate * len(null)
    assert point.true_positives.count == sum(score > point.threshold for score in marked)


def test_rate_below_the_resolution_of_the_texts_is_unresolved():
    null = [float(score) for score in range(450)]
    assert roc.operating(null, [500.0], 0.01).resolved
    point = roc.operating(null, [500.0], 0.001)
    assert not point.resolved and point.threshold == 449 and point.false_positives.count == 0
    assert point.false_positives.high == pytest.approx(1 - 0.025 ** (1 / 450))
    assert roc.operating(null * 3, [500.0], 0.001).resolved


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(0, 10, 0, 0.3085), (10, 10, 0.6915, 1), (5, 10, 0.1871, 0.8129), (1, 100, 0.0003, 0.0545)],
)
def test_confidence_intervals_are_clopper_pearson(count, of, low, high):
    found = roc.rate(count, of)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)
    assert found.share == count / of
    assert (roc.rate(0, 0).low, roc.rate(0, 0).high) == (0, 1)  # no data


def test_needed_length_is_the_one_from_which_on_the_power_holds():
    shares = roc.power([[0, 5, 5, 5], [0, 5, 3, 5], [0, 0, 0, 5]], 4.0)
    assert shares == (0, 2 / 3, 1 / 3, 1)
    assert roc.needed(shares, 0.6) == 4  # also reached at a shorter length, but not held
    assert roc.needed(shares, 0.3) == 2
    assert roc.needed(shares, 0.0) == 1
    assert roc.needed(shares[:3], 0.9) is None


# Measurements


def test_scores_at_every_length_are_those_of_the_detector(lab, small, folder):
    spec = GenerationSpec(20, 60, 0, {}, SMALL.mark(2.0))
    for written, sample in zip(texts(lab, spec, folder), small.marked[:20], strict=True):
        found = [
            watermark.detect(lab.model, written.ids[:length], ignore_repeated=True)
            for length in (20, 40, 60)
        ]
        assert sample.scores == pytest.approx([found.z_score for found in found])
        assert sample.as_text == found[-1].round_trip.score.z_score
        assert (sample.source, sample.bias) == (written.source, 2.0)


def texts(lab, spec, folder):
    """The generated texts, cached in the folder."""
    steps = text_generation.generate_texts(lab, spec, "", DiskCache(lab.model, folder), None)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_each_text_has_its_own_prompt_and_the_given_length(lab, folder):
    written = texts(lab, GenerationSpec(20, 60, 0, {}, SMALL.mark(2.0)), folder)
    assert len({text.source for text in written}) == 20
    assert {len(text.ids) for text in written} == {60}
    alone = [text_generation._prompt(lab, 0, number) for number in range(20)]
    settings = {"seed": 17, "watermarking_config": SMALL.mark(2.0)}
    [trace] = lab.compare(
        alone[17][1], [("sample", settings)], max_new_tokens=60, min_new_tokens=60
    )
    assert trace.sequences[0].token_ids == written[17].ids
    surprisal = -math.fsum(step.raw for step in trace.steps) / 60
    assert written[17].surprisal == pytest.approx(surprisal, abs=1e-4)


def test_more_prompts_than_the_limit_raise(lab):
    with pytest.raises(PlaygroundError, match="17 prompts; at most 16"):
        lab.stream_each([("hi", "greedy")] * 17)


def test_rates_and_costs_agree_with_the_scores(small):
    assert [found.length for found in small.by_length] == [20, 40, 60]
    assert small.human_texts >= 420 and small.human_scores == 2 * small.human_texts
    last = small.by_length[-1]
    own = [sample.scores[-1] for sample in small.marked if sample.bias == 2.0]
    null = [sample.scores[-1] for sample in small.human]
    assert last.found.count == sum(score > small.threshold for score in own) and last.found.of == 20
    assert last.false_alarms.count == sum(score > small.threshold for score in null)
    assert last.auc == roc.auc(null, own) and small.roc == roc.roc(null, own)
    assert small.power[-1] == last.found.share
    assert [found.bias for found in small.costs] == [0.0, 2.0, 5.0]
    assert [found.texts for found in small.costs] == [3, 20, 3]
    none, _, strong = small.costs
    assert strong.perplexity > none.perplexity and strong.mean > none.mean
    assert strong.low < strong.perplexity < strong.high


def test_calibration_as_json_and_csv(small):
    found = json.loads(small.to_json())
    assert found["by_length"][2]["found"]["of"] == 20 and found["spec"]["length"] == 60
    rows = list(csv.DictReader(io.StringIO(small.to_csv(), newline="")))
    assert len(rows) == 3 * (len(small.human) + len(small.marked))
    assert float(rows[2]["z_score"]) == small.human[0].scores[2]
    assert rows[-1]["kind"] == "marked" and float(rows[-1]["perplexity"]) > 1


# Cache, stop, invalid input


def test_cached_texts_are_not_generated_or_scored_again(lab, small, folder, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("everything is cached")

    monkeypatch.setattr(lab, "stream_each", refuse)
    monkeypatch.setattr(watermark, "detect", refuse)
    again = result(calibrate(lab, replace(SMALL, threshold=3.0), folder=folder))
    assert again.human == small.human and again.marked == small.marked
    assert again.by_length[-1].found.count >= small.by_length[-1].found.count


def test_damaged_cache_file_counts_as_missing(lab, tmp_path):
    cache = DiskCache(lab.model, tmp_path)
    cache.put({"what": "test"}, [1, 2.5])
    [file] = tmp_path.iterdir()
    assert cache.get({"what": "test"}) == [1, 2.5] and cache.get({"what": "else"}) is None
    assert DiskCache(tiny("gpt2"), tmp_path).get({"what": "test"}) is None  # another model's
    file.write_text(file.read_text()[:-5])
    assert cache.get({"what": "test"}) is None
    nowhere = DiskCache(lab.model, None)
    nowhere.put({}, 1)
    assert nowhere.get({}) is None


def test_cache_folder_that_cannot_be_written_is_ignored(lab, tmp_path):
    tmp_path.joinpath("file").write_text("in the way")
    cache = DiskCache(lab.model, tmp_path / "file")
    cache.put({"what": "test"}, 1)
    assert cache.get({"what": "test"}) is None


def test_stop_ends_within_a_tick_and_complete_batches_are_cached(lab, tmp_path):
    spec = replace(SMALL, keys=1, biases=())
    human = 450  # checked once before each human text
    stop = StopAfterChecks(human + 60 + 20)  # during the second batch of texts
    steps = list(calibrate(lab, spec, stop=stop, folder=tmp_path))
    assert stop.left == -1 and steps[-1].result is None
    assert 16 * 60 < steps[-1].done < 20 * 60
    batches = []
    stream = lab.stream_each

    def watched(prompts, **settings):
        batches.append(len(prompts))
        return stream(prompts, **settings)

    lab.stream_each = watched
    try:
        assert result(calibrate(lab, spec, folder=tmp_path)).by_length[-1].found.of == 20
    finally:
        del lab.stream_each
    assert batches == [4]


def test_progress_counts_every_token(lab):
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
        ({"settings": {"seed": 3}}, "seed is set by the calibration"),
    ],
)
def test_invalid_parameters_raise_before_anything_runs(lab, change, words):
    with pytest.raises(PlaygroundError, match=words):
        calibrate(lab, replace(CalibrationSpec(), **change))


def test_selfhash_and_synthid_can_be_calibrated(lab):
    fields = {"scheme": "selfhash", "fields": {"context_width": 2}}
    few = replace(SMALL, texts=4, length=40, lengths=(), biases=(), keys=1)
    for spec in (replace(few, **fields), replace(few, scheme="synthid", biases=(0.0,))):
        found = result(calibrate(lab, spec, keep=False))
        marked = [sample.scores[-1] for sample in found.marked[:4]]
        assert max(marked) > 2 and found.by_length[-1].auc > 0.8


def test_other_keys_differ_from_the_right_one():
    keys = [CalibrationSpec().detection(key).get("hashing_key", 15485863) for key in range(5)]
    assert len(set(keys)) == 5
    layers = [CalibrationSpec(scheme="synthid").detection(key)["keys"] for key in range(1, 4)]
    assert len({key for layer in layers for key in layer}) == 3 * len(layers[0])


# The real model


def test_marked_texts_of_the_embedded_model_are_found_and_unmarked_ones_are_not(embedded):
    prompts = [text_generation._prompt(embedded, 0, number)[1] for number in range(4)]
    mark = CalibrationSpec(fields={"bias": 3.0}).mark(3.0)
    runs = [
        (prompt, ("sample", {"seed": number, "watermarking_config": config}))
        for config in (mark, None)
        for number, prompt in enumerate(prompts)
    ]
    updates = embedded.stream_each(runs, max_new_tokens=48, min_new_tokens=48)
    ids = {update.run: update.trace.sequences[0].token_ids for update in updates if update.trace}
    scores = [watermark.detect(embedded.model, ids[run]).z_score for run in range(8)]
    assert min(scores[:4]) > 4 > max(scores[4:])


def test_calibrate_command_prints_a_table_and_writes_files(lab, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("playground.cli.calibrate.Playground", lambda name: lab, raising=True)
    monkeypatch.setenv("DECODING_PLAYGROUND_CACHE", str(tmp_path / "cache"))
    written, scores = tmp_path / "all.json", tmp_path / "scores.csv"
    small = ["calibrate", "--texts", "4", "--length", "30", "--lengths", "10,20", "--keys", "1"]
    files = ["--json", str(written), "--csv", str(scores)]
    assert main([*small, "--biases", "0", "--others", "2", "--set", "bias=4", *files]) == 0
    printed = capsys.readouterr().out
    found = json.loads(written.read_text())
    assert found["spec"]["fields"] == {"bias": 4} and len(found["by_length"]) == 3
    assert f"{found['by_length'][-1]['auc']:.5f}" in printed and "tokens needed to find" in printed
    assert "* too few human-written texts" in printed
    assert scores.read_text().startswith("kind,source,bias,length,z_score,perplexity")
    assert list((tmp_path / "cache" / "calibrations").glob("*.json"))
    for wrong, words in (("--scheme=left", "unknown scheme"), ("--lengths=1.5", "--lengths is")):
        assert main(["calibrate", wrong]) == 2
        assert words in capsys.readouterr().err


def test_detection_and_calibration_have_the_same_default_threshold() -> None:
    of_detect = inspect.signature(watermark.detect).parameters["z_threshold"].default
    assert of_detect == CalibrationSpec().threshold == Z_THRESHOLD
