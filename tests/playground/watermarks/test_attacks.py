"""Attacks: seeded, as strong as they say, and what they leave of a mark is as predicted.

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
from playground.watermarks.attacks import characters as attack_letters
from playground.watermarks.attacks import tokens as attack_tokens
from playground.watermarks.attacks.apply import ATTACKS, attack, curve
from playground.watermarks.attacks.registry import Stopped, Target
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
    """Twenty-odd thousand human tokens: rates show in them."""
    text = "\n\n".join(passage.text for passage in passages()[::6])
    return Target(embedded, text, tuple(embedded.speller.ids(text)))


def near(count, chance, of):
    return abs(count - chance * of) <= 5 * math.sqrt(of * chance * (1 - chance))


@pytest.mark.parametrize("id", ATTACKS)
def test_strength_0_changes_nothing(embedded, id):
    ids = embedded.speller.ids(TEXT)
    assert attack(embedded, TEXT, id, 0.0) == (TEXT, tuple(ids))
    assert attack(embedded, ids, id, 0.0).text == TEXT


@pytest.mark.parametrize("id", CHANGING)
def test_the_seed_decides_and_nothing_else(embedded, id):
    first, again, other = (attack(embedded, TEXT, id, 0.5, seed) for seed in (1, 1, 2))
    assert first == again and first.text != TEXT
    assert first != other or id == "truncate"
    assert first.ids == tuple(embedded.speller.ids(first.text))


@pytest.mark.parametrize("id", ATTACKS)
def test_every_attack_says_in_one_sentence_what_it_does_and_what_its_strength_is(id):
    found = ATTACKS[id]
    assert found.summary.endswith(".") and ". " not in found.summary
    assert found.strength.startswith("the ") and 0 < found.usual <= found.highest <= 1


def test_what_cannot_be_done_is_refused_in_words(embedded):
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
def test_as_many_tokens_are_deleted_inserted_and_replaced_as_the_strength_says(long, strength):
    total = len(long.ids)
    assert near(total - len(attack_tokens.delete(long, strength, Random(3))), strength, total)
    assert near(len(attack_tokens.insert(long, strength, Random(3))) - total, strength, total)
    replaced = attack_tokens.substitute(long, strength, Random(3))
    changed = sum(a != b for a, b in zip(long.ids, replaced, strict=True))
    assert near(changed, strength, total)


@pytest.mark.parametrize("strength", [0.1, 0.5, 1.0])
def test_as_many_tokens_change_places_as_the_strength_says(embedded, strength):
    target = Target(embedded, "", tuple(range(20_000)))
    swapped = attack_tokens.swap(target, strength, Random(3))
    moved = [abs(a - b) for a, b in zip(target.ids, swapped, strict=True)]
    assert sorted(swapped) == list(target.ids) and set(moved) <= {0, 1}
    # Tokens move in pairs, so their number varies as that of half as many coins, twice as worthy.
    assert abs(sum(moved) - strength * 20_000) <= 5 * math.sqrt(20_000 * 2) * (strength < 1)


def test_a_stronger_attack_from_the_same_seed_does_what_a_weaker_one_does_and_more(long):
    weak, strong = (attack_tokens.delete(long, strength, Random(4)) for strength in (0.2, 0.6))
    left = iter(weak)
    assert len(strong) < len(weak) and all(id in left for id in strong)


def test_new_tokens_are_human_ones_and_what_stood_there_stays_in_order(long):
    inserted = iter(attack_tokens.insert(long, 0.5, Random(5)))
    assert all(id in inserted for id in long.ids)
    human = set(chain.from_iterable(attack_tokens._human(long.lab.speller)))
    assert set(attack_tokens.substitute(long, 1.0, Random(5))) <= human


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_human_text_stands_around_the_whole_and_makes_up_its_share(embedded, share):
    ids = tuple(embedded.speller.ids(TEXT))
    places = set()
    for seed in range(8):
        mixed = attack_tokens.mix(Target(embedded, TEXT, ids), share, Random(seed))
        assert (len(mixed) - len(ids)) / len(mixed) == pytest.approx(share, abs=0.01)
        [place] = [at for at in range(len(mixed)) if tuple(mixed[at : at + len(ids)]) == ids]
        places.add(place)
    assert len(places) > 3


def test_the_end_is_cut_off(embedded):
    target = Target(embedded, "", tuple(range(200)))
    assert attack_tokens.truncate(target, 0.25, Random(0)) == target.ids[:150]
    assert attack(embedded, TEXT, "truncate", 1.0) == ("", ())


# Letters


def test_people_read_the_same_words_and_a_tokenizer_does_not(long):
    for strength in (0.1, 0.5):
        shouted = attack_letters.case(long, strength, Random(6))
        assert shouted.lower() == long.text.lower() and shouted != long.text
        spaced = attack_letters.whitespace(long, strength, Random(6))
        assert spaced.split() == long.text.split()
        double = attack_letters.lookalikes(long, strength, Random(6))
        back = str.maketrans({double: plain for plain, double in attack_letters.LOOKALIKES.items()})
        assert double.translate(back) == long.text and len(double) == len(long.text)
        bare = attack_letters.punctuation(long, strength, Random(6))
        assert [c for c in bare if c.isalnum()] == [c for c in long.text if c.isalnum()]


def test_letters_change_as_often_as_the_strength_says(long):
    doubles = sum(letter in attack_letters.LOOKALIKES for letter in long.text)
    changed = attack_letters.lookalikes(long, 0.3, Random(7))
    assert near(sum(a != b for a, b in zip(long.text, changed, strict=True)), 0.3, doubles)
    marks = sum(not (letter.isalnum() or letter.isspace() or letter == "_") for letter in long.text)
    assert near(len(long.text) - len(attack_letters.punctuation(long, 0.3, Random(7))), 0.3, marks)
    kept = attack_letters.whitespace(long, 0.3, Random(7))
    single = sum(a.isspace() and not b.isspace() for a, b in pairwise(kept))
    assert single == long.text.count(" ") + long.text.count("\n\n")
    assert attack_letters.case(Target(long.lab, "AB cd", ()), 1.0, Random(0)) == "ab CD"


# What is left of a mark


def test_the_score_after_deleting_is_as_predicted():
    """A token keeps the one before it with chance 1 - r; else it is green by chance alone. Of n
    tokens (1 - r) n are left, so z falls to (1 - r) sqrt(1 - r) of what it was."""
    lab, deleted, off = Playground(tiny("llama")), 0.5, []
    asked = [
        ("hello", ("sample", {"seed": run, "watermarking_config": {"hashing_key": KEY + run}}))
        for run in range(16)
    ]
    for update in lab.stream_each(asked, max_new_tokens=200, min_new_tokens=200):
        if update.trace is None:
            continue
        key, ids = KEY + update.run, update.trace.sequences[0].token_ids
        before = watermark.detect(lab.model, ids, hashing_key=key).z_score
        target = Target(lab, "", ids)
        left = [attack_tokens.delete(target, deleted, Random(seed)) for seed in range(8)]
        after = [watermark.detect(lab.model, ids, hashing_key=key).z_score for ids in left]
        assert before > 5
        off.append(fmean(after) - (1 - deleted) ** 1.5 * before)
    error = stdev(off) / math.sqrt(len(off))  # texts with keys of their own are independent
    assert len(off) == 16 and abs(fmean(off)) < 4 * error and error < 0.3


def test_a_curve_tells_the_score_before_and_after_at_every_strength(embedded):
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
    told = watermark.detect(embedded.model, attacked.ids)
    assert points[3][3:] == (len(attacked.ids), before, told.z_score, told.exact_p)
    [nothing] = curve(embedded, ids, "delete", [1.0])
    assert (nothing.tokens, nothing.after, nothing.exact_p) == (0, None, None)


@pytest.mark.parametrize("id", ATTACKS)
def test_where_there_is_nothing_to_score_there_is_no_score(embedded, id):
    for text in ("", "x"):
        [point] = curve(embedded, text, id, [0.0])
        assert (point.before, point.after, point.exact_p) == (None, None, None)


# The model writes


def test_the_model_rewrites_sentences_and_leaves_the_others(embedded):
    text = "The ship went on, and the sea closed over it. Nobody laughed; nobody could.\n"
    draws = Random(3)
    chosen = [draws.random() < 0.4 for _ in range(2)]
    assert chosen == [True, False]
    rewritten = attack(embedded, text, "rewrite", 0.4, seed=3).text
    assert rewritten.endswith(" Nobody laughed; nobody could.\n")
    assert "The ship went on, and the sea" not in rewritten and "<|im_end|>" not in rewritten
    assert rewritten == attack(embedded, text, "rewrite", 0.4, seed=3).text


def test_the_model_goes_on_for_the_share_asked_for(embedded):
    ids = embedded.speller.ids(TEXT)[:12]
    attacked = attack(embedded, ids, "continue", 0.5, seed=1)
    assert attacked.text.startswith(embedded.speller.text(ids))
    assert len(embedded.speller.ids(attacked.text)) == pytest.approx(24, abs=3)
    assert attacked == attack(embedded, ids, "continue", 0.5, seed=1)


def test_what_the_model_cannot_write_is_refused_in_words(embedded):
    with pytest.raises(PlaygroundError, match="at most 20000 are rewritten"):
        attack(embedded, "Hi. " * 6000, "rewrite", 0.5)
    with pytest.raises(PlaygroundError, match="max_new_tokens is 1803"):
        attack(embedded, "Hi. " * 300, "continue", 0.75)
    with pytest.raises(PlaygroundError, match="does not go on from it"):
        attack(Playground(tiny("t5")), "Hi there.", "continue", 0.5)


class Soon(threading.Event):
    """Is set once it was asked a number of times."""

    def __init__(self, asks):
        super().__init__()
        self.left = asks

    def is_set(self):
        self.left -= 1
        return self.left < 0


def test_stop_ends_an_attack_within_a_tick_and_a_curve_with_the_points_so_far(embedded):
    stop = Soon(3)
    with pytest.raises(Stopped):
        attack(embedded, TEXT, "continue", 0.75, stop=stop)
    assert stop.left == -1  # nobody went on after the first yes
    points = list(curve(embedded, TEXT, "delete", [0.1, 0.2, 0.3], stop=Soon(2)))
    assert [point.strength for point in points] == [0.1, 0.2]
