"""The z-score over the length of a text, and marked passages inside human text."""

import random

import pytest

from engine.errors import PlaygroundError
from engine.watermark.detection import Detection
from engine.watermark.detector import detect, over_length, scan
from engine.watermark.windows import slide

HUMAN = """It was the best of times, it was the worst of times, it was the age of wisdom, it was the
age of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season
of Light, it was the season of Darkness, it was the spring of hope, it was the winter of despair, we
had everything before us, we had nothing before us, we were all going direct to Heaven, we were all
going direct the other way. There were a king with a large jaw and a queen with a plain face, on the
throne of England; there were a king with a large jaw and a queen with a fair face, on the throne of
France. In both countries it was clearer than crystal to the lords of the State preserves of loaves
and fishes, that things in general were settled for ever."""

MARKS = {
    "lefthash": {"bias": 3.0},
    "selfhash": {"bias": 4.0, "seeding_scheme": "selfhash", "context_width": 2},
    "synthid": {"ngram_len": 5, "keys": [654, 400, 836, 123, 340, 443, 597, 160, 57, 29]},
}


@pytest.fixture(scope="module")
def marked(embedded):
    """A hundred tokens watermarked with each scheme."""
    runs = [("sample", {"watermarking_config": mark}) for mark in MARKS.values()]
    traces = embedded.compare(
        "The sea was", runs, max_new_tokens=100, min_new_tokens=100, seed=4, repetition_penalty=1.1
    )
    return {
        scheme: list(trace.sequences[0].token_ids)
        for scheme, trace in zip(MARKS, traces, strict=True)
    }


def detected(embedded, scheme, ids, **more) -> Detection:
    known = ("context_width", "ngram_len", "keys")
    fields = {name: value for name, value in MARKS[scheme].items() if name in known}
    return detect(embedded.model, ids, scheme=scheme, **fields, **more)


@pytest.mark.parametrize("scheme", MARKS)
def test_a_marked_passage_is_found_inside_human_text(embedded, marked, scheme):
    human = embedded.model.tokenizer(HUMAN).input_ids
    start, end = 110, 110 + 100
    found = detected(embedded, scheme, human[:start] + marked[scheme] + human[start:])
    seen = scan(found)
    assert seen.found and seen.best.corrected_p < 1e-4
    overlap = min(seen.best.end, end) - max(seen.best.start, start)
    assert overlap > 0.7 * (seen.best.end - seen.best.start), "most of the passage is watermarked"
    assert overlap > 0.5 * 100, "most of the watermarked text is in it"
    assert seen.best.corrected_p == pytest.approx(min(1, seen.best.p_value * seen.windows))
    texts = [token.text for token in found.tokens[seen.best.start : seen.best.end]]
    assert seen.best.text == "".join(texts)


@pytest.mark.parametrize("scheme", MARKS)
def test_no_passage_is_found_in_human_text(embedded, scheme):
    seen = scan(detected(embedded, scheme, HUMAN))
    assert not seen.found and seen.best.corrected_p > 0.01
    assert seen.windows > 400


def test_a_refrain_of_green_words_is_not_a_marked_passage(embedded):
    refrain = next(
        words
        for words in ([at, at + 1] * 60 for at in range(1000, 2000))
        if detect(embedded.model, words).green_fraction > 0.9
    )
    assert not scan(detect(embedded.model, refrain)).found


def test_scans_of_unmarked_tokens_rarely_find_anything(embedded):
    """z > 2 has a false positive rate of 2.3 %: ten in 60 texts happen once in two million."""
    fresh = random.Random(3)
    tokens = [fresh.randrange(100, 49_000) for _ in range(60)]
    texts = [[fresh.choice(tokens) for _ in range(150)] for _ in range(60)]
    found = [scan(detect(embedded.model, text, z_threshold=2.0)).found for text in texts]
    assert sum(found) < 10


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("scheme", MARKS)
def test_z_over_length_ends_at_the_z_of_the_text(embedded, marked, scheme, once):
    ids = marked[scheme] + marked[scheme][:20]
    found = detected(embedded, scheme, ids, ignore_repeated=once)
    points = over_length(found)
    assert len(points) == found.tokens_scored
    assert points[-1].z_score == pytest.approx(found.z_score)
    assert points[-1].green_tokens == found.green_tokens
    assert [found.tokens[point.position].verdict != "unscored" for point in points]
    middle = points[len(points) // 2]
    shorter = detected(embedded, scheme, ids[: middle.position + 1], ignore_repeated=once)
    assert middle.z_score == pytest.approx(shorter.z_score)


def test_a_window_is_scored_as_its_tokens_alone_would_be(embedded, marked):
    found = detect(embedded.model, marked["lefthash"])
    windows = slide(found, 20)
    new = [
        at for at, token in enumerate(found.tokens) if token.value is not None and not token.redrawn
    ]
    assert len(windows) == len(new) - 19
    for window in windows[::7]:
        values = [found.tokens[at].value for at in new if window.start <= at < window.end]
        assert len(values) == 20
        assert window.z_score == pytest.approx((sum(values) - 5) / (20 * 0.1875) ** 0.5)
    best = scan(found, widths=[20])
    assert best.widths == (20, len(new)) and best.windows == len(windows) + 1


def test_a_text_without_scored_tokens_has_no_windows(embedded):
    found = detect(embedded.model, "x")
    assert over_length(found) == () and slide(found, 5) == ()
    seen = scan(found)
    assert (seen.best, seen.found, seen.windows) == (None, False, 0)
    assert seen.to_dict()["widths"] == []


@pytest.mark.parametrize("width", [0, -3, 1.5, "x", True])
def test_an_invalid_window_width_raises_an_error(embedded, width):
    with pytest.raises(PlaygroundError, match="it must be a positive integer"):
        scan(detect(embedded.model, "some text"), widths=[width])
