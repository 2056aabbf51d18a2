// What the buttons and keys of the playback bar do.

import assert from "node:assert/strict";
import { test } from "node:test";
import { actionOf, cursorFor, effectOf, positionOf } from "../../playground/ui/compare/web/playback.js";

const over = { state: "over", replaying: false, position: 12, length: 48 };
const paused = { ...over, state: "paused", position: 48 };

test("the position is the cursor's, or the end", () => {
  assert.equal(positionOf({ cursor: { at: null }, length: 48 }), 48);
  assert.equal(positionOf({ cursor: { at: 11 }, length: 48 }), 12);
  assert.equal(positionOf({ cursor: { at: 11 }, length: 3 }), 3);
});

test("start, back, step and end only move the cursor", () => {
  assert.deepEqual(effectOf("start", over), { seek: 1 });
  assert.deepEqual(effectOf("back", over), { seek: 11 });
  assert.deepEqual(effectOf("back", { ...over, position: 1 }), { seek: 1 });
  assert.deepEqual(effectOf("step", over), { seek: 13 });
  assert.deepEqual(effectOf("end", over), { seek: null });
  assert.deepEqual(effectOf("back", { ...paused, state: "playing" }), { seek: 47 });
});

test("play replays finished runs, from the start if the cursor is at the end", () => {
  assert.deepEqual(effectOf("play", over), { replay: true });
  assert.deepEqual(effectOf("play", { ...over, replaying: true }), { replay: false });
  assert.deepEqual(effectOf("play", { ...over, position: 48 }), { seek: 1, replay: true });
});

test("play pauses runs in progress and resumes paused ones", () => {
  assert.deepEqual(effectOf("play", { ...paused, state: "playing" }), { command: "pause" });
  assert.deepEqual(effectOf("play", paused), { command: "play", seek: null });
});

test("a step after the last token is a step of the runs if they are paused", () => {
  assert.deepEqual(effectOf("step", paused), { command: "step", seek: null });
  assert.deepEqual(effectOf("step", { ...paused, position: 20 }), { seek: 21 });
  assert.deepEqual(effectOf("step", { ...paused, state: "playing" }), { command: "pause", seek: null });
  assert.deepEqual(effectOf("step", { ...over, position: 48 }), {});
});

test("the end of runs in progress moves with them", () => {
  assert.deepEqual(cursorFor(48, { state: "playing", length: 48 }), [null, {}]);
  assert.deepEqual(cursorFor(48, { state: "over", length: 48 }), [47, { replay: true }]);
  assert.deepEqual(cursorFor(null, { state: "over", length: 48 }), [null, {}]);
});

// An element inside others, as far as `closest` goes.
const target = (...selectors) => ({
  closest: (list) => (list.split(/, */).some((selector) => selectors.includes(selector)) ? {} : null),
});

test("keys act unless the focused element uses them", () => {
  assert.equal(actionOf({ key: " " }, target()), "play");
  assert.equal(actionOf({ key: "ArrowLeft" }, target()), "back");
  assert.equal(actionOf({ key: "x" }, target()), undefined);
  for (const taken of ["input", "textarea", "select", "button", "[role=tab]", "[role=slider]", "[role=dialog]"]) {
    assert.equal(actionOf({ key: " " }, target(taken)), undefined, taken);
  }
  assert.equal(actionOf({ key: "ArrowLeft", ctrlKey: true }, target()), undefined);
  assert.equal(actionOf({ key: "Home", defaultPrevented: true }, target()), undefined);
});

test("on a token Space plays and the arrows belong to the token", () => {
  assert.equal(actionOf({ key: " " }, target(".token", "[role=option]")), "play");
  assert.equal(actionOf({ key: "ArrowLeft" }, target(".token", "[role=option]")), undefined);
});
