// The last words of a prompt, before the first token of a column.

import assert from "node:assert/strict";
import { test } from "node:test";
import { tailOf } from "../../playground/ui/compare/web/column_prompt.js";

test("a short prompt is shown whole", () => {
  assert.equal(tailOf("I love my cat because"), "I love my cat because");
});

test("of a long prompt the last whole words are shown", () => {
  assert.equal(tailOf("Once upon a time there was a little girl named Lily"), "… a little girl named Lily");
});

test("line breaks are visible, and a single long word is cut", () => {
  assert.equal(tailOf("def one():\n    pass\n"), "def one():⏎pass⏎");
  assert.equal(tailOf("x".repeat(100)), `… ${"x".repeat(28)}`);
});

test("no character is cut in half", () => {
  assert.equal(tailOf("😀".repeat(100)), `… ${"😀".repeat(28)}`);
});
