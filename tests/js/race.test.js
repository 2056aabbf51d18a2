// The lanes of a race: what is counted from their tokens, apart from how it looks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { badgeOf, roundsOf } from "../../playground/ui/speculative/web/race.js";

const token = (text, verdict, round, verified = 10 * round) => [text, verdict, 5 * round, verified, round];

test("a round is over when it was verified, and counts the tokens it kept", () => {
  const tokens = [
    token(" a", "accepted", 1), token(" b", "rejected", 1), token(" c", "ignored", 1), token(" d", "resampled", 1),
    token(" e", "chosen", 2), token(" f", "drafted", 3, null),
  ];
  assert.deepEqual(roundsOf(tokens), [
    { at: 10, kept: 2, drafted: 3, accepted: 1 },
    { at: 20, kept: 1, drafted: 0, accepted: 0 },
  ]);
});

test("an entry may stand for several tokens of a draft tree", () => {
  const tokens = [token(" a", "accepted", 1), [...token(" +12 ", "ignored", 1), 12], token(" b", "resampled", 1)];
  assert.deepEqual(roundsOf(tokens), [{ at: 10, kept: 2, drafted: 13, accepted: 1 }]);
});

test("a lane shows its place when it is over", () => {
  const done = { state: "done", place: 2, times: "1.40× plain" };
  assert.equal(badgeOf(done, true), "2nd, 1.40× plain");
  assert.equal(badgeOf(done, false), "");
  assert.equal(badgeOf({ state: "done", place: null }, true), "done");
  assert.equal(badgeOf({ state: "stopped" }, true), "stopped");
});
