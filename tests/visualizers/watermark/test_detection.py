"""The figures of a detection, and of one step of a watermarked run."""

import pytest
import torch
from transformers import WatermarkLogitsProcessor

from engine.trace import Trace
from engine.watermark import detector as watermark
from engine.watermark.windows import over_length, slide
from playground import Playground
from playground.watermarks.green_list_step import explain
from playground.watermarks.human_texts import passages
from visualizers import best_path
from visualizers.watermark import bias, entropy, length, scan, synthid_g_values
from visualizers.watermark.bias import BiasedStep
from visualizers.watermark.entropy import GreenListRun
from visualizers.watermark.scan import ScannedText

KEYS = [654, 400, 836, 123, 340]
MARKS = {
    "lefthash": {"bias": 4.0, "context_width": 2},
    "selfhash": {"bias": 2.5, "seeding_scheme": "selfhash", "context_width": 3},
    "synthid": {"ngram_len": 4, "keys": KEYS},
}


@pytest.fixture(scope="module")
def marked(embedded: Playground) -> dict[str, Trace]:
    runs = [("sample", {"watermarking_config": mark}) for mark in MARKS.values()]
    traces = embedded.compare("The old house", runs, max_new_tokens=40, seed=2)
    return dict(zip(MARKS, traces, strict=True))


def found(lab: Playground, trace: Trace, scheme: str, **options: object) -> watermark.Detection:
    own = {k: v for k, v in MARKS[scheme].items() if k != "seeding_scheme"}
    ids = trace.sequences[0].token_ids
    return watermark.detect(lab.model, ids, scheme=scheme, **own, **options)


def test_the_score_by_length_ends_at_the_score_of_the_text(embedded, marked):
    detection = found(embedded, marked["lefthash"], "lefthash", z_threshold=2.5)
    info = length._info(detection)
    assert [point.z for point in info.points] == [at.z_score for at in over_length(detection)]
    assert info.points[-1].z == pytest.approx(detection.z_score)
    assert info.threshold == 2.5
    figure = length.watermark_length(detection)
    assert figure.layout.shapes[1].y0 == 2.5


def test_the_points_of_a_long_text_are_thinned_out_and_keep_the_last(embedded):
    text = "the quick brown fox jumps over the lazy dog " * 400
    detection = watermark.detect(embedded.model, text)
    info = length._info(detection)
    assert len(info.points) <= length.MAX_POINTS + 1
    assert info.points[-1].scored == detection.tokens_scored


def test_the_scan_frames_the_most_significant_passage(embedded, marked):
    human = embedded.token_decoder.ids(passages()[0].text)[:120]
    ids = [*human, *marked["lefthash"].sequences[0].token_ids]
    detection = watermark.detect(embedded.model, ids, **MARKS["lefthash"])
    text = ScannedText(detection, watermark.scan(detection))
    info, best = scan._info(text), text.scan.best
    assert info.significant and info.best == (best.start, best.end)
    assert info.best[0] >= len(human) - 5
    assert info.windows == slide(detection, info.width)
    assert scan.watermark_scan(text).layout.shapes[2].x0 == info.best[0] + 0.5


def test_g_values_are_shown_by_layer_with_gaps_for_unscored_tokens(embedded, marked):
    detection = found(embedded, marked["synthid"], "synthid")
    info = synthid_g_values._info(detection)
    assert len(info.by_layer) == len(KEYS) == len(info.means)
    assert [row[0] for row in info.by_layer] == [None] * len(KEYS)
    for at, token in enumerate(detection.tokens):
        if token.verdict != "unscored":
            assert tuple(row[at] for row in info.by_layer) == token.g_values
    for row, mean in zip(info.by_layer, info.means, strict=True):
        tossed = [g for g in row if g is not None]
        assert sum(tossed) / len(tossed) == pytest.approx(mean)


@pytest.mark.parametrize("scheme", watermark.SCHEMES)
def test_without_scored_tokens_the_figures_show_a_message(embedded, scheme):
    detection = watermark.detect(embedded.model, "", scheme=scheme)
    figures = [
        length.watermark_length(detection),
        scan.watermark_scan(ScannedText(detection, watermark.scan(detection))),
    ]
    if scheme == "synthid":
        figures.append(synthid_g_values.synthid_g_values(detection))
    for figure in figures:
        assert figure.layout.annotations[0].text == "No token could be scored."


@pytest.mark.parametrize("scheme", ["lefthash", "selfhash"])
def test_green_candidates_are_those_of_the_processors_own_list(embedded, marked, scheme):
    trace, own = marked[scheme], dict(MARKS[scheme])
    delta = own.pop("bias")
    size = embedded.model.module.config.vocab_size
    processor = WatermarkLogitsProcessor(
        vocab_size=size, device="cpu", greenlist_ratio=0.25, bias=delta, **own
    )
    path = best_path(trace)
    for at in (0, 7, 21):
        explained = explain(embedded.model, trace, at)
        tokens = [*trace.prompt_tokens, *(step.token for step in path[:at])]
        before = torch.tensor([token.id for token in tokens])
        for choice, candidate in zip(
            explained.choices, path[at].distribution.candidates, strict=True
        ):
            own_list = torch.tensor([candidate.token.id])
            seeds = torch.cat([before, own_list]) if scheme == "selfhash" else before
            greens = processor._get_greenlist_ids(seeds)
            assert choice.green == (candidate.token.id in greens)
        chosen = [choice for choice in explained.choices if choice.chosen]
        assert [choice.token for choice in chosen] == [path[at].token.text]


def test_the_bias_raises_green_candidates_and_the_bars_show_both_probabilities(embedded, marked):
    explained = explain(embedded.model, marked["lefthash"], 5)
    assert explained.green_after > explained.green_before
    assert explained.share == pytest.approx(0.25, abs=1e-4)
    bars = bias._info(BiasedStep(explained.choices)).bars
    assert [bar.after for bar in bars] == sorted((bar.after for bar in bars), reverse=True)
    for bar in bars:
        assert bar.name.endswith("green" if bar.green else "red")
        if bar.before > 0 and not bar.green:
            assert bar.after <= bar.before
    before, after = bias.watermark_bias(BiasedStep(explained.choices)).data
    assert before.marker.pattern.shape == "/" and list(after.x) == [bar.after for bar in bars]


def test_a_position_outside_the_run_is_moved_to_the_nearest_inside(embedded, marked):
    assert explain(embedded.model, marked["lefthash"], 4_000).at == 39


def test_every_step_that_recorded_its_colour_has_a_point(marked):
    trace = marked["lefthash"]
    info = entropy._info(GreenListRun(trace, 0.25))
    path = best_path(trace)
    assert [point.green for point in info.points] == [step.notes["green"] for step in path]
    assert sum(one.tokens for one in info.bins) == len(path)
    assert sum(one.green for one in info.bins) == sum(point.green for point in info.points)
    [message] = entropy.watermark_entropy(GreenListRun(marked["synthid"], 0.25)).layout.annotations
    assert message.text.startswith("Not captured")
