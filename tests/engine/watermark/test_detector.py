"""Detection against transformers' own detector and against green lists drawn directly."""

import json
import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import WatermarkDetector, WatermarkingConfig, WatermarkLogitsProcessor

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.watermark.detector import SCHEMES, detect
from engine.watermark.retokenize import token_texts
from playground import Playground
from tests.tiny import SIZE, tiny

CASES = json.loads((Path(__file__).parents[2] / "strategies" / "golden.json").read_text())["cases"]
GOLDEN = [case for case in CASES if "detection" in case]
KEY = 77


def drawn(seed, length=120, *, vocabulary=SIZE):
    """Unmarked tokens in which pairs repeat."""
    fresh = random.Random(seed)
    ids = [fresh.randrange(3, vocabulary) for _ in range(length)]
    return ids + ids[: length // 3]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"{case['case']}-{case['prompt'][:9]}")
def test_golden_texts_are_detected_token_by_token(case, embedded):
    mark = dict(case["config"]["watermarking_config"])
    found = detect(embedded.model, case["sequences"][0], scheme=mark.pop("seeding_scheme"), **mark)
    theirs = {name: value[0] for name, value in case["detection"].items()}
    colours = Counter(token.verdict for token in found.tokens)
    assert colours["green"] == theirs["num_green_tokens"]
    assert colours["green"] + colours["red"] == theirs["num_tokens_scored"]
    assert found.z_score == pytest.approx(theirs["z_score"], abs=1e-3)
    assert found.with_repeats.z_score == found.z_score
    assert found.marked is theirs["prediction"]
    assert found.verdict == "marked"


@pytest.mark.parametrize("ratio", [0.25, 0.5, 0.31])
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("scheme", ["lefthash", "selfhash"])
@pytest.mark.parametrize("first", [[], [1]], ids=["bare", "after a start token"])
def test_counts_and_scores_are_those_of_transformers(scheme, width, ratio, first):
    model, ids = tiny("llama"), first + drawn(3)
    fields = {"context_width": width, "greenlist_ratio": ratio, "hashing_key": KEY}
    for once in (False, True):
        theirs = WatermarkDetector(
            model.module.config,
            "cpu",
            WatermarkingConfig(seeding_scheme=scheme, **fields),
            ignore_repeated_ngrams=once,
        )(torch.tensor([ids]), return_dict=True)
        found = detect(model, ids, scheme=scheme, ignore_repeated=once, **fields)
        assert found.tokens_scored == theirs.num_tokens_scored[0]
        assert found.green_tokens == theirs.num_green_tokens[0]
        assert found.green_fraction == pytest.approx(theirs.green_fraction[0])
        assert found.z_score == pytest.approx(theirs.z_score[0], abs=1e-9)
        assert found.p_value == pytest.approx(theirs.p_value[0], abs=1e-12)
        assert found.marked == theirs.prediction[0]
        other = detect(model, ids, scheme=scheme, ignore_repeated=not once, **fields)
        either = (found.with_repeats, found.without_repeats)
        assert either == (other.with_repeats, other.without_repeats)
        assert either[once].z_score == found.z_score


@cache
def hashes():
    return torch.randperm(1_000_003, generator=torch.Generator().manual_seed(KEY)).tolist()


def green_by_hand(scheme, before, token, ratio):
    """The paper's algorithm: seed a generator, shuffle the vocabulary, take its first part."""
    rng, table = torch.Generator(), hashes()
    seed = KEY * before[-1]
    if scheme == "selfhash":
        seeds = [KEY * (table[one] + 1) * (table[token] + 1) for one in [*before, token]]
        seed = min(seeds)
    rng.manual_seed(seed % (2**64 - 1))
    return token in torch.randperm(SIZE, generator=rng)[: int(SIZE * ratio)].tolist()


@pytest.mark.parametrize(
    ("scheme", "width", "context"), [("lefthash", 1, 1), ("lefthash", 3, 3), ("selfhash", 3, 2)]
)
def test_colours_equal_those_of_a_direct_draw(scheme, width, context):
    ids = drawn(4, 45)
    found = detect(
        tiny("llama"), ids, scheme=scheme, context_width=width, hashing_key=KEY, greenlist_ratio=0.4
    )
    assert [token.why for token in found.tokens[:context]] == ["context"] * context
    assert all(token.verdict == "unscored" for token in found.tokens[:context])
    for at in range(context, len(ids)):
        green = green_by_hand(scheme, ids[at - context : at], ids[at], 0.4)
        assert found.tokens[at].verdict == ("green" if green else "red"), at


def test_colours_equal_those_of_the_processors_own_list(embedded):
    vocabulary = embedded.model.module.config.vocab_size
    ids = drawn(5, 40, vocabulary=vocabulary)
    processor = WatermarkLogitsProcessor(vocabulary, "cpu", hashing_key=KEY)
    found = detect(embedded.model, ids, hashing_key=KEY)
    for at in range(1, len(ids)):
        listed = ids[at] in processor._get_greenlist_ids(torch.tensor(ids[at - 1 : at])).tolist()
        assert (found.tokens[at].verdict == "green") is listed


@pytest.mark.parametrize("scheme", ["lefthash", "selfhash"])
def test_detection_agrees_with_the_green_notes_of_a_run(embedded, scheme):
    mark = {"bias": 4.0, "seeding_scheme": scheme}
    [run] = embedded.compare(
        "My day:", [("sample", {"watermarking_config": mark})], max_new_tokens=40, seed=2
    )
    [text] = run.sequences
    noted = [run.steps[at].notes["green"] for at in text.steps]
    found = detect(embedded.model, text.token_ids, scheme=scheme)
    assert found.verdict == "marked"
    pairs = [
        (token.verdict == "green", note) for token, note in zip(found.tokens, noted, strict=True)
    ]
    # With selfhash the processor raises only green tokens among the 40 most probable.
    assert all(green or not note for green, note in pairs[1:])
    if scheme == "lefthash":
        assert all(green == note for green, note in pairs[1:])


def test_ignored_repeats_are_not_scored():
    ids = [10, 11, 12, 10, 11, 13, 10, 11]
    [found, once] = [detect(tiny("llama"), ids, ignore_repeated=flag) for flag in (False, True)]
    assert [token.repeated for token in found.tokens] == [False] * 4 + [True, False, False, True]
    assert [token.why for token in once.tokens][3:] == ["", "repeated", "", "", "repeated"]
    assert (found.tokens_scored, once.tokens_scored) == (7, 5)


def test_a_wide_context_does_not_make_pairs_independent():
    ids = [10, 11, 12, 11, 12, 13, 11, 12]
    found = detect(tiny("llama"), ids, context_width=2)
    assert found.without_repeats.tokens_scored == found.with_repeats.tokens_scored == 6
    assert found.independent.tokens_scored == 4  # 11 12 occurs three times and counts once
    assert [token.redrawn for token in found.tokens][-1] is True


def test_repeated_text_is_no_evidence(embedded):
    """Without ignoring repeats, a refrain of a few green pairs would pass any threshold."""
    refrain = next(
        words
        for words in ([at, at + 1] * 60 for at in range(1000, 2000))
        if detect(embedded.model, words).green_fraction > 0.9
    )
    found = detect(embedded.model, refrain)
    assert found.marked and found.z_score > 10
    assert found.verdict == "too short to say"
    assert "only 2 of 120 tokens are independent" in found.reason
    long = refrain + drawn(9, 300, vocabulary=49_000)
    assert detect(embedded.model, long).z_score > 5
    assert detect(embedded.model, long).verdict == "not marked"
    assert "repeats are no evidence" in detect(embedded.model, long).reason


@pytest.mark.parametrize(("length", "verdict"), [(5, "too short to say"), (6, "not marked")])
def test_a_text_is_too_short_until_all_green_tokens_would_reach_the_threshold(length, verdict):
    """0.25^5 is the first power below the p-value of z > 3, and five pairs are six tokens."""
    found = detect(tiny("llama"), range(20, 20 + length), hashing_key=4)
    assert found.green_tokens < found.tokens_scored == length - 1
    assert found.verdict == verdict


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("text", ["", "x", "\0", "\ud800", " "], ids=ascii)
def test_a_text_without_scored_tokens_is_too_short(text, scheme):
    found = detect(
        tiny("llama"), text, scheme=scheme, **({} if scheme == "synthid" else {"context_width": 3})
    )
    assert found.tokens_scored == 0 and found.verdict == "too short to say" and not found.marked
    assert (found.z_score, found.exact_p) == (0.0, 1.0)
    assert "is too short to say" in found.reason


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "text",
    [
        "В начале было слово, и слово было у кого-то.",
        "吾輩は猫である。名前はまだ無い。",
        bytes(range(256)).decode("utf-8", "replace") * 3,
        "half a pair \udc80 and \ud83d\ude00 a whole one in halves",
        "\0" * 400,
        "<|im_end|><|im_start|>" * 20,
    ],
    ids=["Russian", "Japanese", "bytes", "surrogates", "NULs", "special tokens"],
)
def test_unusual_texts_are_detected_without_errors(text, scheme, embedded):
    found = detect(embedded.model, text, scheme=scheme)
    assert found.verdict in ("not marked", "too short to say")
    assert json.loads(json.dumps(found.to_dict()))["verdict"] == found.verdict


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(st.characters(codec=None, categories=None), max_size=40),
    scheme=st.sampled_from(SCHEMES),
    once=st.booleans(),
)
def test_arbitrary_texts_are_detected_without_errors(text, scheme, once):
    found = detect(tiny("llama"), text, scheme=scheme, ignore_repeated=once)
    assert len(found.tokens) >= found.tokens_scored >= found.green_tokens
    assert 0 <= found.exact_p <= 1
    json.dumps(found.to_dict())


WRONG = {
    "a key too large": ({"hashing_key": 10**20}, "hashing_key is 100000000000000000000; it must"),
    "a key beyond floats": ({"hashing_key": 10**400}, "it must be a whole number"),
    "a key of letters": ({"hashing_key": "x"}, "hashing_key is 'x'; it must be a whole number"),
    "a key that is true": ({"hashing_key": True}, "hashing_key is True; it must be"),
    "no green": ({"greenlist_ratio": 0}, "greenlist_ratio is 0; it must be"),
    "all green": ({"greenlist_ratio": 1}, "greenlist_ratio is 1; it must be"),
    "twice green": ({"greenlist_ratio": 2}, "greenlist_ratio is 2; it must be"),
    "no number": ({"greenlist_ratio": float("nan")}, "greenlist_ratio is nan; it must be"),
    "no context": ({"context_width": 0}, "context_width is 0; it must be"),
    "half a token": ({"context_width": 1.5}, "context_width is 1.5; it must be"),
    "a misspelling": ({"hash_key": 1}, "did you mean 'hashing_key'?"),
    "a scheme": ({"scheme": "lefthsh"}, "did you mean 'lefthash'?"),
    "a number for a scheme": ({"scheme": 3}, "one of 'lefthash', 'selfhash', 'synthid'"),
    "a threshold": ({"z_threshold": "high"}, "z_threshold is 'high'; it must be a number"),
    "an endless threshold": ({"z_threshold": float("inf")}, "z_threshold is inf; it must be"),
    "a flag": ({"ignore_repeated": 1}, "ignore_repeated is 1; it must be true or false"),
    "no keys": ({"scheme": "synthid", "keys": []}, "keys is []; it must be a list of 1 to"),
    "keys of letters": ({"scheme": "synthid", "keys": "abc"}, "keys is 'abc'; it must be a list"),
    "a key beyond bits": ({"scheme": "synthid", "keys": [2**63]}, "64-bit integers"),
    "keys that fall together": ({"scheme": "synthid", "keys": [1, 65537]}, "differ by a multiple"),
    "no n-gram": ({"scheme": "synthid", "ngram_len": 1}, "ngram_len is 1; it must be"),
    "a constant sampling table": (
        {"scheme": "synthid", "keys": [1], "sampling_table_size": 2, "sampling_table_seed": 1},
        "are equal",
    ),
}


@pytest.mark.parametrize(("fields", "words"), WRONG.values(), ids=WRONG)
def test_invalid_detector_settings_raise_an_error_that_names_them(fields, words):
    with pytest.raises(PlaygroundError) as refused:
        detect(tiny("llama"), "some text to judge", **fields)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"bytes", "of type bytes"),
        (5, "of type int"),
        (None, "of type NoneType"),
        ([1.5, 2], "it must be a str or a list of token ids"),
        ([3, SIZE], f"token id {SIZE} is not in the vocabulary of llama"),
        ([-1, 4], "token id -1"),
        ("long " * 21, "the text has 105 characters; at most 100 are read"),
        ([*range(3, 60)], "the text needs 56 green lists, one for each context; the limit is 50"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_texts_raise_an_error(text, words):
    limits = Limits(detect_characters=100, green_lists=50)
    with pytest.raises(PlaygroundError) as refused:
        detect(tiny("llama"), text, limits=limits, hashing_key=991)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ({"hashing_key": "x"}, "hashing_key is 'x'; it must be a whole number"),
        ({"hashing_key": 10**20}, "it must be a whole number"),
        ({"greenlist_ratio": 2}, "greenlist_ratio is 2; it must be"),
        ({"context_width": 1.5}, "context_width is 1.5; it must be"),
        ({"bias": "b"}, "bias is 'b'; it must be"),
        ({"ngram_len": 5}, "SynthID needs keys"),
        ({"ngram_len": 0, "keys": [1]}, "ngram_len is 0; it must be"),
        ({"ngram_len": 5, "keys": []}, "keys is []; it must be"),
        ({"ngram_len": 5, "keys": ["a"]}, "keys is ['a']; it must be"),
        (3, "it must be names and values"),
        (WatermarkingConfig(hashing_key="x"), "hashing_key is 'x'"),
    ],
    ids=str,
)
def test_an_invalid_watermark_raises_an_error(mark, words):
    lab = Playground(tiny("llama"))
    with pytest.raises(PlaygroundError) as refused:
        lab.compare("hi", ["sample"], max_new_tokens=2, watermarking_config=mark)
    assert words in str(refused.value)


def test_tokens_changed_by_a_round_trip_are_counted(embedded):
    tokenizer = embedded.model.tokenizer
    whole = tokenizer(" understanding matters here, as it does there").input_ids
    halves = tokenizer(" under").input_ids + tokenizer("standing").input_ids + whole[1:]
    kept, broken = (detect(embedded.model, ids) for ids in (whole, halves))
    assert (kept.round_trip.tokens, kept.round_trip.lost) == (len(whole), 0)
    assert kept.round_trip.score == kept.with_repeats
    assert (broken.round_trip.tokens, broken.round_trip.lost) == (len(halves), 2)
    assert broken.round_trip.score == kept.with_repeats
    assert detect(embedded.model, tokenizer.decode(whole)).round_trip is None


def test_token_texts_join_to_the_text(embedded):
    text = "Ein Vögelchen 🐦‍⬛ singt 日本語, naïve\n\tand so on"
    ids = embedded.model.tokenizer(text).input_ids
    assert "".join(token_texts(embedded.model, ids)) == text
    assert "".join(token.text for token in detect(embedded.model, text).tokens) == text


def test_scores_of_unmarked_tokens_follow_the_null_hypothesis(embedded):
    """Over 200 texts of 100 random tokens the mean of z has a standard error of 0.071 and its
    variance one of 0.1: five of either happen once in two million runs, and the draws are fixed."""
    vocabulary = embedded.model.module.config.vocab_size
    fresh = random.Random(11)
    tokens = [fresh.randrange(100, vocabulary) for _ in range(40)]
    zs = [
        detect(
            embedded.model, [fresh.choice(tokens) for _ in range(101)], hashing_key=k
        ).independent
        for k in range(20)
        for _ in range(10)
    ]
    values = torch.tensor([score.z_score for score in zs])
    assert abs(values.mean()) < 5 * 0.071
    assert abs(values.var() - 1) < 5 * 0.1


def test_another_threshold_or_ratio_draws_no_new_lists(embedded, monkeypatch):
    ids = drawn(6, 50, vocabulary=49_000)
    detect(embedded.model, ids, hashing_key=4711)
    monkeypatch.setattr(torch, "randperm", None)
    for ratio in (0.1, 0.5, 0.9):
        found = detect(embedded.model, ids, hashing_key=4711, greenlist_ratio=ratio, z_threshold=2)
        assert found.green_fraction == pytest.approx(ratio, abs=0.25)
