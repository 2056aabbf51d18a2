// The beam trees of an HTML report: the page's tree panel on the report's own runs.

import { isTree } from "../ui/shared/web/tree_layout.js";
import { TreePanel } from "../ui/shared/web/tree_panel.js";

/** @typedef {import("../ui/shared/web/tree_layout.js").Step} Step */
/** @typedef {import("../ui/shared/web/tree_layout.js").TreeRun} TreeRun */

/**
 * @typedef {object} RecordedRun
 * @property {string} title
 * @property {Step[]} steps
 * @property {string[][]} processors
 * @property {number} prefix number of tokens before the run's own
 * @property {{ lead: number | null, score: string | null }[]} sequences
 * @property {number | null} lengthPenalty
 */

const element = document.getElementById("beam-trees");
const data = document.getElementById("trees");

if (element && data) {
  /** @type {RecordedRun[]} */
  const recorded = JSON.parse(data.textContent ?? "[]");
  const trees = recorded.map(({ title, steps, processors, prefix, sequences, lengthPenalty }, key) => {
    /** @type {TreeRun} */
    const run = {
      key, lengthPenalty, settings: "", before: Array(prefix).fill(null), end: { sequences },
      steps: new Map(steps.map((step) => [step.id, step])),
      distributions: processors.map((names) => ({ processors: names })),
    };
    const leads = sequences.map((sequence) => sequence.lead);
    const position = { depth: null, step: null, growing: false };
    return { run, title, version: 0, leads, final: true, limit: Infinity, position };
  });
  new TreePanel(element, () => {}).show(trees.filter(({ run }) => isTree(run)));
}
