// The Step view's words and numbers: built from what was captured, and silent about the rest.
// Run by `node --test tests/js`. Scripts of the page are function bodies, so that is how they are loaded.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

const source = ["writing.js", "step_reading.js", "step_words.js"]
  .map((name) => readFileSync(new URL(`../../playground/ui/web/${name}`, import.meta.url), "utf8"))
  .join("\n");
const names = "candidatesOf, stagesOf, sizeOf, massOf, barScale, headline, reasons, effect, percent, PROCESSORS";
const step = new Function(`${source}\nreturn { ${names} };`)();

// Three tokens through temperature, top_k and no_repeat_n_gram.
const DISTRIBUTION = {
  candidates: [[7, " dog", 0.5, 1, 0.6, 0.65], [8, " cat", 0.3, 0, 0.3, 0.35], [9, " cow", 0.1, 0, 0.05, 0]],
  processors: ["temperature", "top_k", "no_repeat_n_gram"],
  entropy: [1.2, 0], kept: 1, keptAfter: [49152, 2, 1], cutoffs: [null, 0.3, 0.65],
};
const PLAIN = { candidates: [[7, " dog", 0.5, 0.5]], processors: [], entropy: [1, 1], kept: 49152, keptAfter: [], cutoffs: [] };
const run = { name: "sample", origin: null };
const place = (more = {}) => ({
  run, step: 3, tokenId: 7, token: " dog", raw: 0.5, final: 1, rank: 2, event: "chosen", notes: {}, distribution: DISTRIBUTION, given: false, ...more,
});

test("the headline says what the model gave, and what was left of it", () => {
  assert.equal(
    step.headline(place(), 13),
    "Token 13 ‘␣dog’ was chosen: the model gave it 50.0 % (rank 2 of 49,152); " +
      "after temperature, top_k, no_repeat_n_gram it had 100.0 %.",
  );
  assert.equal(step.headline(place({ distribution: PLAIN }), 1), "Token 1 ‘␣dog’ was chosen: the model gave it 50.0 % (rank 2 of 49,152).");
});

test("how many tokens the model knows is said only where the numbers tell", () => {
  assert.equal(step.sizeOf({ ...DISTRIBUTION, keptAfter: [2, 2, 1], cutoffs: [0.3, null, 0.65] }), null);
  assert.equal(step.sizeOf({ ...DISTRIBUTION, keptAfter: [], cutoffs: [] }), null);
  assert.equal(step.sizeOf(PLAIN), 49152);
});

test("a token that nobody saw chosen says so, and a given one says who gave it", () => {
  assert.match(step.headline(place({ distribution: null, raw: null, rank: null }), 2), /could not be seen: there are no numbers/);
  const given = place({ given: true, raw: 0.02, notes: {} });
  assert.equal(step.headline(given, 9), "Token 9 ‘␣dog’ was given by you: no run chose it.");
  const fork = { name: "sample", origin: 0 };
  assert.match(step.reasons(given, fork, []).join(" "), /of sample where this column was forked\. The model had given it 2\.0 % there/);
});

test("a token of the text before a fork names who wrote it", () => {
  const fork = { name: "sample", origin: 0 };
  assert.deepEqual(step.reasons(place(), fork, []), ["It was written by sample, before the fork."]);
});

test("a weighed draft tells p, q and the draw that decided", () => {
  const notes = { round: 2, verdict: "rejected", p: 0.1, q: 0.4, draw: 0.61 };
  const words = step.reasons(place({ event: "rejected", notes }), run, []).join(" ");
  assert.match(words, /p 10\.0 %, the draft had q 40\.0 %/);
  assert.match(words, /min\(1, p\/q\) = 0\.250\. The draw was 0\.610: it was struck out/);
});

test("a draft that was only compared speaks of no draw", () => {
  const words = step.reasons(place({ notes: { verdict: "accepted", p: 0.53, round: 1 } }), run, []).join(" ");
  assert.match(words, /The model itself takes this token here \(p 53\.0 %\), so it stays/);
  assert.doesNotMatch(words, /draw was/);
});

test("a resampled token names the one it replaced", () => {
  const lost = { token: " in", event: "rejected", notes: { verdict: "rejected", draw: 0.9 } };
  const [words] = step.reasons(place({ notes: { verdict: "resampled" } }), run, [lost]);
  assert.equal(words, "The draft had ‘␣in’ here, which was rejected; this is drawn from what the model's probability has above the draft's.");
});

test("contrastive search, beams, groups, constraints and layers have sentences of their own", () => {
  const contrast = { probability: 0.05, similarity: 0.65, similar_to: 2, score: -0.37 };
  const [weighed] = step.reasons(place({ notes: contrast }), run, [{ notes: { score: -0.5 } }]);
  assert.match(weighed, /similarity of 0\.650 to token 3 of prompt and text gives a score of −0\.370, the highest of 2 candidates/);
  const beam = { score: -0.5, total: -2.5, normalized: -1.25, group: 1, penalty: 0.4, bank: 2, forced: true };
  const words = step.reasons(place({ notes: beam }), run, []).join(" ");
  assert.match(words, /It adds −0\.500 to its beam, which then has −2\.500, −1\.250 for its length\./);
  assert.match(words, /group 2, with a penalty of 0\.400/);
  assert.match(words, /bank 2/);
  assert.match(words, /takes a constraint further/);
  assert.match(step.reasons(place({ notes: { layer: 12 } }), run, [])[0], /layer 12/);
});

test("candidates stand in the model's order and know who cut them", () => {
  const rows = step.candidatesOf(place());
  assert.deepEqual(rows.map((row) => [row.token, row.cutBy]), [[" dog", null], [" cat", "no_repeat_n_gram"], [" cow", "top_k"]]);
  assert.deepEqual(rows[0].path, [0.5, 0.6, 0.65, 1]);
});

test("each processor shows what went in, what came out, and what it cut", () => {
  const [temperature, topK, ngram] = step.stagesOf(DISTRIBUTION, step.candidatesOf(place()));
  assert.deepEqual(temperature.rows.map((row) => row.fate), ["kept", "kept", "kept"]);
  assert.deepEqual(topK.rows.map((row) => row.fate), ["kept", "kept", "cut"]);
  assert.deepEqual(ngram.rows.map((row) => row.fate), ["kept", "cut", "gone"]);
  assert.deepEqual([topK.keptBefore, topK.keptAfter], [49152, 2]);
  assert.equal(step.effect(topK), "2 kept of 49,152 · the least probable it kept had 30.0 %");
});

test("a line is drawn only where it parts the cut from the kept", () => {
  const rows = step.candidatesOf(place());
  assert.deepEqual(step.stagesOf(DISTRIBUTION, rows).map((stage) => stage.line), [false, true, true]);
  const typical = { ...DISTRIBUTION, candidates: [[7, " dog", 0.5, 0], [8, " cat", 0.3, 1]], processors: ["typical"], keptAfter: [1], cutoffs: [0.3] };
  const [stage] = step.stagesOf(typical, step.candidatesOf(place({ distribution: typical })));
  assert.equal(stage.line, false);
});

test("a chosen token that is not listed shows its ends and nothing between", () => {
  const rows = step.candidatesOf(place({ tokenId: 99, token: " emu", raw: 0.001, final: 0.002 }));
  const row = rows.at(-1);
  assert.deepEqual(row.path, [0.001, null, null, 0.002]);
  const fates = step.stagesOf(DISTRIBUTION, rows).map((stage) => stage.rows.at(-1).fate);
  assert.deepEqual(fates, ["unknown", "unknown", "unknown"]);
});

test("traces without the numbers of each processor say less, not something else", () => {
  const bare = { ...DISTRIBUTION, keptAfter: [], cutoffs: [] };
  const [, topK] = step.stagesOf(bare, step.candidatesOf(place({ distribution: bare })));
  assert.equal(topK.line, false);
  assert.equal(step.effect(topK), "");
});

test("bars are shares of the longest, or logarithms with a floor", () => {
  const rows = step.candidatesOf(place());
  assert.equal(step.barScale(rows, false)(0.5), 0.5);
  const log = step.barScale(rows, true);
  assert.equal(log(1), 1);
  assert.ok(Math.abs(log(0.1) - 0.8) < 1e-9);
  assert.equal(log(1e-9), 0);
});
