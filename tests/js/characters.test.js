// Characters that are split over several tokens are shown once and whole.

import assert from "node:assert/strict";
import { test } from "node:test";
import { visible } from "../../playground/ui/shared/web/format.js";
import { nameOf, partsOf, sharesOf } from "../../playground/ui/compare/web/characters.js";

// Tokens: a text, or a pair of a spelling and a text.
const tokens = (...given) => given.map((one) => (typeof one === "string" ? { token: one, text: one } : { token: one[0], text: one[1] }));
const texts = (...given) => sharesOf(tokens(...given)).map((share) => share.text);
const parts = (...given) => {
  const shares = sharesOf(tokens(...given));
  return shares.map((_, at) => partsOf(shares, at));
};

test("tokens that share no character show their own texts", () => {
  const words = [" one", " two", "\n", "שלו", "ם", "مر", "حبا", "日", "本", "!"];
  assert.deepEqual(texts(...words), words);
  assert.deepEqual(parts(...words), words.map(() => []));
});

test("the bytes of a character are shown by the last of them", () => {
  const face = [" a", ["<0xF0><0x9F>", ""], ["<0x98>", ""], ["<0x80>", "😀"], " b"];
  assert.deepEqual(texts(...face), [" a", "", "", "😀", " b"]);
  assert.deepEqual(parts(...face), [[], [1, 2, 3], [1, 2, 3], [1, 2, 3], []]);
});

test("two characters in a row are two groups", () => {
  const letters = [["<0xD7>", ""], ["<0xA9>", "ש"], ["<0xD7>", ""], ["<0x9C>", "ל"]];
  assert.deepEqual(texts(...letters), ["", "ש", "", "ל"]);
  assert.deepEqual(parts(...letters), [[0, 1], [0, 1], [2, 3], [2, 3]]);
});

test("sequences joined by a zero-width joiner, flags and skin tones are one character", () => {
  assert.deepEqual(texts("👩", "\u200d", "👩", "\u200d", "👧"), ["", "", "", "", "👩\u200d👩\u200d👧"]);
  assert.deepEqual(texts(" ", "🇩", "🇪", "🇫", "🇷"), [" ", "", "🇩🇪", "", "🇫🇷"]);
  assert.deepEqual(texts("👍", "🏽", "!"), ["", "👍🏽", "!"]);
  const joined = ["👩", ["<0xE2>", ""], ["<0x80><0x8D>", "\u200d"], ["<0xF0><0x9F>", ""], ["<0x91><0xA7>", "👧"]];
  assert.deepEqual(texts(...joined), ["", "", "", "", "👩\u200d👧"]);
  assert.deepEqual(parts(...joined)[4], [0, 1, 2, 3, 4]);
});

test("a combining mark takes its letter from the token before", () => {
  assert.deepEqual(texts(" cafe", "\u0301", " x"), [" caf", "e\u0301", " x"]);
  assert.deepEqual(parts(" cafe", "\u0301", " x"), [[], [0, 1], []]);
  assert.deepEqual(texts(" cafe", "\u0301s"), [" caf", "e\u0301s"]);
});

test("no character is lost", () => {
  const all = [" e", "\u0301", "👩", "\u200d", ["<0xF0>", ""], ["<0x9F><0x91><0xA7>", "👧"], "", "\r", "\n", "\u0301", "न", "म", "स्", "ते"];
  const whole = tokens(...all);
  assert.equal(sharesOf(whole).map((share) => share.text).join(""), whole.map(({ text }) => text).join(""));
});

test("bytes that are no character yet, and tokens without text, stand for themselves", () => {
  const cut = [" a", ["<0xF0><0x9F>", ""], ["<0x98>", ""]];
  assert.deepEqual(texts(...cut), [" a", "", ""]);
  assert.deepEqual(parts(...cut), [[], [], []]);
  assert.deepEqual(parts(["</s>", ""], " a"), [[], []]);
});

test("a part of a character names the character and its own spelling", () => {
  const face = tokens(["<0xF0><0x9F>", ""], ["<0x98><0x80>", "😀"], " b");
  const shares = sharesOf(face);
  assert.deepEqual([0, 1, 2].map((at) => nameOf(face, shares, at)), ["<0xF0><0x9F>, part 1 of 2 of 😀", "😀, in 2 tokens", "b"]);
});

test("a part that is invisible by itself is made visible", () => {
  assert.deepEqual(["\u200d", "\u200c", "\u0301", " a", "👩\u200d👧"].map(visible), ["ZWJ", "ZWNJ", "◌\u0301", "␣a", "👩\u200d👧"]);
});
