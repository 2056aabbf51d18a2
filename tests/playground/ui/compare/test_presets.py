"""Each preset shows what its text claims: the comparison is run and the effect measured."""

import json
import math
import re

import pytest

from engine.errors import PlaygroundError
from engine.settings import Limits, check
from engine.watermark.detector import detect
from playground import Playground
from playground.metrics import run_metrics
from playground.ui.compare.cards import cards_of, choice
from playground.ui.compare.presets import COLOURS, FIRST, PRESETS, TABS, Spot, listing, preset_at
from strategies import find

NAMED = {preset.title: preset for preset in PRESETS}
EVERY = pytest.mark.parametrize("preset", PRESETS, ids=list(NAMED))


@pytest.fixture
def run(embedded):
    """Runs a preset as the page does."""

    def run(title):
        preset = NAMED[title]
        runs = [choice(card, embedded) for card in cards_of(preset.cards, Limits())]
        shared = {"max_new_tokens": preset.max_new_tokens, "seed": preset.seed, **preset.shared}
        traces = embedded.compare(preset.full_prompt, runs, **shared)
        assert [trace.error for trace in traces] == [None] * len(runs)
        return traces

    return run


def path(trace):
    return [trace.steps[id] for id in trace.sequences[0].steps]


def common(texts):
    """The number of tokens that all sequences start with."""
    places = zip(*(text.token_ids for text in texts), strict=False)
    same = [len(set(tokens)) == 1 for tokens in places]
    return [*same, False].index(False)


def test_each_preset_has_a_test():
    assert len(PRESETS) >= 10 and PRESETS[0] is FIRST
    assert len(NAMED) == len({preset.point[:30] for preset in PRESETS}) == len(PRESETS)
    for title in NAMED:
        assert f"test_{'_'.join(re.findall('[a-z]+', title.lower()))}" in globals()


@EVERY
def test_settings_colours_tabs_and_spots_are_valid(embedded, preset):
    assert preset.spot.column is None or preset.spot.column < len(preset.cards)
    assert preset.spot.token is None or preset.spot.column is not None
    assert preset.colour in COLOURS and preset.tab in TABS
    assert len(preset.cards) <= Limits().strategies
    for card in cards_of(preset.cards, Limits()):
        id, given = choice(card, embedded)
        check(given, find(id).settings, Limits(), id)
        assert given.keys() <= card.values.keys()


def test_presets_that_a_model_cannot_run_say_why(embedded):
    assert {one["reason"] for one in json.loads(listing(embedded, Limits()))} == {""}
    plain = Playground("stories15m")
    reasons = {one["title"]: one["reason"] for one in json.loads(listing(plain, Limits()))}
    for title, preset in NAMED.items():
        assert ("no chat template" in reasons[title]) == preset.chat


@pytest.mark.parametrize("index", [-1, len(PRESETS), "0", None, True])
def test_a_forged_choice_is_rejected(index):
    with pytest.raises(PlaygroundError, match="there is no example"):
        preset_at(index)


def test_the_most_probable_text_repeats_itself(run):
    greedy, beams, drawn = map(run_metrics, run("The most probable text repeats itself"))
    assert min(greedy.repetition, beams.repetition) > 0.35
    assert drawn.repetition < 0.15


def test_temperature_is_not_creativity(run):
    surprise = [run_metrics(trace).perplexity for trace in run("Temperature is not creativity")]
    assert surprise == sorted(surprise)
    assert surprise[0] < 4 and surprise[-1] > 1000


def test_min_p_at_a_high_temperature(run):
    traces = run("Min-p at a high temperature")
    _, top_p, min_p = ([step.distribution.kept for step in path(trace)] for trace in traces)
    assert max(top_p) > 1000 and max(min_p) < 200
    _, top_p, min_p = (run_metrics(trace).perplexity for trace in traces)
    assert min_p < 50 < 1000 < top_p


def test_same_seed_one_setting_changed(run):
    wide, narrow = run("Same seed, one setting changed")
    parted = common([wide.sequences[0], narrow.sequences[0]])
    assert NAMED["Same seed, one setting changed"].spot == Spot(1, parted)
    assert 8 <= parted < len(wide.sequences[0].token_ids)
    # What parted them was cut there by the one that kept fewer.
    taken, cut = path(wide)[parted].token, path(narrow)[parted].distribution
    [candidate] = [item for item in cut.candidates if item.token == taken]
    assert candidate.raw > 0 and candidate.final == 0


def test_certain_and_uncertain_steps(run):
    greedy, drawn = run("Certain and uncertain steps")
    parted = common([greedy.sequences[0], drawn.sequences[0]])
    assert "Thursday, Friday, Saturday, Sunday" in greedy.text and "Sunday" in drawn.text
    entropies = [step.distribution.raw_entropy for step in path(greedy)]
    before, after = entropies[:parted], entropies[parted:]
    assert parted >= 7
    assert math.fsum(before) / len(before) < 0.7 < 2 < math.fsum(after) / len(after)


def test_facts_survive_sampling(run):
    greedy, drawn = run("Facts survive sampling")
    texts = [sequence.text for sequence in drawn.sequences]
    assert all("Paris" in text for text in (greedy.text, *texts))
    assert len(set(texts)) >= 3


def test_beams_look_ahead(run):
    greedy, beams = run("Beams look ahead")
    assert "scattering" in beams.text and "scattering" not in greedy.text
    assert run_metrics(beams).mean_log_probability > run_metrics(greedy).mean_log_probability


def test_diverse_beams(run):
    beams, diverse = run("Diverse beams")
    assert common(beams.sequences[:3]) >= 15
    assert len({sequence.token_ids[0] for sequence in diverse.sequences}) >= 3
    scores = [[sequence.score for sequence in trace.sequences] for trace in (beams, diverse)]
    assert all(free > apart for free, apart in zip(*scores, strict=True))


def test_force_a_word_into_the_text(run):
    free, forced = run("Force a word into the text")
    assert "dolphins" in forced.text and "dolphins" not in free.text
    assert "dolphins" not in forced.text[-12:]  # not merely hung on at the end
    assert run_metrics(forced).mean_log_probability < run_metrics(free).mean_log_probability


def test_contrastive_search_avoids_loops(run):
    greedy, contrastive = map(run_metrics, run("Contrastive search avoids loops"))
    assert greedy.repetition > 0.3 and contrastive.repetition == 0.0


def test_a_penalty_cannot_count(run):
    free, some, much = run("A penalty cannot count")
    assert free.text.startswith(" 3, 4, 5, 1, 2, 3, 4, 5")
    assert some.text.startswith(" 3") and "4" not in some.text
    assert not much.text.startswith(" 3")
    repeated = [run_metrics(trace).repetition for trace in (free, some, much)]
    assert repeated[0] > 0.3 and repeated[1:] == [0.0, 0.0]


def test_layers_that_disagree(run):
    greedy, dola = run("Layers that disagree")
    assert greedy.text.startswith(" Au") and dola.text.startswith(" Au")
    assert "atomic mass" in dola.text and "atomic mass" not in greedy.text
    assert run_metrics(greedy).first_share == 1.0 and run_metrics(dola).first_share < 0.7


def test_drafts_save_forward_passes(run):
    greedy, lookup, drafted = run("Drafts save forward passes")
    assert greedy.text == lookup.text == drafted.text
    passes = [run_metrics(trace).forward_passes for trace in (greedy, lookup, drafted)]
    assert passes[0] > passes[1] > passes[2] and passes[2] < 0.6 * passes[0]
    assert run_metrics(lookup).accepted > 0 and run_metrics(drafted).accepted > 0


def test_a_watermark_you_cannot_see(embedded, run):
    marked, plain = run("A watermark you cannot see")
    assert run_metrics(marked).green_share > 0.5
    fields = {"greenlist_ratio": 0.25, "scheme": "lefthash"}
    one, two = (
        detect(embedded.model, trace.sequences[0].token_ids, **fields) for trace in (marked, plain)
    )
    assert one.verdict == "marked" and one.z_score > 5
    assert two.verdict == "not marked" and two.green_fraction < 0.35


def test_synthid_tournament_sampling(embedded, run):
    marked, plain = run("SynthID: tournament sampling")
    one, two = (
        detect(embedded.model, trace.sequences[0].token_ids, scheme="synthid")
        for trace in (marked, plain)
    )
    assert one.verdict == "marked" and one.z_score > 5
    assert two.verdict == "not marked"
