// The store: what the page knows of the runs.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { distribution, end, freshStore, head, news, screen, step, words } from "./loading.mjs";

let store;
let read;

beforeEach(() => {
  store = freshStore();
  read = 0;
});

function hear(...lines) {
  store.hear(screen("a", read, lines));
  read += lines.length;
}

test("forks stand right behind what they were forked from", () => {
  hear(head(0), head(1), head(2, { origin: 0 }), head(3, { origin: 2 }), head(4, { origin: 0 }), head(5, { origin: 1 }));
  assert.deepEqual(store.columns.map((run) => run.key), [0, 2, 3, 4, 1, 5]);
});

test("a text grows along its lead, and beams may lead with another one", () => {
  hear(head(0), news(0, [step(0, null, " a"), step(1, null, " b")], 0));
  assert.equal(words(store.shown(store.runs.get(0))), " a");
  hear(news(0, [step(2, 1, " c"), step(3, 0, " d", { event: "pruned" })], 2));
  const run = store.runs.get(0);
  assert.equal(words(store.shown(run)), " b c");
  assert.equal(words(run.textAt(1)), " a", "what led when it had one token");
  assert.equal(words(run.textAt(2)), " b c");
  store.point(0, { replay: true });
  assert.equal(words(store.shown(run)), " a");
  store.point(0);
  assert.equal(words(store.shown(run)), " b c", "pointing alone leaves the text whole");
  assert.equal(store.pointed(run).text, " b");
});

test("a chosen sequence is shown, and replayed as it is", () => {
  hear(head(0), news(0, [step(0, null, " a"), step(1, null, " b")], 0));
  hear(news(0, [step(2, 0, " c"), step(3, 1, " d")], 3, { end: end(2, 3) }));
  const run = store.runs.get(0);
  assert.equal(words(run.text()), " a c", "the best returned one leads at the end");
  store.choose(run, 3);
  assert.equal(words(store.shown(run)), " b d");
  assert.equal(words(run.textAt(1)), " b");
});

test("a missed screen is waited for, and a whole one heard twice says nothing new", () => {
  const told = [];
  store.subscribe(({ kind }) => told.push(kind));
  assert.ok(store.hear(screen("a", 0, [head(0)])));
  assert.ok(!store.hear(screen("a", 2, [news(0, [step(1, 0, " b")], 1)])), "one line was missed");
  assert.equal(words(store.runs.get(0).text()), "");
  const all = [head(0), news(0, [step(0, null, " a")], 0), news(0, [step(1, 0, " b")], 1)];
  store.hear(screen("a", 0, all));
  store.hear(screen("a", 0, all));
  assert.equal(words(store.runs.get(0).text()), " a b");
  assert.deepEqual(told.filter((kind) => kind === "column" || kind === "steps"), ["column", "steps", "steps"]);
});

test("another feed leaves the last comparison until its first column comes", () => {
  hear(head(0), news(0, [step(0, null, " a")], 0));
  store.hear(screen("b", 0, [{ say: "The prompt is empty.", error: true }]));
  assert.equal(store.runs.size, 1);
  store.hear(screen("b", 1, [head(0, { name: "sample" })]));
  assert.deepEqual(store.columns.map((run) => run.name), ["sample"]);
});

const CATS = { tokenId: 77, token: " cats", text: " cats" };
const PARENT = [
  head(0),
  news(0, [step(0, null, " my", { at: 0 }), step(1, 0, " dog", { at: 1 }), step(2, 1, "!", { at: 2 })], 2, {
    distributions: [
      distribution([3, " my", 0.9, 0.9]),
      distribution([4, " dog", 0.6, 0.6], [77, " cats", 0.25, 0]),
      distribution([1, "!", 0.5, 0.5], [77, " cats", 0.01, 0.01]),
    ],
    end: end(2),
  }),
];

test("a fork inherits steps with their numbers, and a given token those it had as a candidate", () => {
  hear(...PARENT, head(1, { origin: 0, before: [{ column: 0, step: 0 }, CATS] }));
  const run = store.runs.get(1);
  const [mine, cats] = run.before;
  assert.equal(mine.run, store.runs.get(0));
  assert.deepEqual([mine.given, mine.raw, mine.distribution.candidates[0][1]], [false, 0.5, " my"]);
  assert.deepEqual([cats.given, cats.raw, cats.final, cats.rank], [true, 0.25, null, null]);
  assert.deepEqual([run.left.at, run.left.instead.text], [1, " dog"]);
});

test("behind the first given token nothing is known of the others", () => {
  hear(...PARENT, head(1, { origin: 0, before: [{ column: 0, step: 0 }, CATS, CATS, CATS] }));
  const known = store.runs.get(1).before.map((place) => place.distribution !== null);
  assert.deepEqual(known, [true, true, false, false]);
});

test("a fork of a fork keeps what was known of the given token, and left where its own begins", () => {
  const before = [{ column: 0, step: 0 }, CATS];
  hear(...PARENT, head(1, { origin: 0, before }));
  hear(news(1, [step(0, null, " are", { at: 0 })], 0, { distributions: [distribution([4, " are", 1, 1], [9, " were", 0.1, 0.1])] }));
  hear(head(2, { origin: 1, before: [...before, { tokenId: 9, token: " were", text: " were" }] }));
  const run = store.runs.get(2);
  assert.equal(run.before[1], store.runs.get(1).before[1]);
  assert.deepEqual([run.left.at, run.left.instead.text, run.before[2].raw], [2, " are", 0.1]);
  assert.equal(store.length, 3);
});

test("a fork that only cut its text off says after which token", () => {
  hear(...PARENT, head(1, { origin: 0, before: [{ column: 0, step: 0 }] }));
  const { at, instead } = store.runs.get(1).left;
  assert.deepEqual([at, instead.text], [1, " dog"]);
});

test("what a fork replaced is the token of the text that was shown, not of another beam", () => {
  hear(head(0), news(0, [step(0, null, " a", { at: 0 }), step(1, null, " b", { at: 0 })], 1, {
    distributions: [distribution([2, " a", 0.5, 0.5])], end: end(1),
  }));
  hear(head(1, { origin: 0, before: [CATS] }));
  assert.equal(store.runs.get(1).left.instead.text, " b");
});

test("the cursor stays inside the texts", () => {
  hear(...PARENT);
  for (const [wish, at] of [[-3, 0], [99, 2], [null, null], [1, 1]]) {
    store.point(wish, { replay: true });
    assert.deepEqual([store.cursor.at, store.cursor.replay], [at, at !== null]);
  }
});

test("cards are told of once none is wanted beyond them", () => {
  const told = [];
  store.subscribe((change) => told.push(change.kind));
  store.drawing.wanted = 2;
  store.drew(1);
  assert.deepEqual(told, []);
  store.drew(2);
  assert.deepEqual(told, ["drawn"]);
});
