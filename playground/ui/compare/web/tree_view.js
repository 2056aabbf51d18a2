// The Tree view: the runs that branched, growing while they are in progress.

import { drawWhenVisible, make } from "../../shared/web/dom.js";
import { store } from "./store.js";
import { isTree, newestStep } from "../../shared/web/tree_layout.js";
import { TreePanel } from "../../shared/web/tree_panel.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */
/** @typedef {import("./store.js").Run} Run */
/** @typedef {import("../../shared/web/tree_panel.js").Tree} Tree */

const EMPTY = [
  "No tree here yet.",
  "Beam search, beam sampling, diverse and constrained beam search draw every hypothesis they keep and every one they prune.",
  "Contrastive search shows its candidates, speculative strategies their rejected drafts, and sampling a tree if num_return_sequences is above 1.",
];

/**
 * The selected step: the one that was clicked, else the one in the column's text.
 * @param {Run} run
 */
function selectedStep(run) {
  const { column, step } = store.cursor;
  if (column === run.key && step !== null && run.steps.has(step)) return step;
  const place = store.selected(run);
  return place?.run === run ? place.step : null;
}

/**
 * @param {Run} run
 * @param {number} version
 * @returns {Tree}
 */
function treeOf(run, version) {
  const { at, replay } = store.cursor;
  const depth = at === null ? null : at - run.before.length;
  const lead = replay && depth !== null ? run.leads[depth] : run.lead;
  const returned = !replay && run.end?.sequences.length ? run.end.sequences.map((sequence) => sequence.lead) : null;
  return {
    run, version, title: store.title(run),
    leads: returned ?? [lead ?? null],
    final: replay || run.end !== null,
    limit: replay && depth !== null ? depth : Infinity,
    position: { depth, step: selectedStep(run), growing: run.end === null && !replay },
  };
}

/** @param {Component} component */
export function mount({ element }) {
  /** @type {WeakMap<Run, number>} */
  const versions = new WeakMap();
  const panel = new TreePanel(element, (run, item) => {
    const step = newestStep(item.node).id;
    store.select(run.before.length + item.depth, { column: run.key, step });
  });

  function show() {
    const trees = store.columns.filter(isTree).map((run) => treeOf(run, versions.get(run) ?? 0));
    if (trees.length) return panel.show(trees);
    const empty = make("div", "empty");
    empty.append(...EMPTY.map((text) => make("p", "", text)));
    panel.showEmpty(empty);
  }

  const request = drawWhenVisible(element, show);
  store.subscribe((change) => {
    if (change.kind === "reset") panel.clear();
    if (change.kind === "steps") versions.set(change.run, (versions.get(change.run) ?? 0) + 1);
    if (["reset", "column", "steps", "cursor"].includes(change.kind)) request();
  });
  show();
}
