"""The figures of a detection show its numbers, and a step's figures those of its trace."""

import pytest
import torch
from transformers import WatermarkLogitsProcessor

from engine.trace import Trace
from engine.watermark import detector as watermark
from engine.watermark.windows import over_length, slide
from playground import Playground
from playground.watermarks.green_list_step import explain
from playground.watermarks.human_texts import passages
from playground.watermarks.strategy_effects import GREEN, SYNTHID, watermark_effect
from strategies import registered
from visualizers import best_path
from visualizers.watermark import bias as watermark_bias
from visualizers.watermark import entropy as watermark_entropy
from visualizers.watermark import length as watermark_length
from visualizers.watermark import scan as watermark_scan
from visualizers.watermark import synthid_g_values

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


def test_the_score_over_length_ends_at_the_score(embedded, marked):
    detection = found(embedded, marked["lefthash"], "lefthash", z_threshold=2.5)
    info = watermark_length._info(detection)
    assert [point.z for point in info.points] == [at.z_score for at in over_length(detection)]
    assert info.points[-1].z == pytest.approx(detection.z_score)
    assert info.threshold == 2.5
    figure = watermark_length.watermark_length(detection)
    assert figure.layout.shapes[1].y0 == 2.5


def test_a_long_text_is_thinned_and_keeps_its_end(embedded):
    text = "the quick brown fox jumps over the lazy dog " * 400
    detection = watermark.detect(embedded.model, text)
    info = watermark_length._info(detection)
    assert len(info.points) <= watermark_length.MOST + 1
    assert info.points[-1].scored == detection.tokens_scored


def test_the_scan_frames_the_most_unusual_passage(embedded, marked):
    human = embedded.speller.ids(passages()[0].text)[:120]
    ids = [*human, *marked["lefthash"].sequences[0].token_ids]
    detection = watermark.detect(embedded.model, ids, **MARKS["lefthash"])
    scan = watermark.scan(detection)
    info = watermark_scan._info(detection, scan)
    assert info.found and info.best == (scan.best.start, scan.best.end)
    assert info.best[0] >= len(human) - 5
    assert info.windows == slide(detection, info.width)
    assert watermark_scan.watermark_scan(detection, scan).layout.shapes[2].x0 == info.best[0] + 0.5


def test_g_values_stand_by_layer_and_a_gap_was_not_scored(embedded, marked):
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
def test_nothing_scored_is_said_and_drawn(embedded, scheme):
    detection = watermark.detect(embedded.model, "", scheme=scheme)
    figures = [
        watermark_length.watermark_length(detection),
        watermark_scan.watermark_scan(detection, watermark.scan(detection)),
    ]
    if scheme == "synthid":
        figures.append(synthid_g_values.synthid_g_values(detection))
    for figure in figures:
        assert figure.layout.annotations[0].text == "no token could be scored"


@pytest.mark.parametrize("scheme", ["lefthash", "selfhash"])
def test_green_candidates_are_those_the_processor_itself_makes_green(embedded, marked, scheme):
    trace, own = marked[scheme], dict(MARKS[scheme])
    bias = own.pop("bias")
    size = embedded.model.module.config.vocab_size
    processor = WatermarkLogitsProcessor(
        vocab_size=size, device="cpu", greenlist_ratio=0.25, bias=bias, **own
    )
    path = best_path(trace)
    for at in (0, 7, 21):
        told = explain(embedded.model, trace, at)
        tokens = [*trace.prompt_tokens, *(step.token for step in path[:at])]
        before = torch.tensor([token.id for token in tokens])
        for choice, candidate in zip(told.choices, path[at].distribution.candidates, strict=True):
            own_list = torch.tensor([candidate.token.id])
            seeds = torch.cat([before, own_list]) if scheme == "selfhash" else before
            greens = processor._get_greenlist_ids(seeds)
            assert choice.green == (candidate.token.id in greens)
        chosen = [choice for choice in told.choices if choice.chosen]
        assert [choice.token for choice in chosen] == [path[at].token.text]


def test_the_bias_raises_green_candidates_and_the_bars_say_both(embedded, marked):
    told = explain(embedded.model, marked["lefthash"], 5)
    assert told.green_after > told.green_before
    assert told.share == pytest.approx(0.25, abs=1e-4)
    bars = watermark_bias._info(told.choices).bars
    assert [bar.after for bar in bars] == sorted((bar.after for bar in bars), reverse=True)
    for bar in bars:
        assert bar.name.endswith("green" if bar.green else "red")
        if bar.before > 0 and not bar.green:
            assert bar.after <= bar.before
    before, after = watermark_bias.watermark_bias(told.choices).data
    assert before.marker.pattern.shape == "/" and list(after.x) == [bar.after for bar in bars]


def test_a_place_that_the_run_did_not_write_is_moved_to_one_that_it_did(embedded, marked):
    assert explain(embedded.model, marked["lefthash"], 4_000).at == 39


def test_entropy_stands_against_green_for_every_step_that_noted_it(marked):
    trace = marked["lefthash"]
    info = watermark_entropy._info(trace, 0.25)
    path = best_path(trace)
    assert [dot.green for dot in info.dots] == [step.notes["green"] for step in path]
    assert sum(group.steps for group in info.groups) == len(path)
    assert sum(group.green for group in info.groups) == sum(dot.green for dot in info.dots)
    plain = watermark_entropy.watermark_entropy(marked["synthid"], 0.25)
    assert plain.layout.annotations[0].text == "no step recorded whether it is green"


def test_every_strategy_has_a_word_on_what_it_does_to_a_mark():
    assert GREEN.keys() == SYNTHID.keys() == registered().keys()
    assert "not known" in watermark_effect("no such strategy", "lefthash")
