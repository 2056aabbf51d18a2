// The tree's layout: edges are recorded parents, no step is lost, no edges cross.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as layout from "../../playground/ui/shared/web/tree_layout.js";
import * as text from "../../playground/ui/shared/web/tree_text.js";

const tree = { ...layout, ...text };

// Steps as [parent, token, event, notes]; the index is their id.
function runOf(rows, end = null) {
  const steps = rows.map(([parent, token, event = "chosen", notes = {}], id) => ({
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

// A long and wide search in which beams overtake each other.
function longRun(ticks = 300, width = 10, kept = 5) {
  const rows = [];
  let beams = [null];
  for (let tick = 0; tick < ticks; tick++) {
    const next = [];
    for (let place = 0; place < width; place++) {
      if (place < kept) next.push(rows.length);
      rows.push([beams[(place * 7 + tick) % beams.length], rows.length, place < kept ? "chosen" : "pruned"]);
    }
    beams = next;
  }
  return runOf(rows);
}

test("a run is a tree if two steps share a parent or several sequences were returned", () => {
  assert.equal(tree.isTree(runOf([[null, 1], [0, 2]])), false);
  assert.equal(tree.isTree(runOf([[null, 1], [0, 2], [0, 3, "pruned"]])), true);
  assert.equal(tree.isTree(runOf([[null, 1], [null, 2]])), true);
  assert.equal(tree.isTree(runOf([[null, 1]], { sequences: [{ lead: 0 }, { lead: 0 }] })), true);
});

test("every edge is a recorded parent and every step has a node", () => {
  const run = runOf(BEAMS);
  const layout = tree.layOut(run, { leads: [7], collapsing: false });
  const items = byKey(layout);
  for (const step of run.steps.values()) {
    assert.equal(items.get(String(step.id)).parent.key, String(step.parent ?? "root"));
  }
  assert.deepEqual(layout.counts, { kept: 4, pruned: 4, drafted: 0, finished: 1, returned: 1 });
});

test("the best returned sequence runs straight along the top", () => {
  const layout = tree.layOut(runOf(BEAMS), { leads: [7, 8] });
  const items = byKey(layout);
  assert.deepEqual([1, 4, 7].map((key) => items.get(String(key)).row), [0, 0, 0]);
  assert.equal(new Set([0, 3, 8].map((key) => items.get(String(key)).row)).size, 1);
});

test("no two nodes overlap and no two edges cross", () => {
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

test("a tree of 3000 nodes has no more rows than its widest step needs", () => {
  const layout = tree.layOut(longRun(), { leads: [] });
  assert.equal(layout.items.length, 3001);
  assert.ok(layout.rows <= 12, `${layout.rows} rows`);
});

test("samples with a common prefix share nodes with counts", () => {
  const run = runOf([[null, 1], [0, 2], [null, 1], [2, 2], [null, 1], [4, 3]]);
  const { root, nodes } = tree.mergeSteps(run.steps.values());
  assert.equal(root.children.length, 1);
  assert.deepEqual(nodes.map((node) => [node.tokenId, tree.countOf(node)]), [[1, 3], [2, 2], [3, 1]]);
});

test("shared steps are counted by the sequences that pass through them", () => {
  const trie = tree.mergeSteps(runOf([[null, 1], [0, 2], [0, 3]]).steps.values());
  tree.markSequences(trie, [1, 2, 2]);
  assert.deepEqual(trie.nodes.map(tree.countOf), [3, 1, 2]);
});

test("beam groups with the same tokens stay separate", () => {
  const run = runOf([[null, 1, "chosen", { group: 0 }], [null, 1, "chosen", { group: 1 }]]);
  assert.equal(tree.mergeSteps(run.steps.values()).nodes.length, 2);
});

test("a path without branches is one item until it is expanded", () => {
  const run = runOf([[null, 1], [0, 2], [1, 3], [2, 4], [2, 5, "pruned"], [3, 6, "returned"]]);
  const folded = tree.layOut(run, { leads: [5] });
  const [chip] = folded.items.filter((item) => item.nodes.length > 1);
  assert.equal(chip, undefined, "two nodes in a row are not collapsed");
  const long = runOf([[null, 1], [null, 9], [0, 2], [2, 3], [3, 4], [4, 5, "returned"]]);
  const items = byKey(tree.layOut(long, { leads: [5] }));
  assert.deepEqual(items.get("0").nodes.map((node) => node.key), [0, 2, 3, 4]);
  assert.deepEqual([items.get("0").depth, items.get("0").last], [0, 3]);
  assert.equal(items.get("5").parent, items.get("0"));
  assert.equal(tree.layOut(long, { leads: [5], expanded: new Set(["0"]) }).items.length, 7);
});

test("hiding pruned candidates also hides dropped beams", () => {
  const rows = [...BEAMS, [null, 11], [10, 12], [11, 13, "pruned"]];
  const layout = tree.layOut(runOf(rows), { leads: [7], pruned: false, collapsing: false });
  assert.deepEqual(layout.items.map((item) => item.key).sort(), ["0", "1", "3", "4", "7", "8", "root"]);
});

test("steps after the cursor are left out", () => {
  const layout = tree.layOut(runOf(BEAMS), { leads: [], limit: 0 });
  assert.deepEqual(layout.items.map((item) => item.depth).sort(), [-1, 0, 0, 0]);
});

test("the leading text does not move the rows while beams overtake each other", () => {
  const rows = (lead) => tree.layOut(runOf(BEAMS.slice(0, 7)), { leads: [lead], final: false }).items.map((item) => [item.key, item.row]);
  assert.deepEqual(rows(3), rows(4));
});

test("all trees share one scale, and depths inside of collapsed paths are narrow", () => {
  const long = runOf([[null, 1], [null, 9], [0, 2], [2, 3], [3, 4], [4, 5, "returned"]]);
  const places = tree.depthPositions([tree.layOut(long, { leads: [5] })]);
  const widths = places.slice(1).map((place, at) => place - places[at]);
  assert.ok(widths[1] > widths[2] && widths[2] === widths[4]);
  const both = tree.depthPositions([tree.layOut(long, { leads: [5] }), tree.layOut(runOf(BEAMS), { leads: [7] })]);
  assert.ok(both[3] > places[3]);
});

test("a discarded draft counts as pruned, one that waits for verification does not", () => {
  const run = runOf([[null, 1, "accepted"], [0, 2, "rejected"], [1, 3, "drafted", { verdict: "ignored" }], [0, 4, "drafted"]]);
  const kinds = tree.mergeSteps(run.steps.values()).nodes.map((node) => node.kind);
  assert.deepEqual(kinds, ["kept", "pruned", "pruned", "drafted"]);
});

test("a node's tooltip shows its scores and its state", () => {
  const notes = { score: -0.5, total: -1.25, normalized: -0.625, group: 1, penalty: 0.2, bank: 2, forced: true };
  const run = runOf([[null, 1], [0, 2, "returned", notes]]);
  const [, , item] = tree.layOut(run, { leads: [1] }).items;
  const lines = Object.fromEntries(tree.tooltipLines(item, run));
  assert.equal(lines.total, "−1.2500");
  assert.equal(lines["normalised by length"], "−0.6250");
  assert.equal(lines.group, "2");
  assert.equal(lines.returned, "sequence 1");
  assert.equal(tree.accessibleName(item), "␣w2, ends a returned sequence, model 50.0 %, rank 1, total −1.250, group 2, part of returned sequence 1");
  assert.equal(tree.pathText(item.node), " w1 w2");
});

test("labels are truncated to their width, wide characters count twice", () => {
  assert.equal(tree.truncate("because", 7), "because");
  assert.equal(tree.truncate("because", 5), "beca…");
  assert.equal(tree.truncate("日本語日本語", 7), "日本語…");
});

test("the tooltip shows how beam scores add up", () => {
  const run = runOf([[null, 1, "chosen", { score: -0.5, total: -0.5 }], [0, 2, "returned", { score: -0.1, total: -0.6, normalized: -0.15 }]],
    { sequences: [{ lead: 1, score: "-0.1500" }] });
  run.lengthPenalty = 2;
  const [, , item] = tree.layOut(run, { leads: [1] }).items;
  const lines = Object.fromEntries(tree.tooltipLines(item, run));
  assert.equal(lines.total, "−0.5000 − 0.1000 = −0.6000");
  assert.equal(lines["normalised by length"], "−0.6000 / 2^2 = −0.1500");
  assert.equal(lines["sequence score"], "−0.1500");
});

test("a node that was not captured says so", () => {
  const run = runOf([[null, 1], [null, 2]]);
  Object.assign(run.steps.get(1), { raw: null, rank: null, final: null, at: null });
  const item = tree.layOut(run, { leads: [] }).items.find(({ key }) => key === "1");
  assert.deepEqual(Object.fromEntries(tree.tooltipLines(item, run)).model, "not captured");
  assert.match(tree.accessibleName(item), /not captured/);
});
