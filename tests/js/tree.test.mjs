// The tree's layout: edges are the recorded parents, nothing is lost, no edges cross.
// Run by `node --test tests/js`. Scripts of the page are function bodies, so that is how they are loaded.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

const source = ["writing.js", "tree_layout.js", "tree_words.js"]
  .map((name) => readFileSync(new URL(`../../playground/ui/web/${name}`, import.meta.url), "utf8"))
  .join("\n");
const names = "merge, mark, countOf, layOut, branched, depthPlaces, spokenName, cardLines, shortened, pathText";
const tree = new Function(`${source}\nreturn { ${names} };`)();

// Steps as [parent, token, event, notes]; their place in the list is their number.
function runOf(told, end = null) {
  const steps = told.map(([parent, token, event = "chosen", notes = {}], id) => ({
    id, parent, tick: 0, tokenId: token, token: ` w${token}`, text: ` w${token}`, event, raw: 0.5, final: 0.5, rank: 1, at: 0, notes,
  }));
  return { key: 0, steps: new Map(steps.map((step) => [step.id, step])), end, before: [], distributions: [] };
}

const byKey = (layout) => new Map(layout.items.map((item) => [item.key, item]));
const BEAMS = [
  [null, 1], [null, 2], [null, 3, "pruned"],
  [0, 4], [1, 5], [0, 6, "pruned"], [1, 7, "pruned"],
  [4, 8, "returned"], [3, 9, "finished"], [4, 10, "pruned"],
];

// A search as long and as wide as the page must bear, with beams that overtake each other.
function longRun(ticks = 300, width = 10, kept = 5) {
  const told = [];
  let beams = [null];
  for (let tick = 0; tick < ticks; tick++) {
    const next = [];
    for (let place = 0; place < width; place++) {
      if (place < kept) next.push(told.length);
      told.push([beams[(place * 7 + tick) % beams.length], told.length, place < kept ? "chosen" : "pruned"]);
    }
    beams = next;
  }
  return runOf(told);
}

test("a run is a tree where two steps share a parent, or where several sequences came back", () => {
  assert.equal(tree.branched(runOf([[null, 1], [0, 2]])), false);
  assert.equal(tree.branched(runOf([[null, 1], [0, 2], [0, 3, "pruned"]])), true);
  assert.equal(tree.branched(runOf([[null, 1], [null, 2]])), true);
  assert.equal(tree.branched(runOf([[null, 1]], { sequences: [{ lead: 0 }, { lead: 0 }] })), true);
});

test("every edge is a recorded parent, and every step has its node", () => {
  const run = runOf(BEAMS);
  const layout = tree.layOut(run, { leads: [7], folding: false });
  const items = byKey(layout);
  for (const step of run.steps.values()) {
    assert.equal(items.get(step.id).parent.key, step.parent ?? "root");
  }
  assert.deepEqual(layout.counts, { kept: 4, pruned: 4, drafted: 0, finished: 1, returned: 1 });
});

test("the best returned sequence runs straight along the top", () => {
  const layout = tree.layOut(runOf(BEAMS), { leads: [7, 8] });
  const items = byKey(layout);
  assert.deepEqual([1, 4, 7].map((key) => items.get(key).row), [0, 0, 0]);
  assert.equal(new Set([0, 3, 8].map((key) => items.get(key).row)).size, 1);
});

test("no two nodes stand on one place, and no two edges cross", () => {
  const layout = tree.layOut(longRun(), { leads: [] });
  const taken = new Set();
  for (const item of layout.items) {
    for (let depth = item.depth; depth <= item.last; depth++) {
      assert.ok(!taken.has(`${depth}/${item.row}`));
      taken.add(`${depth}/${item.row}`);
    }
    assert.ok(!item.parent || item.row >= item.parent.row);
  }
  const depths = new Map();
  for (const item of layout.items) depths.set(item.depth, [...(depths.get(item.depth) ?? []), item]);
  for (const items of depths.values()) {
    const parents = items.sort((one, other) => one.row - other.row).map((item) => item.parent?.row ?? 0);
    assert.deepEqual(parents, [...parents].sort((one, other) => one - other));
  }
});

test("a tree of three thousand nodes stays as low as its busiest step", () => {
  const layout = tree.layOut(longRun(), { leads: [] });
  assert.equal(layout.items.length, 3001);
  assert.ok(layout.rows <= 12, `${layout.rows} rows`);
});

test("rows of samples with the same beginning are one trie with counts", () => {
  const run = runOf([[null, 1], [0, 2], [null, 1], [2, 2], [null, 1], [4, 3]]);
  const { root, nodes } = tree.merge(run.steps.values());
  assert.equal(root.children.length, 1);
  assert.deepEqual(nodes.map((node) => [node.tokenId, tree.countOf(node)]), [[1, 3], [2, 2], [3, 1]]);
});

test("steps that the trace already shares are counted by the sequences through them", () => {
  const trie = tree.merge(runOf([[null, 1], [0, 2], [0, 3]]).steps.values());
  tree.mark(trie, [1, 2, 2]);
  assert.deepEqual(trie.nodes.map(tree.countOf), [3, 1, 2]);
});

test("groups of beams that write the same keep apart", () => {
  const run = runOf([[null, 1, "chosen", { group: 0 }], [null, 1, "chosen", { group: 1 }]]);
  assert.equal(tree.merge(run.steps.values()).nodes.length, 2);
});

test("a path without a branch is one node until it is opened", () => {
  const run = runOf([[null, 1], [0, 2], [1, 3], [2, 4], [2, 5, "pruned"], [3, 6, "returned"]]);
  const folded = tree.layOut(run, { leads: [5] });
  const [chip] = folded.items.filter((item) => item.nodes.length > 1);
  assert.equal(chip, undefined, "two nodes in a row are not worth it");
  const long = runOf([[null, 1], [null, 9], [0, 2], [2, 3], [3, 4], [4, 5, "returned"]]);
  const items = byKey(tree.layOut(long, { leads: [5] }));
  assert.deepEqual(items.get(0).nodes.map((node) => node.key), [0, 2, 3, 4]);
  assert.deepEqual([items.get(0).depth, items.get(0).last], [0, 3]);
  assert.equal(items.get(5).parent, items.get(0));
  assert.equal(tree.layOut(long, { leads: [5], opened: new Set([0]) }).items.length, 7);
});

test("without the pruned, only what lived on is left", () => {
  const told = [...BEAMS, [null, 11], [10, 12], [11, 13, "pruned"]];
  const layout = tree.layOut(runOf(told), { leads: [7], pruned: false, folding: false });
  assert.deepEqual(layout.items.map((item) => item.key).sort(), [0, 1, 3, 4, 7, 8, "root"]);
});

test("what came later than the cursor is not there", () => {
  const layout = tree.layOut(runOf(BEAMS), { leads: [], limit: 0 });
  assert.deepEqual(layout.items.map((item) => item.depth).sort(), [-1, 0, 0, 0]);
});

test("while beams overtake each other, a leading text does not move the rows", () => {
  const rows = (lead) => tree.layOut(runOf(BEAMS.slice(0, 7)), { leads: [lead], settled: false }).items.map((item) => [item.key, item.row]);
  assert.deepEqual(rows(3), rows(4));
});

test("all trees have one scale, and depths inside of folded paths are narrow", () => {
  const long = runOf([[null, 1], [null, 9], [0, 2], [2, 3], [3, 4], [4, 5, "returned"]]);
  const places = tree.depthPlaces([tree.layOut(long, { leads: [5] })]);
  const widths = places.slice(1).map((place, at) => place - places[at]);
  assert.ok(widths[1] > widths[2] && widths[2] === widths[4]);
  const both = tree.depthPlaces([tree.layOut(long, { leads: [5] }), tree.layOut(runOf(BEAMS), { leads: [7] })]);
  assert.ok(both[3] > places[3]);
});

test("a draft that nobody judged counts as lost, one that waits does not", () => {
  const run = runOf([[null, 1, "accepted"], [0, 2, "rejected"], [1, 3, "drafted", { verdict: "ignored" }], [0, 4, "drafted"]]);
  const kinds = tree.merge(run.steps.values()).nodes.map((node) => node.kind);
  assert.deepEqual(kinds, ["kept", "pruned", "pruned", "drafted"]);
});

test("a node says its scores and its state in words", () => {
  const notes = { score: -0.5, total: -1.25, normalized: -0.625, group: 1, penalty: 0.2, bank: 2, forced: true };
  const run = runOf([[null, 1], [0, 2, "returned", notes]]);
  const [, , item] = tree.layOut(run, { leads: [1] }).items;
  const lines = Object.fromEntries(tree.cardLines(item, run));
  assert.equal(lines.total, "−1.2500");
  assert.equal(lines["for its length"], "−0.6250");
  assert.equal(lines.group, "2");
  assert.equal(lines.returned, "sequence 1");
  assert.equal(tree.spokenName(item, run), "␣w2, ends a returned sequence, model 50.0 %, rank 1, total −1.250, group 2, on the way to returned sequence 1");
  assert.equal(tree.pathText(item.node), " w1 w2");
});

test("labels are cut to their room, wide characters counted twice", () => {
  assert.equal(tree.shortened("because", 7), "because");
  assert.equal(tree.shortened("because", 5), "beca…");
  assert.equal(tree.shortened("日本語日本語", 7), "日本語…");
});
