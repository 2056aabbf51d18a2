// What the marks of a token mean.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./loading.mjs";

const NAMES = ["CHANNELS", "viridis", "markOf", "legendOf", "spoken", "channelOf"];
const { CHANNELS, viridis, markOf, legendOf, spoken, channelOf } = load(["writing.js", "colours.js"], NAMES);

const place = (more = {}) => ({
  token: " dog", text: " dog", raw: 0.25, final: 0.5, rank: 2, notes: {}, given: false,
  distribution: { entropy: [1.5, 0.5] }, ...more,
});
const unseen = place({ raw: null, rank: null, distribution: null });

test("viridis runs from dark purple to yellow and never beyond", () => {
  assert.equal(viridis(0), "rgb(68 1 84)");
  assert.equal(viridis(1), "rgb(253 231 37)");
  assert.equal(viridis(-1), viridis(0));
  assert.equal(viridis(7), viridis(1));
});

test("ranks are told in four buckets", () => {
  const lines = [1, 2, 5, 6, 20, 21, 40000].map((rank) => markOf(place({ rank }), "rank").line);
  assert.deepEqual(lines, ["none", "dotted", "dotted", "dashed", "dashed", "wavy", "wavy"]);
});

test("every measure says its value in words, raw and not as used", () => {
  assert.equal(markOf(place(), "probability").words, "25.0 %");
  assert.equal(markOf(place(), "surprisal").words, "surprisal 2.0 bits");
  assert.equal(markOf(place(), "entropy").words, "entropy 1.50 nats");
  assert.equal(markOf(place({ raw: 1 }), "surprisal").words, "surprisal 0.0 bits");
});

test("the surer the model, the nearer to yellow, in every measure", () => {
  const sure = place({ raw: 1, rank: 1, distribution: { entropy: [0, 0] } });
  for (const name of ["probability", "rank", "entropy", "surprisal"]) {
    assert.equal(markOf(sure, name).tint, viridis(1), name);
    assert.equal(markOf(sure, name).line, "none", name);
  }
  assert.equal(markOf(place({ raw: 1e-12 }), "surprisal").tint, viridis(0));
});

test("what was not captured has no mark in any channel", () => {
  for (const name of Object.keys(CHANNELS)) assert.equal(markOf(unseen, name), null, name);
});

test("a token is green, not green, or nothing is known of it", () => {
  const words = [true, false, undefined].map((green) => markOf(place({ notes: { green } }), "green")?.words);
  assert.deepEqual(words, ["on the green list", "not on it", undefined]);
});

test("a draft says where it came from, and one copied from the text is told apart", () => {
  const words = (notes) => markOf(place({ notes }), "draft")?.words;
  assert.equal(words({ verdict: "accepted" }), "drafted, accepted");
  assert.equal(words({ verdict: "accepted", copied_from: 0 }), "copied from before, accepted");
  assert.equal(words({ verdict: "resampled" }), "resampled after a rejection");
  assert.equal(words({}), undefined);
});

test("no two kinds of a channel share a line: colour is never alone", () => {
  for (const { kinds, levels } of Object.values(CHANNELS)) {
    const lines = (levels ?? Object.values(kinds)).map(({ line }) => line);
    assert.equal(new Set(lines).size, lines.length);
  }
});

test("a legend has a ramp with numbers at its ends, or a sample for every mark", () => {
  assert.deepEqual(legendOf("entropy", "background").ends, ["6 nats or more", "0 nats"]);
  assert.deepEqual(legendOf("rank", "background").samples.map(({ words }) => words), [
    "1st", "2nd to 5th", "6th to 20th", "21st or further",
  ]);
  assert.equal(legendOf("surprisal", "underline").samples.length, 4);
  assert.equal(legendOf("none", "background").samples.length, 0);
});

test("a look nobody knows, from a link, is no mark", () => {
  assert.equal(channelOf("constructor"), CHANNELS.none);
  assert.equal(markOf(place(), "__proto__"), null);
});

test("a token is called by its text, its numbers, and what the marks add", () => {
  const usual = { background: "probability", underline: "rank" };
  assert.equal(spoken(place(), usual), "dog, 25.0 %, rank 2");
  assert.equal(spoken(unseen, usual), "dog, not captured");
  assert.equal(spoken(place({ text: "", token: "\n" }), usual), "⏎, 25.0 %, rank 2");
  assert.equal(spoken({ ...unseen, given: true }, usual), "dog, given by you");
  assert.equal(spoken(place(), { background: "entropy", underline: "entropy" }), "dog, 25.0 %, rank 2, entropy 1.50 nats");
});
