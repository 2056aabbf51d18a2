// The store reads the feed into runs, columns and texts.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { Store } from "../../playground/ui/compare/web/store.js";
import { columnLine, distribution, encoded, end, step, stepsLine, textOf } from "./feed.js";

let store;
let read;

beforeEach(() => {
  store = new Store();
  store.openFeed("a");
  read = 0;
});

function receive(...lines) {
  store.receive(read, encoded(lines));
  read += lines.length;
}

test("a fork follows the column it was forked from", () => {
  receive(columnLine(0), columnLine(1), columnLine(2, { origin: 0 }), columnLine(3, { origin: 2 }), columnLine(4, { origin: 0 }), columnLine(5, { origin: 1 }));
  assert.deepEqual(store.columns.map((run) => run.key), [0, 2, 3, 4, 1, 5]);
});

test("the text follows the leading step, and another beam may take the lead", () => {
  receive(columnLine(0), stepsLine(0, [step(0, null, " a"), step(1, null, " b")], 0));
  assert.equal(textOf(store.shown(store.runs.get(0))), " a");
  receive(stepsLine(0, [step(2, 1, " c"), step(3, 0, " d", { event: "pruned" })], 2));
  const run = store.runs.get(0);
  assert.equal(textOf(store.shown(run)), " b c");
  assert.equal(textOf(run.textAt(1)), " a", "the leading text of one token");
  assert.equal(textOf(run.textAt(2)), " b c");
  store.select(0, { replay: true });
  assert.equal(textOf(store.shown(run)), " a");
  store.select(0);
  assert.equal(textOf(store.shown(run)), " b c", "without replay the whole text is shown");
  assert.equal(store.selected(run).text, " b");
});

test("a chosen sequence is shown and replayed", () => {
  receive(columnLine(0), stepsLine(0, [step(0, null, " a"), step(1, null, " b")], 0));
  receive(stepsLine(0, [step(2, 0, " c"), step(3, 1, " d")], 3, { end: end(2, 3) }));
  const run = store.runs.get(0);
  assert.equal(textOf(run.text()), " a c", "the best returned one leads at the end");
  store.choose(run, 1);
  assert.equal(textOf(store.shown(run)), " b d");
  assert.equal(textOf(run.textAt(1)), " b");
});

test("of two equal returned sequences, the chosen one is selected", () => {
  receive(columnLine(0), stepsLine(0, [step(0, null, " a"), step(1, null, " b")], 0, { end: end(0, 1, 1) }));
  const run = store.runs.get(0);
  for (const [choice, text] of [[2, " b"], [1, " b"], [0, " a"]]) {
    store.choose(run, choice);
    assert.deepEqual([run.choice, textOf(run.text())], [choice, text]);
  }
});

test("lines received twice change nothing", () => {
  const kinds = [];
  store.subscribe(({ kind }) => kinds.push(kind));
  const all = encoded([columnLine(0), stepsLine(0, [step(0, null, " a")], 0), stepsLine(0, [step(1, 0, " b")], 1)]);
  store.receive(0, all.slice(0, 2));
  store.receive(0, all);
  store.receive(1, all.slice(1));
  assert.equal(textOf(store.runs.get(0).text()), " a b");
  assert.deepEqual(kinds.filter((kind) => kind === "column" || kind === "steps"), ["column", "steps", "steps"]);
});

test("a new feed keeps the last comparison until its first column arrives", () => {
  receive(columnLine(0), stepsLine(0, [step(0, null, " a")], 0));
  store.openFeed("b");
  store.receive(0, encoded([{ status: "Starting …", error: false }]));
  assert.equal(store.runs.size, 1);
  store.receive(1, encoded([columnLine(0, { name: "sample" })]));
  assert.deepEqual(store.columns.map((run) => run.name), ["sample"]);
});

test("runs that the server no longer has are over", () => {
  receive(columnLine(0), { state: "playing" });
  store.abandon("gone");
  assert.deepEqual([store.state, store.status], ["over", { text: "gone", error: true }]);
});

const CATS = { tokenId: 77, token: " cats", text: " cats" };
const PARENT = [
  columnLine(0),
  stepsLine(0, [step(0, null, " my", { at: 0 }), step(1, 0, " dog", { at: 1 }), step(2, 1, "!", { at: 2 })], 2, {
    distributions: [
      distribution([3, " my", 0.9, 0.9]),
      distribution([4, " dog", 0.6, 0.6], [77, " cats", 0.25, 0]),
      distribution([1, "!", 0.5, 0.5], [77, " cats", 0.01, 0.01]),
    ],
    end: end(2),
  }),
];

test("a fork inherits steps with their numbers, and a given token its numbers as a candidate", () => {
  receive(...PARENT, columnLine(1, { origin: 0, before: [{ column: 0, step: 0 }, CATS] }));
  const run = store.runs.get(1);
  const [mine, cats] = run.before;
  assert.equal(mine.run, store.runs.get(0));
  assert.deepEqual([mine.given, mine.raw, mine.distribution.candidates[0][1]], [false, 0.5, " my"]);
  assert.deepEqual([cats.given, cats.raw, cats.final, cats.rank], [true, 0.25, null, null]);
  assert.deepEqual([run.left.at, run.left.instead.text], [1, " dog"]);
});

test("after the first given token no distributions are known", () => {
  receive(...PARENT, columnLine(1, { origin: 0, before: [{ column: 0, step: 0 }, CATS, CATS, CATS] }));
  const known = store.runs.get(1).before.map((place) => place.distribution !== null);
  assert.deepEqual(known, [true, true, false, false]);
});

test("a fork of a fork keeps the numbers of the given token and leaves at its own first token", () => {
  const before = [{ column: 0, step: 0 }, CATS];
  receive(...PARENT, columnLine(1, { origin: 0, before }));
  receive(stepsLine(1, [step(0, null, " are", { at: 0 })], 0, { distributions: [distribution([4, " are", 1, 1], [9, " were", 0.1, 0.1])] }));
  receive(columnLine(2, { origin: 1, before: [...before, { tokenId: 9, token: " were", text: " were" }] }));
  const run = store.runs.get(2);
  assert.equal(run.before[1], store.runs.get(1).before[1]);
  assert.deepEqual([run.left.at, run.left.instead.text, run.before[2].raw], [2, " are", 0.1]);
  assert.equal(store.length, 3);
});

test("a fork that only truncates the text leaves after the last token it keeps", () => {
  receive(...PARENT, columnLine(1, { origin: 0, before: [{ column: 0, step: 0 }] }));
  const { at, instead } = store.runs.get(1).left;
  assert.deepEqual([at, instead.text], [1, " dog"]);
});

test("a fork replaces the token of the text that was shown, not of another beam", () => {
  receive(columnLine(0), stepsLine(0, [step(0, null, " a", { at: 0 }), step(1, null, " b", { at: 0 })], 1, {
    distributions: [distribution([2, " a", 0.5, 0.5])], end: end(1),
  }));
  receive(columnLine(1, { origin: 0, before: [CATS] }));
  assert.equal(store.runs.get(1).left.instead.text, " b");
});

test("the cursor stays inside the texts", () => {
  receive(...PARENT);
  for (const [given, at] of [[-3, 0], [99, 2], [null, null], [1, 1]]) {
    store.select(given, { replay: true });
    assert.deepEqual([store.cursor.at, store.cursor.replay], [at, at !== null]);
  }
});
