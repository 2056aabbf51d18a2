// A number outside the range of its field is named before Gradio replaces it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { rangeError } from "../../playground/ui/shared/web/number_range.js";

const error = (value) => rangeError({ value, min: "0", max: "1" });

test("a number out of range is named together with the one that is used", () => {
  assert.equal(error("2"), "2 is out of range: it must be from 0 to 1. 1 is used instead.");
  assert.equal(error("-0.5"), "-0.5 is out of range: it must be from 0 to 1. 0 is used instead.");
});

test("a number in range, an empty field and a field without limits say nothing", () => {
  for (const value of ["0", "0.95", "1.0", ""]) assert.equal(error(value), "");
  assert.equal(rangeError({ value: "7", min: "", max: "" }), "");
});
