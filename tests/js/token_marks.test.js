// What the marks of a token show.

import assert from "node:assert/strict";
import { test } from "node:test";
import { MEASURES, accessibleName, legendOf, markOf, measureOf, stripes, viridis } from "../../playground/ui/compare/web/token_marks.js";

const place = (more = {}) => ({
  token: " dog", text: " dog", raw: 0.25, final: 0.5, rank: 2, notes: {}, given: false,
  distribution: { entropy: [1.5, 0.5] }, ...more,
});
const uncaptured = place({ raw: null, rank: null, distribution: null });

test("viridis runs from dark purple to yellow and never beyond", () => {
  assert.equal(viridis(0), "rgb(68 1 84)");
  assert.equal(viridis(1), "rgb(253 231 37)");
  assert.equal(viridis(-1), viridis(0));
  assert.equal(viridis(7), viridis(1));
});

test("ranks have four levels", () => {
  const lines = [1, 2, 5, 6, 20, 21, 40000].map((rank) => markOf(place({ rank }), "rank").line);
  assert.deepEqual(lines, ["none", "dotted", "dotted", "dashed", "dashed", "wavy", "wavy"]);
});

test("measures format the model's own values", () => {
  assert.equal(markOf(place(), "probability").text, "25.0 %");
  assert.equal(markOf(place(), "surprisal").text, "surprisal 2.0 bits");
  assert.equal(markOf(place(), "entropy").text, "entropy 1.50 nats");
  assert.equal(markOf(place({ raw: 1 }), "surprisal").text, "surprisal 0.0 bits");
});

test("in every measure yellow means that the model was sure", () => {
  const sure = place({ raw: 1, rank: 1, distribution: { entropy: [0, 0] } });
  for (const name of ["probability", "rank", "entropy", "surprisal"]) {
    assert.equal(markOf(sure, name).tint, viridis(1), name);
    assert.equal(markOf(sure, name).line, "none", name);
  }
  assert.equal(markOf(place({ raw: 1e-12 }), "surprisal").tint, viridis(0));
});

test("a token that was not captured has no mark in any measure", () => {
  for (const name of Object.keys(MEASURES)) assert.equal(markOf(uncaptured, name), null, name);
});

test("a token is green, red or unknown", () => {
  const texts = [true, false, undefined].map((green) => markOf(place({ notes: { green } }), "green")?.text);
  assert.deepEqual(texts, ["on the green list", "not on the green list", undefined]);
});

test("a drafted token shows its verdict, and a copied one its origin", () => {
  const texts = (notes) => markOf(place({ notes }), "draft")?.text;
  assert.equal(texts({ verdict: "accepted" }), "drafted, accepted");
  assert.equal(texts({ verdict: "accepted", copied_from: 0 }), "copied from earlier text, accepted");
  assert.equal(texts({ verdict: "resampled" }), "resampled after a rejection");
  assert.equal(texts({}), undefined);
});

test("no two marks of a measure share a line style", () => {
  for (const { kinds, levels } of Object.values(MEASURES)) {
    const lines = (levels ?? Object.values(kinds)).map(({ line }) => line);
    assert.equal(new Set(lines).size, lines.length);
  }
});

test("a legend has a colour scale with labels or a sample for every mark", () => {
  assert.deepEqual(legendOf("entropy", "background").ends, ["6 nats or more", "0 nats"]);
  assert.deepEqual(legendOf("rank", "background").samples.map(({ text }) => text), [
    "1st", "2nd to 5th", "6th to 20th", "21st or lower",
  ]);
  assert.equal(legendOf("surprisal", "underline").samples.length, 4);
  assert.equal(legendOf("none", "background").samples.length, 0);
});

test("an unknown measure in a link gives no mark", () => {
  assert.equal(measureOf("constructor"), MEASURES.none);
  assert.equal(markOf(place(), "__proto__"), null);
});

test("a token's accessible name has its text, its numbers and what the marks show", () => {
  const usual = { background: "probability", underline: "rank" };
  assert.equal(accessibleName(place(), usual), "dog, 25.0 %, rank 2");
  assert.equal(accessibleName(uncaptured, usual), "dog, not captured");
  assert.equal(accessibleName(place({ text: "", token: "\n" }), usual), "⏎, 25.0 %, rank 2");
  assert.equal(accessibleName({ ...uncaptured, given: true }, usual), "dog, given by you");
  assert.equal(accessibleName(place(), { background: "entropy", underline: "entropy" }), "dog, 25.0 %, rank 2, entropy 1.50 nats");
});

test("a split character has a stripe for each of its tokens", () => {
  const striped = stripes([viridis(0), null], false);
  assert.match(striped, /^linear-gradient\(to right, color-mix\(in srgb, rgb\(68 1 84\).*\) 0\.0% 50\.0%, transparent 50\.0% 100\.0%\)$/);
  assert.match(stripes([null, null], true), /^linear-gradient\(to left,/);
});
