// The Step view explains a token with captured numbers only.

import assert from "node:assert/strict";
import { test } from "node:test";
import { nats } from "../../playground/ui/shared/web/format.js";
import * as distribution from "../../playground/ui/compare/web/step_distribution.js";
import * as explanation from "../../playground/ui/compare/web/step_explanation.js";

const { barScale, listedMass, stagesOf, vocabularySize } = distribution;
const { effect, headline, reasons } = explanation;

// Three tokens through temperature, top_k and no_repeat_n_gram.
const DISTRIBUTION = {
  candidates: [[7, " dog", 0.5, 1, 0.6, 0.65], [8, " cat", 0.3, 0, 0.3, 0.35], [9, " cow", 0.1, 0, 0.05, 0]],
  processors: ["temperature", "top_k", "no_repeat_n_gram"],
  entropy: [1.2, 0], kept: 1, keptAfter: [49152, 2, 1], cutoffs: [null, 0.3, 0.65],
};
const PLAIN = { candidates: [[7, " dog", 0.5, 0.5]], processors: [], entropy: [1, 1], kept: 49152, keptAfter: [], cutoffs: [] };
const run = { name: "sample", origin: null };
const candidatesOf = (one) => distribution.candidatesOf(one, one.distribution);
const place = (more = {}) => ({
  run, step: 3, tokenId: 7, token: " dog", raw: 0.5, final: 1, rank: 2, event: "chosen", notes: {}, distribution: DISTRIBUTION, given: false, ...more,
});

test("the headline shows the probability before and after the processors", () => {
  assert.equal(
    headline(place(), 13),
    "Token 13 ‘␣dog’ was chosen: the model's probability was 50.0 % (rank 2 of 49,152); " +
      "after temperature, top_k, no_repeat_n_gram it was 100.0 %.",
  );
  assert.equal(headline(place({ distribution: PLAIN }), 1), "Token 1 ‘␣dog’ was chosen: the model's probability was 50.0 % (rank 2 of 49,152).");
});

test("the vocabulary size is shown only if a number proves it", () => {
  assert.equal(vocabularySize({ ...DISTRIBUTION, keptAfter: [2, 2, 1], cutoffs: [0.3, null, 0.65] }), null);
  assert.equal(vocabularySize({ ...DISTRIBUTION, keptAfter: [], cutoffs: [] }), null);
  assert.equal(vocabularySize(PLAIN), 49152);
});

test("the headline says that a distribution was not captured, or that the user gave the token", () => {
  assert.match(headline(place({ distribution: null, raw: null, rank: null }), 2), /was not captured: there are no numbers/);
  const given = place({ given: true, raw: 0.02, notes: {} });
  assert.equal(headline(given, 9), "Token 9 ‘␣dog’ was given by you: no run chose it.");
  const fork = { name: "sample", origin: 0 };
  assert.match(reasons(given, fork, []).join(" "), /of sample where this column was forked\. The model's probability for it there was 2\.0 %/);
});

test("a token before a fork names the run that wrote it", () => {
  const fork = { name: "sample", origin: 0 };
  assert.deepEqual(reasons(place(), fork, []), ["Written by sample, before the fork."]);
});

test("a sampled draft shows p, q and the random number", () => {
  const notes = { round: 2, verdict: "rejected", p: 0.1, q: 0.4, draw: 0.61 };
  const words = reasons(place({ event: "rejected", notes }), run, []).join(" ");
  assert.match(words, /Model p 10\.0 %, draft q 40\.0 %/);
  assert.match(words, /min\(1, p\/q\) = 0\.250\. The number was 0\.610: rejected/);
});

test("a greedy draft has no random number", () => {
  const words = reasons(place({ notes: { verdict: "accepted", p: 0.53, round: 1 } }), run, []).join(" ");
  assert.match(words, /It is the model's own choice here \(p 53\.0 %\), so it is accepted/);
  assert.doesNotMatch(words, /random number/);
});

test("a resampled token names the token it replaced", () => {
  const lost = { token: " in", event: "rejected", notes: { verdict: "rejected", draw: 0.9 } };
  const [words] = reasons(place({ notes: { verdict: "resampled" } }), run, [lost]);
  assert.equal(words, "The draft had ‘␣in’ here, which was rejected; this token was sampled from the residual max(0, p − q).");
});

test("contrastive search, beams, groups, constraints and DoLa have their own sentences", () => {
  const contrast = { probability: 0.05, similarity: 0.65, similar_to: 2, score: -0.37 };
  const [weighed] = reasons(place({ notes: contrast }), run, [{ notes: { score: -0.5 } }]);
  assert.match(weighed, /score −0\.370 from probability 5\.0 % and maximum similarity 0\.650 to token 3 of prompt and text, the highest of 2 candidates/);
  const beam = { score: -0.5, total: -2.5, normalized: -1.25, group: 1, penalty: 0.4, bank: 2, forced: true };
  const words = reasons(place({ notes: beam }), run, []).join(" ");
  assert.match(words, /Log-probability −0\.500; the beam's total score is −2\.500, −1\.250 normalised by length\./);
  assert.match(words, /group 2, with a penalty of 0\.400/);
  assert.match(words, /Bank 2/);
  assert.match(words, /advances a constraint/);
  assert.match(reasons(place({ notes: { layer: 12 } }), run, [])[0], /layer 12/);
});

test("candidates are in the model's order and know which processor cut them", () => {
  const rows = candidatesOf(place());
  assert.deepEqual(rows.map((row) => [row.token, row.cutBy]), [[" dog", null], [" cat", "no_repeat_n_gram"], [" cow", "top_k"]]);
  assert.deepEqual(rows[0].path, [0.5, 0.6, 0.65, 1]);
});

test("each processor shows its input, its output and what it cut", () => {
  const [temperature, topK, ngram] = stagesOf(DISTRIBUTION, candidatesOf(place()));
  assert.deepEqual(temperature.rows.map((row) => row.fate), ["kept", "kept", "kept"]);
  assert.deepEqual(topK.rows.map((row) => row.fate), ["kept", "kept", "cut"]);
  assert.deepEqual(ngram.rows.map((row) => row.fate), ["kept", "cut", "gone"]);
  assert.deepEqual([topK.keptBefore, topK.keptAfter], [49152, 2]);
  assert.equal(effect(topK), "2 kept of 49,152 · least probable token kept: 30.0 %");
});

test("the cutoff line is drawn only where it separates cut from kept candidates", () => {
  const rows = candidatesOf(place());
  assert.deepEqual(stagesOf(DISTRIBUTION, rows).map((stage) => stage.line), [false, true, true]);
  const typical = { ...DISTRIBUTION, candidates: [[7, " dog", 0.5, 0], [8, " cat", 0.3, 1]], processors: ["typical"], keptAfter: [1], cutoffs: [0.3] };
  const [stage] = stagesOf(typical, candidatesOf(place({ distribution: typical })));
  assert.equal(stage.line, false);
});

test("an unlisted chosen token shows its first and last probability only", () => {
  const rows = candidatesOf(place({ tokenId: 99, token: " emu", raw: 0.001, final: 0.002 }));
  const row = rows.at(-1);
  assert.deepEqual(row.path, [0.001, null, null, 0.002]);
  const fates = stagesOf(DISTRIBUTION, rows).map((stage) => stage.rows.at(-1).fate);
  assert.deepEqual(fates, ["unknown", "unknown", "unknown"]);
});

test("traces without numbers per processor show less", () => {
  const bare = { ...DISTRIBUTION, keptAfter: [], cutoffs: [] };
  const [, topK] = stagesOf(bare, candidatesOf(place({ distribution: bare })));
  assert.equal(topK.line, false);
  assert.equal(effect(topK), "");
});

test("bars are relative to the largest probability, or logarithmic with a floor", () => {
  const rows = candidatesOf(place());
  assert.equal(barScale(rows, false)(0.5), 0.5);
  const log = barScale(rows, true);
  assert.equal(log(1), 1);
  assert.ok(Math.abs(log(0.1) - 0.8) < 1e-9);
  assert.equal(log(1e-9), 0);
});

test("what was not captured of a distribution is shown as not captured", () => {
  const uncaptured = {
    candidates: [[8, " cat", null, 0.4], [7, " dog", null, 0.6]],
    processors: ["recipe"], entropy: [null, 0.67], kept: 2, keptAfter: [2], cutoffs: [null],
  };
  const token = place({ raw: null, rank: null, final: 0.6, distribution: uncaptured });
  assert.equal(headline(token, 3), "Token 3 ‘␣dog’ was chosen: the model's own probability was not captured; after recipe it was 60.0 %.");
  const rows = candidatesOf(token);
  assert.deepEqual(rows.map((row) => [row.token, row.raw, row.final]), [[" dog", null, 0.6], [" cat", null, 0.4]]);
  assert.deepEqual(stagesOf(uncaptured, rows)[0].rows.map((row) => row.fate), ["unknown", "unknown"]);
  assert.equal(listedMass(uncaptured), null);
  assert.equal(nats(uncaptured.entropy, true), "not captured → 0.67 nats");
  assert.equal(nats([null, null], false), "not captured");
});
