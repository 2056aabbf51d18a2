// Sends a column to another page, and returns to it.

import { store } from "./store.js";
import { showTab } from "./tabs.js";

/** @typedef {import("./store.js").Run} Run */

/**
 * The pages that take a column: their names, the labels of their buttons, and what these do.
 * @type {{ page: string, label: string, about: string }[]}
 */
export const RECEIVERS = [
  { page: "watermark", label: "Detect", about: "Detect a watermark in" },
  { page: "speculative", label: "Race", about: "Race drafters on the prompt of" },
];

/** @type {Map<string, Run>} the column that each page was opened with */
const sent = new Map();

/**
 * Opens a page with a column.
 * @param {Run} run
 * @param {string} page
 */
export function openWith(run, page) {
  sent.set(page, run);
  const tab = showTab(page);
  tab?.focus({ preventScroll: true }); // the button that was pressed is hidden now
  scrollTo({ top: 0 });
}

// An event listener in Python calls this function.

/**
 * Shows the column that a page was opened with.
 * @param {string} page
 */
export function backFrom(page) {
  showTab("compare");
  const run = sent.get(page);
  if (run && store.runs.get(run.key) === run) store.notify({ kind: "show", run, page });
  return [];
}
