// The lanes of a race: what is counted from their tokens, apart from how it looks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./loading.mjs";

const { badgeOf, roundsOf } = load(["writing.js", "race.js"], ["badgeOf", "roundsOf"]);

const token = (text, fate, round, judged = 10 * round) => [text, fate, 5 * round, judged, round];

test("a round is over when it was judged, and brings what was kept", () => {
  const told = [
    token(" a", "accepted", 1), token(" b", "rejected", 1), token(" c", "ignored", 1), token(" d", "resampled", 1),
    token(" e", "chosen", 2), token(" f", "drafted", 3, null),
  ];
  assert.deepEqual(roundsOf(told), [
    { at: 10, kept: 2, drafted: 3, accepted: 1 },
    { at: 20, kept: 1, drafted: 0, accepted: 0 },
  ]);
});

test("an entry may stand for many tokens of a tree", () => {
  const told = [token(" a", "accepted", 1), [...token(" +12 ", "ignored", 1), 12], token(" b", "resampled", 1)];
  assert.deepEqual(roundsOf(told), [{ at: 10, kept: 2, drafted: 13, accepted: 1 }]);
});

test("a lane has its place when it is over, not before", () => {
  const done = { state: "done", place: 2, times: "1.40× plain" };
  assert.equal(badgeOf(done, true), "2nd, 1.40× plain");
  assert.equal(badgeOf(done, false), "");
  assert.equal(badgeOf({ state: "done", place: null }, true), "done");
  assert.equal(badgeOf({ state: "stopped" }, true), "stopped");
});
