"""SynthID scores against transformers' own g-values and masks, and the Bayesian detector."""

import random

import pytest
import torch
from transformers import (
    BayesianDetectorConfig,
    BayesianDetectorModel,
    SynthIDTextWatermarkDetector,
    SynthIDTextWatermarkLogitsProcessor,
)

from engine.errors import PlaygroundError
from engine.watermark.bayesian import bayesian
from engine.watermark.config import KEYS
from engine.watermark.detector import detect
from engine.watermark.synthid import layer_weights
from tests.tiny import SIZE, tiny

MARK = {"ngram_len": 5, "keys": [*KEYS]}


def processor(history=1024, **more):
    return SynthIDTextWatermarkLogitsProcessor(
        **{**MARK, **more},
        sampling_table_size=2**16,
        sampling_table_seed=0,
        context_history_size=history,
        device="cpu",
    )


def drawn(seed, length, symbols=SIZE):
    fresh = random.Random(seed)
    return [fresh.randrange(3, symbols) for _ in range(length)]


@pytest.fixture(scope="module")
def runs(embedded):
    """Runs with the same seed, with a watermark and without."""
    return embedded.compare(
        "Once upon a time",
        ["sample", ("sample", {"watermarking_config": MARK})],
        max_new_tokens=120,
        min_new_tokens=120,
        seed=3,
    )


@pytest.mark.parametrize("history", [3, 40, 1024])
@pytest.mark.parametrize("end", [None, 90], ids=["no end", "an end"])
def test_g_values_and_masks_are_those_of_transformers(history, end):
    model = tiny("llama")
    ids = drawn(1, 120, symbols=6) + drawn(2, 40)
    ids = ids if end is None else [*ids[:end], model.tokenizer.eos_token_id, *ids[end:]]
    rows = torch.tensor([ids])
    theirs = processor(history)
    g_values = theirs.compute_g_values(rows)[0].tolist()
    new = theirs.compute_context_repetition_mask(rows)[0].tolist()
    before = theirs.compute_eos_token_mask(rows, model.tokenizer.eos_token_id)[0, 4:].tolist()
    found = detect(model, ids, scheme="synthid", context_history_size=history)
    assert [token.why for token in found.tokens[:4]] == ["context"] * 4
    rows = zip(found.tokens[4:], g_values, new, before, strict=True)
    for token, expected, first, within in rows:
        assert token.why == ("eos" if not within else "" if first else "repeated")
        assert token.g_values == (tuple(expected) if first and within else ())


def test_a_marked_text_is_found_and_an_unmarked_one_is_not(embedded, runs):
    plain, marked = (
        detect(embedded.model, run.sequences[0].token_ids, scheme="synthid") for run in runs
    )
    assert marked.verdict == "marked" and marked.z_score > 6 and marked.exact_p < 1e-6
    assert plain.verdict == "not marked" and abs(plain.z_score) < 3
    assert marked.round_trip.verdict == "marked" and plain.round_trip.verdict == "not marked"
    assert detect(embedded.model, runs[1].text, scheme="synthid").verdict == "marked"
    assert min(marked.layers.by_layer) > 0.5
    assert marked.layers.weighted_mean > marked.layers.weighted_threshold
    assert plain.layers.weighted_mean < plain.layers.weighted_threshold


@pytest.mark.parametrize(
    "wrong", [{"keys": [*range(1, 11)]}, {"ngram_len": 4}, {"sampling_table_seed": 1}], ids=str
)
def test_another_key_does_not_find_the_watermark(embedded, runs, wrong):
    found = detect(embedded.model, runs[1].sequences[0].token_ids, scheme="synthid", **wrong)
    assert found.verdict == "not marked"
    assert detect(embedded.model, runs[1].sequences[0].token_ids).verdict == "not marked"


def test_scores_are_means_of_the_g_values(embedded, runs):
    found = detect(embedded.model, runs[1].sequences[0].token_ids, scheme="synthid")
    rows = torch.tensor([token.g_values for token in found.tokens if token.g_values]).double()
    weights = torch.linspace(10, 1, 10, dtype=torch.float64)
    weights /= weights.sum()
    layers = found.layers
    assert layers.mean == pytest.approx(float(rows.mean()))
    assert layers.weighted_mean == pytest.approx(float((rows @ weights).mean()))
    assert layers.by_layer == pytest.approx(rows.mean(0).tolist())
    assert (layers.ones, layers.g_values) == (int(rows.sum()), rows.numel())
    spread = (layers.share * (1 - layers.share) * float(weights.square().sum()) / len(rows)) ** 0.5
    assert layers.weighted_threshold == pytest.approx(layers.share + 3 * spread)
    assert found.z_score == pytest.approx(layers.weighted_z)
    assert found.z_score == pytest.approx((layers.weighted_mean - layers.share) / spread)
    assert found.exact_p == layers.mean_p
    assert found.p_value == pytest.approx(layers.weighted_p)
    green = [token for token in found.tokens if token.verdict == "green"]
    assert len(green) == found.green_tokens
    assert all(token.value > layers.share for token in green)


def test_scores_of_unmarked_tokens_follow_the_null_hypothesis():
    """Over 300 texts the mean of z has a standard error of 0.058 and its variance one of 0.082:
    five of either happen once in two million runs, and the draws are fixed."""
    found = [detect(tiny("llama"), drawn(seed, 64), scheme="synthid") for seed in range(300)]
    for values in ([one.z_score for one in found], [one.layers.mean_z for one in found]):
        z = torch.tensor(values)
        assert abs(z.mean()) < 5 * 0.058
        assert abs(z.var() - 1) < 5 * 0.082


def test_a_long_text_is_scored_against_the_share_of_its_sampling_table():
    """A small sampling table is biased: tested against 0.5, a long text would seem marked."""
    few = {"sampling_table_size": 257, "sampling_table_seed": 3, "keys": [1, 2, 3]}
    found = detect(tiny("llama"), drawn(5, 20_000), scheme="synthid", **few)
    assert abs(found.layers.share - 0.5) > 0.01
    assert abs(found.z_score) < 4


@pytest.mark.parametrize("depth", [1, 2, 10, 30])
def test_early_layers_have_the_largest_weights(depth):
    weights = layer_weights(depth)
    assert float(weights.sum()) == pytest.approx(1)
    assert weights.tolist() == sorted(weights.tolist(), reverse=True)
    assert float(weights[0] / weights[-1]) == pytest.approx(10 if depth > 1 else 1)


def test_one_layer_is_scored_too():
    found = detect(tiny("llama"), drawn(6, 80), scheme="synthid", keys=[9])
    assert found.layers.mean == found.layers.weighted_mean
    assert {len(token.g_values) for token in found.tokens[4:]} <= {0, 1}


@pytest.fixture
def detector(tmp_path):
    """A detector whose later layers have smaller weights, as after training."""
    config = BayesianDetectorConfig(watermarking_depth=10, base_rate=0.5)
    config.set_detector_information("smollm2", MARK)
    model = BayesianDetectorModel(config)
    with torch.no_grad():
        model.likelihood_model_watermarked.beta.copy_(torch.linspace(1, -2, 10))
        model.likelihood_model_watermarked.delta.zero_()
    model.save_pretrained(tmp_path / "detector")
    return tmp_path / "detector"


def test_a_bayesian_detector_agrees_with_transformers(embedded, runs, detector):
    loaded = BayesianDetectorModel.from_pretrained(detector)
    theirs = SynthIDTextWatermarkDetector(loaded, processor(), embedded.model.tokenizer)
    for run, marked in zip(runs, (False, True), strict=True):
        ids = run.sequences[0].token_ids
        found = bayesian(embedded.model, ids, detector)
        [expected] = theirs(torch.tensor([ids]))[0].tolist()
        assert found.probability == pytest.approx(expected, abs=1e-5)
        assert (found.probability > 0.5) is marked
        assert found.written_by == "smollm2" and found.tokens_scored > 100


def test_a_folder_without_a_detector_raises_an_error(embedded, detector, tmp_path):
    text = "some words that are long enough to be judged"
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "config.json").write_text('{"watermarking_depth": 3}')
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"no weights")
    (tmp_path / "huge").mkdir()
    (tmp_path / "huge" / "config.json").write_text('{"watermarking_depth": 1000000000}')
    refusals = {
        tmp_path / "nowhere": "there is no folder",
        "google/a-detector": "there is no folder",
        empty: "does not contain a Bayesian detector",
        tmp_path / "other": "does not contain a Bayesian detector",
        tmp_path / "pickled": "cannot load",
        tmp_path / "huge": "does not contain a Bayesian detector",
    }
    for folder, words in refusals.items():
        with pytest.raises(PlaygroundError, match=words):
            bayesian(embedded.model, text, folder)
    with pytest.raises(PlaygroundError, match="has 10 layers and there are 3 keys"):
        bayesian(embedded.model, text, detector, keys=[1, 2, 3])
    with pytest.raises(PlaygroundError, match="too short to say"):
        bayesian(embedded.model, "x", detector)
