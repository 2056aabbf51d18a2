// The transport bar: what its buttons and keys do, apart from how it looks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./loading.mjs";

const { act, placeFor, positionOf, wishOf } = load(["transport.js"], ["act", "placeFor", "positionOf", "wishOf"]);

const over = { pace: "over", replaying: false, position: 12, length: 48 };
const held = { ...over, pace: "paused", position: 48 };

test("the position is the cursor's place, or the end", () => {
  assert.equal(positionOf({ cursor: { at: null }, length: 48 }), 48);
  assert.equal(positionOf({ cursor: { at: 11 }, length: 48 }), 12);
  assert.equal(positionOf({ cursor: { at: 11 }, length: 3 }), 3);
});

test("start, back, step and end move the cursor alone", () => {
  assert.deepEqual(act("start", over), { seek: 1 });
  assert.deepEqual(act("back", over), { seek: 11 });
  assert.deepEqual(act("back", { ...over, position: 1 }), { seek: 1 });
  assert.deepEqual(act("step", over), { seek: 13 });
  assert.deepEqual(act("end", over), { seek: null });
  assert.deepEqual(act("back", { ...held, pace: "playing" }), { seek: 47 });
});

test("play replays what is over, from the start where it stood at the end", () => {
  assert.deepEqual(act("play", over), { replay: true });
  assert.deepEqual(act("play", { ...over, replaying: true }), { replay: false });
  assert.deepEqual(act("play", { ...over, position: 48 }), { seek: 1, replay: true });
});

test("play holds runs that write, and lets held ones go on", () => {
  assert.deepEqual(act("play", { ...held, pace: "playing" }), { paced: "pause" });
  assert.deepEqual(act("play", held), { paced: "play", seek: null });
});

test("a step behind the last token is a step of the runs themselves, if they are held", () => {
  assert.deepEqual(act("step", held), { paced: "step", seek: null });
  assert.deepEqual(act("step", { ...held, position: 20 }), { seek: 21 });
  assert.deepEqual(act("step", { ...held, pace: "playing" }), { paced: "pause", seek: null });
  assert.deepEqual(act("step", { ...over, position: 48 }), {});
});

test("the end of runs that go on is wherever it will be", () => {
  assert.deepEqual(placeFor(48, { pace: "playing", length: 48 }), [null, {}]);
  assert.deepEqual(placeFor(48, { pace: "over", length: 48 }), [47, { replay: true }]);
  assert.deepEqual(placeFor(null, { pace: "over", length: 48 }), [null, {}]);
});

// An element inside others, as far as `closest` goes.
const target = (...selectors) => ({
  closest: (asked) => (asked.split(/, */).some((selector) => selectors.includes(selector)) ? {} : null),
});

test("keys press buttons, but not where the focus needs them", () => {
  assert.equal(wishOf({ key: " ", target: target() }), "play");
  assert.equal(wishOf({ key: "ArrowLeft", target: target() }), "back");
  assert.equal(wishOf({ key: "x", target: target() }), undefined);
  for (const taken of ["input", "textarea", "select", "button", "[role=tab]", "[role=slider]", "[role=dialog]"]) {
    assert.equal(wishOf({ key: " ", target: target(taken) }), undefined, taken);
  }
  assert.equal(wishOf({ key: "ArrowLeft", ctrlKey: true, target: target() }), undefined);
  assert.equal(wishOf({ key: "Home", defaultPrevented: true, target: target() }), undefined);
});

test("on a token Space plays, and the arrows are the token's own", () => {
  assert.equal(wishOf({ key: " ", target: target(".token", "[role=option]") }), "play");
  assert.equal(wishOf({ key: "ArrowLeft", target: target(".token", "[role=option]") }), undefined);
});
