// The Step view explains a token with captured numbers only.

import assert from "node:assert/strict";
import { test } from "node:test";
import { nats } from "../../playground/ui/shared/web/format.js";
import * as distribution from "../../playground/ui/compare/web/step_distribution.js";
import { cumulative, decisionOf } from "../../playground/ui/compare/web/step_decision.js";
import * as explanation from "../../playground/ui/compare/web/step_explanation.js";

const { barScale, listedMass, stagesOf, vocabularySize } = distribution;
const { effect, headline, reasons } = explanation;

// Three tokens through temperature, top_k and no_repeat_n_gram.
const DISTRIBUTION = {
  candidates: [[7, " dog", 0.5, 1, 0.6, 0.65], [8, " cat", 0.3, 0, 0.3, 0.35], [9, " cow", 0.1, 0, 0.05, 0]],
  processors: ["temperature", "top_k", "no_repeat_n_gram"],
  entropy: [1.2, 0], kept: 1, keptAfter: [49152, 2, 1], cutoffs: [null, 0.3, 0.65], noise: [],
};
const PLAIN = { candidates: [[7, " dog", 0.5, 0.5]], processors: [], entropy: [1, 1], kept: 49152, keptAfter: [], cutoffs: [], noise: [] };
const run = { name: "sample", origin: null };
const candidatesOf = (one) => distribution.candidatesOf(one, one.distribution);
const place = (more = {}) => ({
  run, step: 3, tokenId: 7, token: " dog", raw: 0.5, final: 1, rank: 2, event: "chosen", noise: null, notes: {}, distribution: DISTRIBUTION,
  given: false, ...more,
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
  const dola = reasons(place({ notes: { layer: 12, last: -0.5, early: -3.1 } }), run, []).join(" ");
  assert.match(dola, /layer 12.*Log-probability −0\.500 at the last layer, −3\.100 at layer 12: contrast 2\.600\..*highest contrast/);
});

test("constraints show how far each of them is met", () => {
  const words = (constraints) => reasons(place({ notes: { total: -1, constraints } }), run, []).join(" ");
  assert.match(words([[1, 3]]), /Constraint: 1 of 3 tokens\./);
  assert.match(words([[2, 2], [0, 3]]), /Constraints: 1: met; 2: not started\./);
  assert.doesNotMatch(words([]), /Constraint/);
});

test("greedy decoding and a draw that was not captured are named", () => {
  assert.deepEqual(reasons(place({ run: { ...run, strategy: "greedy" } }), run, []).slice(1), ["Greedy decoding takes the most probable token."]);
  const sampled = { ...run, strategy: "sample" };
  assert.match(reasons(place({ run: sampled }), sampled, []).join(" "), /random numbers of the draw were not captured/);
  assert.deepEqual(reasons(place({ run: sampled, noise: 0.4 }), sampled, []), []);
});

// The candidate with the largest quotient is not the most probable one.
const DRAWN = {
  candidates: [[8, " cat", 0.6, 0.6], [7, " dog", 0.31, 0.31]], processors: [], entropy: [1, 1], kept: 49152, keptAfter: [], cutoffs: [],
  noise: [1.5, 0.22],
};

test("a draw divides each probability by its random number", () => {
  const token = place({ raw: 0.31, final: 0.31, noise: 0.22, distribution: DRAWN });
  const { rivals, rest } = decisionOf(token, candidatesOf(token), []);
  assert.deepEqual(rivals.map(({ token: name, calculation, own, outcome }) => [name, calculation, own, outcome]), [
    [" dog", "0.31 / 0.22 = 1.41", true, "drawn"],
    [" cat", "0.6 / 1.5 = 0.4", false, ""],
  ]);
  assert.equal(rest, "49,150 more tokens took part, all with smaller quotients.");
});

test("a drawn token that is not listed takes part with its own random number", () => {
  const token = place({ tokenId: 99, token: " emu", raw: 0.01, final: 0.01, noise: 0.001, distribution: DRAWN });
  const [first] = decisionOf(token, candidatesOf(token), []).rivals;
  assert.deepEqual([first.token, first.own, first.calculation], [" emu", true, "0.01 / 0.001 = 10"]);
});

test("the probabilities of a draw fill one bar in which the token has its part", () => {
  const token = place({ raw: 0.31, final: 0.31, noise: 0.22, distribution: DRAWN });
  const parts = cumulative(candidatesOf(token));
  assert.deepEqual(parts.map((part) => [part.token, part.own]), [[" cat", false], [" dog", true], [null, false]]);
  assert.equal(parts[1].from, 0.6);
  assert.ok(Math.abs(parts.reduce((sum, part) => sum + part.size, 0) - 1) < 1e-9);
});

test("without a draw there is neither a list of quotients nor a bar", () => {
  assert.equal(decisionOf(place({ distribution: PLAIN }), candidatesOf(place({ distribution: PLAIN })), []), null);
  assert.equal(cumulative(candidatesOf(place({ distribution: PLAIN }))), null);
});

const stepWith = (id, token, event, notes, noise = null) => ({ id, token, event, notes, noise });

test("the continuations of all beams are ranked by their totals, within their group", () => {
  const tick = [
    stepWith(3, " dog", "chosen", { beam: 1, order: 1, score: -0.5, total: -2.5 }),
    stepWith(4, " cat", "chosen", { beam: 0, order: 0, score: -1.25, total: -2 }),
    stepWith(5, " cow", "pruned", { beam: 0, order: 2, score: -3, total: -4 }),
    stepWith(6, " emu", "chosen", { beam: 2, order: 0, score: -1, total: -1, group: 1 }),
  ];
  const { rivals, drawn } = decisionOf(place({ notes: tick[0].notes }), candidatesOf(place()), tick);
  assert.deepEqual(rivals.map((one) => [one.token, one.calculation, one.outcome]), [
    [" cat", "−0.750 − 1.250 = −2.000", "kept, beam 1"],
    [" dog", "−2.000 − 0.500 = −2.500", "kept, beam 2"],
    [" cow", "−1.000 − 3.000 = −4.000", "pruned, beam 1"],
  ]);
  assert.deepEqual([rivals[1].own, drawn], [true, false]);
});

test("in beam sampling the random numbers decide which continuations compete", () => {
  const tick = [
    stepWith(3, " dog", "chosen", { beam: 0, order: 0, score: -3, total: -3 }, 0.01),
    stepWith(4, " cat", "pruned", { beam: 0, order: 1, score: -1, total: -1 }, 1),
  ];
  const { rivals } = decisionOf(place({ notes: tick[0].notes }), candidatesOf(place()), tick);
  assert.deepEqual(rivals.map((one) => one.calculation), ["−3.000 − ln 0.01 = 1.605", "−1.000 − ln 1 = −1.000"]);
});

test("contrastive search lists confidence, penalty and score of every candidate", () => {
  const notes = { probability: 0.05, similarity: 0.65, score: -0.37 };
  const tick = [stepWith(4, " cat", "pruned", { probability: 0.6, similarity: 0.9, score: -0.5 }), stepWith(3, " dog", "chosen", notes)];
  const { rivals } = decisionOf(place({ notes }), candidatesOf(place()), tick);
  assert.deepEqual(rivals.map((one) => [one.token, one.calculation, one.outcome]), [
    [" dog", "5.0 %, 0.650, −0.370", "chosen"],
    [" cat", "60.0 %, 0.900, −0.500", ""],
  ]);
});

test("a draft that the model's own draw verifies says so", () => {
  const words = (verdict) => reasons(place({ noise: 0.5, notes: { verdict, p: 0.2 } }), run, []).join(" ");
  assert.match(words("accepted"), /own draw gave the same token \(p 20\.0 %\)/);
  assert.match(words("rejected"), /own draw gave another token/);
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
    processors: ["recipe"], entropy: [null, 0.67], kept: 2, keptAfter: [2], cutoffs: [null], noise: [],
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
