// The strategies of the comparison: adding, moving, and what Python reads.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Cards } from "../../playground/ui/compare/web/cards.js";

const field = (name, value, onlyWith = null) => ({ name, kind: "text", value, help: "", onlyWith });
const CATALOG = {
  strategies: [
    { id: "greedy", title: "greedy", summary: "", offered: true, fields: [] },
    { id: "sample", title: "sample", summary: "", offered: true, fields: [field("temperature", "1.0"), field("top_p", 1)] },
  ],
  shared: [field("seed", "0")],
  most: 4,
};

function filled() {
  const cards = new Cards();
  cards.replace([{ strategy: "greedy", values: {} }, { strategy: "sample", values: { temperature: "0.5" } }]);
  cards.setCatalog(CATALOG);
  return cards;
}

const keys = (cards) => cards.list.map(({ key }) => key);

test("cards keep their values and keys when others are added, moved and removed", () => {
  const cards = filled();
  cards.duplicate(1);
  cards.move(0, 1);
  assert.deepEqual(keys(cards), [1, 0, 2]);
  assert.deepEqual(cards.list[2].values, { temperature: "0.5" });
  cards.remove(1);
  cards.add();
  assert.deepEqual(keys(cards), [0, 2, 3]);
  assert.equal(cards.list[2].strategy, "sample");
  cards.move(0, -1); // no place left of the first
  assert.deepEqual(keys(cards), [0, 2, 3]);
});

test("there is at least one card and at most as many as the server allows", () => {
  const cards = filled();
  for (let count = 0; count < 9; count++) cards.add();
  assert.equal(cards.list.length, 4);
  assert.equal(cards.full, true);
  for (const key of keys(cards)) cards.remove(key);
  assert.equal(cards.list.length, 1);
});

test("a changed strategy keeps common settings, and Python gets only those it has", () => {
  const cards = filled();
  cards.set(1, "seed", "7");
  cards.setStrategy(1, "greedy");
  assert.deepEqual(cards.known[1].values, { seed: "7" });
  assert.equal(cards.summary(cards.list[1]), "seed 7");
  cards.setStrategy(1, "sample");
  assert.deepEqual(cards.known[1].values, { temperature: "0.5", seed: "7" });
});

test("the summary lists what differs from the defaults", () => {
  const cards = filled();
  assert.equal(cards.summary(cards.list[0]), "default settings");
  cards.set(1, "top_p", 1);
  assert.equal(cards.summary(cards.list[1]), "temperature 0.5");
  cards.set(1, "temperature", undefined);
  assert.equal(cards.summary(cards.list[1]), "default settings");
});
