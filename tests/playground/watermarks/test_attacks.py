"""Attacks: reproducible, of the given strength, with the predicted effect on a watermark.

Bounds on chance are five standard deviations wide: a correct attack fails them for one seed in a
million, and the seeds here are fixed.
"""

import math
import threading
from itertools import chain, pairwise
from random import Random
from statistics import fmean, stdev

import pytest

from engine.errors import PlaygroundError
from engine.watermark import detector as watermark
from playground import Playground
from playground.stopping import Stopped
from playground.watermarks.attacks import characters, tokens
from playground.watermarks.attacks.apply import ATTACKS, attack, curve
from playground.watermarks.attacks.registry import Target
from playground.watermarks.human_texts import passages
from tests.tiny import tiny

TEXT = (
    'She said: "The whale is white, and Ahab is mad." Nobody laughed; nobody could. '
    "The ship went on, as ships do, and the sea closed over what had been said."
)
KEY = 15485863
CHANGING = [id for id, found in ATTACKS.items() if not found.writes]


@pytest.fixture(scope="module")
def long(embedded):
    """More than 20,000 human-written tokens, enough to measure rates."""
    text = "\n\n".join(passage.text for passage in passages()[::6])
    return Target(embedded, text, tuple(embedded.token_decoder.ids(text)))


def near(count, chance, of):
    return abs(count - chance * of) <= 5 * math.sqrt(of * chance * (1 - chance))


@pytest.mark.parametrize("id", ATTACKS)
def test_strength_0_changes_nothing(embedded, id):
    ids = embedded.token_decoder.ids(TEXT)
    assert attack(embedded, TEXT, id, 0.0) == (TEXT, tuple(ids))
    assert attack(embedded, ids, id, 0.0).text == TEXT


@pytest.mark.parametrize("id", CHANGING)
def test_attack_depends_only_on_the_seed(embedded, id):
    first, again, other = (attack(embedded, TEXT, id, 0.5, seed) for seed in (1, 1, 2))
    assert first == again and first.text != TEXT
    assert first != other or id == "truncate"
    assert first.ids == tuple(embedded.token_decoder.ids(first.text))


@pytest.mark.parametrize("id", ATTACKS)
def test_every_attack_has_a_description_of_itself_and_its_strength(id):
    found = ATTACKS[id]
    assert found.summary.endswith(".") and ". " not in found.summary
    assert found.strength.startswith("the ") and 0 < found.default <= found.highest <= 1


def test_invalid_attacks_raise(embedded):
    with pytest.raises(PlaygroundError, match="did you mean 'delete'"):
        attack(embedded, TEXT, "delet", 0.5)
    with pytest.raises(
        PlaygroundError, match="the share of human-written tokens in the result; it must be"
    ):
        attack(embedded, TEXT, "mix", 1.0)
    with pytest.raises(PlaygroundError, match="at least 0"):
        attack(embedded, TEXT, "delete", -0.1)
    with pytest.raises(PlaygroundError, match="at least 0"):
        attack(embedded, TEXT, "delete", math.nan)


# Rates


@pytest.mark.parametrize("strength", [0.1, 0.5, 0.9])
def test_strength_is_the_share_of_tokens_deleted_inserted_or_replaced(long, strength):
    total = len(long.ids)
    assert near(total - len(tokens.delete(long, strength, Random(3))), strength, total)
    assert near(len(tokens.insert(long, strength, Random(3))) - total, strength, total)
    replaced = tokens.substitute(long, strength, Random(3))
    changed = sum(a != b for a, b in zip(long.ids, replaced, strict=True))
    assert near(changed, strength, total)


@pytest.mark.parametrize("strength", [0.1, 0.5, 1.0])
def test_strength_is_the_share_of_tokens_swapped(embedded, strength):
    target = Target(embedded, "", tuple(range(20_000)))
    swapped = tokens.swap(target, strength, Random(3))
    moved = [abs(a - b) for a, b in zip(target.ids, swapped, strict=True)]
    assert sorted(swapped) == list(target.ids) and set(moved) <= {0, 1}
    # Tokens move in pairs, so the variance is that of half as many pairs, each counted twice.
    assert abs(sum(moved) - strength * 20_000) <= 5 * math.sqrt(20_000 * 2) * (strength < 1)


def test_stronger_attack_with_the_same_seed_changes_more_tokens(long):
    weak, strong = (tokens.delete(long, strength, Random(4)) for strength in (0.2, 0.6))
    left = iter(weak)
    assert len(strong) < len(weak) and all(id in left for id in strong)


def test_new_tokens_are_from_human_texts_and_the_order_is_kept(long):
    inserted = iter(tokens.insert(long, 0.5, Random(5)))
    assert all(id in inserted for id in long.ids)
    human = set(chain.from_iterable(tokens._human(long.lab.token_decoder)))
    assert set(tokens.substitute(long, 1.0, Random(5))) <= human


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_mixed_text_has_the_given_share_of_human_tokens_around_it(embedded, share):
    ids = tuple(embedded.token_decoder.ids(TEXT))
    places = set()
    for seed in range(8):
        mixed = tokens.mix(Target(embedded, TEXT, ids), share, Random(seed))
        assert (len(mixed) - len(ids)) / len(mixed) == pytest.approx(share, abs=0.01)
        [place] = [at for at in range(len(mixed)) if tuple(mixed[at : at + len(ids)]) == ids]
        places.add(place)
    assert len(places) > 3


def test_truncate_cuts_off_the_end(embedded):
    target = Target(embedded, "", tuple(range(200)))
    assert tokens.truncate(target, 0.25, Random(0)) == target.ids[:150]
    assert attack(embedded, TEXT, "truncate", 1.0) == ("", ())


# Letters


def test_character_attacks_keep_the_words_and_change_the_tokens(long):
    for strength in (0.1, 0.5):
        shouted = characters.case(long, strength, Random(6))
        assert shouted.lower() == long.text.lower() and shouted != long.text
        spaced = characters.whitespace(long, strength, Random(6))
        assert spaced.split() == long.text.split()
        double = characters.lookalikes(long, strength, Random(6))
        back = str.maketrans({double: plain for plain, double in characters.LOOKALIKES.items()})
        assert double.translate(back) == long.text and len(double) == len(long.text)
        bare = characters.punctuation(long, strength, Random(6))
        assert [c for c in bare if c.isalnum()] == [c for c in long.text if c.isalnum()]


def test_strength_is_the_share_of_characters_changed(long):
    doubles = sum(letter in characters.LOOKALIKES for letter in long.text)
    changed = characters.lookalikes(long, 0.3, Random(7))
    assert near(sum(a != b for a, b in zip(long.text, changed, strict=True)), 0.3, doubles)
    marks = sum(not (letter.isalnum() or letter.isspace() or letter == "_") for letter in long.text)
    assert near(len(long.text) - len(characters.punctuation(long, 0.3, Random(7))), 0.3, marks)
    kept = characters.whitespace(long, 0.3, Random(7))
    single = sum(a.isspace() and not b.isspace() for a, b in pairwise(kept))
    assert single == long.text.count(" ") + long.text.count("\n\n")
    assert characters.case(Target(long.lab, "AB cd", ()), 1.0, Random(0)) == "ab CD"


# The score after an attack


def test_score_after_deletion_agrees_with_the_prediction():
    """A token keeps its predecessor with probability 1 - r; otherwise it is green by chance only.
    Of n tokens (1 - r) n are left, so z falls by the factor (1 - r) sqrt(1 - r)."""
    lab, deleted, off = Playground(tiny("llama")), 0.5, []
    runs = [
        ("hello", ("sample", {"seed": run, "watermarking_config": {"hashing_key": KEY + run}}))
        for run in range(16)
    ]
    for update in lab.stream_each(runs, max_new_tokens=200, min_new_tokens=200):
        if update.trace is None:
            continue
        key, ids = KEY + update.run, update.trace.sequences[0].token_ids
        before = watermark.detect(lab.model, ids, hashing_key=key).z_score
        target = Target(lab, "", ids)
        left = [tokens.delete(target, deleted, Random(seed)) for seed in range(8)]
        after = [watermark.detect(lab.model, ids, hashing_key=key).z_score for ids in left]
        assert before > 5
        off.append(fmean(after) - (1 - deleted) ** 1.5 * before)
    error = stdev(off) / math.sqrt(len(off))  # independent, because each text has its own key
    assert len(off) == 16 and abs(fmean(off)) < 4 * error and error < 0.3


def test_curve_has_the_score_before_and_after_for_every_strength(embedded):
    [trace] = embedded.compare(
        "Whales are",
        [("sample", {"watermarking_config": {"bias": 6.0}})],
        max_new_tokens=48,
        min_new_tokens=48,
    )
    ids = trace.sequences[0].token_ids
    points = list(curve(embedded, ids, "substitute", [0.0, 0.5, 1.0], [0, 1]))
    assert [(point.strength, point.seed) for point in points] == [
        (strength, seed) for strength in (0.0, 0.5, 1.0) for seed in (0, 1)
    ]
    before = watermark.detect(embedded.model, ids).z_score
    assert {point.before for point in points} == {before} and before > 7
    assert points[0].after > 6 and points[-1].after < 3 < points[2].after
    attacked = attack(embedded, ids, "substitute", 0.5, 1)
    found = watermark.detect(embedded.model, attacked.ids)
    assert points[3][3:] == (len(attacked.ids), before, found.z_score, found.exact_p)
    [nothing] = curve(embedded, ids, "delete", [1.0])
    assert (nothing.tokens, nothing.after, nothing.exact_p) == (0, None, None)


@pytest.mark.parametrize("id", ATTACKS)
def test_score_is_none_without_scored_tokens(embedded, id):
    for text in ("", "x"):
        [point] = curve(embedded, text, id, [0.0])
        assert (point.before, point.after, point.exact_p) == (None, None, None)


# Attacks that use the model


def test_rewrite_changes_only_the_chosen_sentences(embedded):
    text = "The ship went on, and the sea closed over it. Nobody laughed; nobody could.\n"
    draws = Random(3)
    chosen = [draws.random() < 0.4 for _ in range(2)]
    assert chosen == [True, False]
    rewritten = attack(embedded, text, "rewrite", 0.4, seed=3).text
    assert rewritten.endswith(" Nobody laughed; nobody could.\n")
    assert "The ship went on, and the sea" not in rewritten and "<|im_end|>" not in rewritten
    assert rewritten == attack(embedded, text, "rewrite", 0.4, seed=3).text


def test_continuation_has_the_given_share_of_the_result(embedded):
    ids = embedded.token_decoder.ids(TEXT)[:12]
    attacked = attack(embedded, ids, "continue", 0.5, seed=1)
    assert attacked.text.startswith(embedded.token_decoder.text(ids))
    assert len(embedded.token_decoder.ids(attacked.text)) == pytest.approx(24, abs=3)
    assert attacked == attack(embedded, ids, "continue", 0.5, seed=1)


def test_texts_the_model_cannot_rewrite_or_continue_raise(embedded):
    with pytest.raises(PlaygroundError, match="at most 20000 are rewritten"):
        attack(embedded, "Hi. " * 6000, "rewrite", 0.5)
    with pytest.raises(PlaygroundError, match="max_new_tokens is 1803"):
        attack(embedded, "Hi. " * 300, "continue", 0.75)
    with pytest.raises(PlaygroundError, match="cannot continue a text"):
        attack(Playground(tiny("t5")), "Hi there.", "continue", 0.5)


class StopAfterChecks(threading.Event):
    """A stop event that is set after a number of checks."""

    def __init__(self, checks):
        super().__init__()
        self.left = checks

    def is_set(self):
        self.left -= 1
        return self.left < 0


def test_stop_ends_an_attack_within_a_tick_and_a_curve_with_the_points_so_far(embedded):
    stop = StopAfterChecks(3)
    with pytest.raises(Stopped):
        attack(embedded, TEXT, "continue", 0.75, stop=stop)
    assert stop.left == -1  # no further check after it was set
    points = list(curve(embedded, TEXT, "delete", [0.1, 0.2, 0.3], stop=StopAfterChecks(2)))
    assert [point.strength for point in points] == [0.1, 0.2]
