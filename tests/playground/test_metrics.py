"""Metrics of small traces against manual results, and the CSV table."""

import csv
import io
import json
import math
from dataclasses import fields, replace

import pytest

from engine.trace import Sequence, Stop, Tick, Token
from playground.metrics import METRIC_TEXTS, RunMetrics, as_csv, headline, run_metrics, table
from tests.conftest import EVIL


def written(trace, ids):
    """The trace with other tokens in its best sequence, step by step."""
    steps = tuple(
        replace(
            trace.steps[0], id=place, parent=place - 1 if place else None, token=Token(id, f" {id}")
        )
        for place, id in enumerate(ids)
    )
    best = Sequence(tuple(ids), "", tuple(range(len(ids))), Stop("length"))
    return replace(trace, steps=steps, sequences=(best,))


def noted(trace, notes):
    steps = tuple(replace(step, notes=note) for step, note in zip(trace.steps, notes, strict=True))
    return replace(trace, steps=steps)


def test_metrics_of_a_chain_agree_with_manual_results(greedy_trace):
    found = run_metrics(greedy_trace)
    probabilities = (0.8, 0.4, 0.05, 0.005, 0.95)
    mean = math.log(math.prod(probabilities)) / 5
    assert (found.tokens, found.captured) == (5, 5)
    assert (found.seconds, found.tokens_per_second) == (1.25, 4.0)  # five ticks of 250 ms
    assert (found.forward_passes, found.draft_passes, found.nodes) == (5, 0, 10)
    assert found.mean_log_probability == pytest.approx(mean)
    assert found.perplexity == pytest.approx(math.prod(probabilities) ** (-1 / 5))
    assert found.mean_entropy == 1.5
    assert (found.mean_rank, found.first_share) == (1.0, 1.0)
    assert (found.distinct_2, found.repetition) == (1.0, 0.0)
    assert (found.green_share, found.drafted, found.accepted, found.score) == (None,) * 4
    assert (found.stop, found.detail) == ("length", "max_new_tokens=5")


def test_metrics_of_beams_are_of_the_best_text(beam_trace):
    found = run_metrics(beam_trace)
    assert found.tokens == 3 and found.score == -0.32
    assert found.perplexity == pytest.approx((0.6 * 0.95 * 0.72) ** (-1 / 3))
    assert found.forward_passes == 10  # of the whole search


def test_mean_rank_and_share_of_first_choices(greedy_trace):
    ranks = (1, 4, 1, 7, 2)
    steps = [replace(step, rank=rank) for step, rank in zip(greedy_trace.steps, ranks, strict=True)]
    found = run_metrics(replace(greedy_trace, steps=tuple(steps)))
    assert (found.mean_rank, found.first_share) == (3.0, 0.4)


@pytest.mark.parametrize(
    ("ids", "distinct", "repetition"),
    [
        ([], None, None),
        ([1], None, None),
        ([1, 2], 1.0, None),
        ([1, 2, 3], 1.0, None),
        ([1, 2, 3, 4], 1.0, 0.0),
        ([1, 1, 1, 1], 1 / 3, 0.0),  # a single 4-gram is no repetition
        ([1, 1, 1, 1, 1], 1 / 4, 4 / 5),  # repeated at the second token
        ([1, 2, 3, 4, 1, 2, 3, 4], 4 / 7, 4 / 8),  # the first occurrence does not count
        ([1, 2, 3, 4, 9, 1, 2, 3, 4], 5 / 8, 4 / 9),
        ([1, 2, 3, 9, 1, 2, 3, 8], 5 / 7, 0.0),  # three equal tokens are too few
        ([1, 2, 3, 4, 5, 8, 1, 2, 3, 4, 5], 6 / 10, 5 / 11),  # overlapping grams count once
    ],
)
def test_repetition_counts_the_tokens_of_repeated_ngrams(greedy_trace, ids, distinct, repetition):
    found = run_metrics(written(greedy_trace, ids))
    assert (found.distinct_2, found.repetition) == (
        pytest.approx(distinct) if distinct else None,
        pytest.approx(repetition) if repetition is not None else None,
    )


def test_means_are_over_the_captured_tokens(greedy_trace):
    unseen = {"raw": None, "final": None, "rank": None, "distribution": None}
    steps = [replace(step, **unseen) if step.id < 3 else step for step in greedy_trace.steps]
    found = run_metrics(replace(greedy_trace, steps=tuple(steps)))
    assert (found.tokens, found.captured) == (5, 2)
    assert found.perplexity == pytest.approx((0.005 * 0.95) ** (-1 / 2))
    nothing = run_metrics(
        replace(greedy_trace, steps=tuple(replace(step, **unseen) for step in greedy_trace.steps))
    )
    assert (nothing.mean_log_probability, nothing.perplexity, nothing.mean_entropy) == (None,) * 3
    assert (nothing.mean_rank, nothing.first_share, nothing.captured) == (None, None, 0)
    assert nothing.distinct_2 == 1.0  # the tokens themselves are known


def test_perplexity_of_an_impossible_text_is_none(greedy_trace):
    steps = tuple(replace(step, raw=-5000.0) for step in greedy_trace.steps)
    found = run_metrics(replace(greedy_trace, steps=steps))
    assert found.mean_log_probability == -5000.0 and found.perplexity is None


def test_green_share_is_of_the_tokens_with_a_colour(greedy_trace):
    notes = ({}, {"green": None}, {"green": True}, {"green": False}, {"green": True})
    assert run_metrics(noted(greedy_trace, notes)).green_share == pytest.approx(2 / 3)


def test_drafts_are_counted_over_the_whole_run(greedy_trace):
    fates = ("accepted", "rejected", "ignored", "ignored", "bonus")
    found = run_metrics(noted(greedy_trace, [{"verdict": fate} for fate in fates]))
    assert (found.drafted, found.accepted) == (4, 1)
    idle = run_metrics(noted(greedy_trace, [{"verdict": "chosen"}] * 5))
    assert (idle.drafted, idle.accepted) == (0, 0)  # no draft was found


def test_failed_and_instant_runs_have_metrics(failed_trace, greedy_trace):
    found = run_metrics(failed_trace)
    assert (found.tokens, found.seconds, found.tokens_per_second, found.stop) == (
        0,
        0,
        None,
        "error",
    )
    quick = run_metrics(replace(greedy_trace, ticks=(Tick(1, 1, 0.0),)))
    assert quick.tokens_per_second is None


def test_every_metric_has_a_help_text():
    assert list(METRIC_TEXTS) == [item.name for item in fields(RunMetrics)]
    assert len({words.name for words in METRIC_TEXTS.values()}) == len(METRIC_TEXTS)
    for words in METRIC_TEXTS.values():
        assert words.name and words.help.endswith(".") and ". " not in words.help


def test_headline_shows_only_metrics_with_a_value(greedy_trace, failed_trace):
    found = {name: value for name, value, _ in headline(greedy_trace)}
    assert found == {
        "tokens": "5",
        "seconds": "1.25",
        "tokens/s": "4.0",
        "forward passes": "5",
        "mean log-probability": "-1.90",
        "perplexity": "6.67",
        "mean entropy": "1.50",
        "first choices": "100%",
        "distinct-2": "1.00",
        "repetition": "0%",
    }
    assert [name for name, _, _ in headline(failed_trace)] == [
        "tokens",
        "seconds",
        "forward passes",
    ]
    helps = {words.name: words.help for words in METRIC_TEXTS.values()}
    assert all(helps[name] == help for name, _, help in headline(greedy_trace))


def test_headline_shows_the_share_of_the_passes_and_the_prompt_apart(greedy_trace):
    first = Tick(1, 8, 300.0, decided_ms=290.0, prompt_nodes=8, pass_nodes=0, own_nodes=0.0)
    later = Tick(1, 3, 100.0, decided_ms=90.0, prompt_nodes=0, pass_nodes=10, own_nodes=2.5)
    trace = replace(greedy_trace, ticks=(first, later, later))
    metrics = run_metrics(trace)
    assert (metrics.first_token_seconds, metrics.prompt_nodes) == (0.29, 8)
    assert metrics.pass_share == 0.25
    found = {name: value for name, value, _ in headline(trace)}
    assert found["first token"] == "0.29"
    assert found["forward passes"] == "2 + 1 for the prompt"
    assert found["share of the passes"] == "25% (2.5 of 10.0 tokens per pass)"


def test_a_run_alone_and_a_trace_of_an_earlier_version_have_no_share(greedy_trace):
    alone = Tick(1, 1, 100.0, prompt_nodes=0, pass_nodes=3, own_nodes=3.0)
    assert run_metrics(replace(greedy_trace, ticks=(alone,))).pass_share is None
    earlier = run_metrics(greedy_trace)
    assert (earlier.pass_share, earlier.prompt_nodes, earlier.first_token_seconds) == (None,) * 3


def test_headline_shows_drafts_and_tokens_not_captured(greedy_trace):
    fates = ("accepted", "rejected", "ignored", "ignored", "bonus")
    trace = noted(greedy_trace, [{"verdict": fate} for fate in fates])
    steps = (*trace.steps[:4], replace(trace.steps[4], raw=None, rank=None, distribution=None))
    ticks = (replace(trace.ticks[0], draft_passes=1234),)
    found = {name: value for name, value, _ in headline(replace(trace, steps=steps, ticks=ticks))}
    assert found["draft passes"] == "1,234" and found["accepted"] == "1 of 4 drafted"
    assert found["tokens captured"] == "4 of 5"


# The table


def test_table_has_a_row_for_each_run(toy_traces):
    greedy, beams, failed = table(toy_traces, ["one", "two", "three"])
    assert [greedy["run"], beams["strategy"], failed["error"]] == [
        "one",
        "beam_search",
        "dola needs <more> layers",
    ]
    assert json.loads(beams["settings"]) == toy_traces[1].settings
    assert greedy["text"] == toy_traces[0].text and EVIL in greedy["text"]
    assert {name: beams[name] for name in METRIC_TEXTS} == vars(run_metrics(toy_traces[1]))


def read(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv_can_be_read_back(toy_traces):
    rows = read(as_csv(toy_traces, ["one", "two", "three"]))
    assert [row["text"] for row in rows] == [trace.text for trace in toy_traces]
    assert float(rows[1]["score"]) == -0.32  # a number with its sign
    assert rows[2]["perplexity"] == ""
    assert as_csv([], []) == ""


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝"])
def test_no_csv_cell_is_a_formula(greedy_trace, start):
    text = f'{start}HYPERLINK("http://evil.example","a, b")'
    best = replace(greedy_trace.sequences[0], text=text)
    evil = replace(greedy_trace, sequences=(best,), error=text, model=text, strategy=text)
    [row] = read(as_csv([evil], [text]))
    for name in ("run", "strategy", "model", "error", "text"):
        assert row[name] == f"'{text}"


def test_metrics_of_the_embedded_model_agree_with_its_trace(embedded):
    [trace] = embedded.compare("I love my dog because", ["greedy"], max_new_tokens=40)
    found = run_metrics(trace)
    assert found.first_share == found.mean_rank == 1.0
    assert found.repetition > 0.5 and found.distinct_2 < 0.5
    assert found.perplexity == pytest.approx(
        math.exp(-sum(step.raw for step in trace.steps) / len(trace.steps))
    )
