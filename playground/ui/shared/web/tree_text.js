// The texts of a tree's nodes: label, tooltip and accessible name. Every number is a recorded one.

import { grouped, percent, signed, visible } from "./format.js";
import { newestStep } from "./tree_layout.js";

/** @typedef {import("./tree_layout.js").Item} Item */
/** @typedef {import("./tree_layout.js").Node} Node */
/** @typedef {import("./tree_layout.js").TreeRun} TreeRun */

/** @type {Record<string, string>} */
const STATES = {
  origin: "the prompt", kept: "kept", pruned: "pruned", drafted: "drafted, not verified yet", finished: "finished a hypothesis",
  returned: "ends a returned sequence",
};
/** @type {Record<string, string>} */
const VERDICTS = {
  accepted: "drafted and accepted", rejected: "drafted and rejected", resampled: "resampled after a rejection",
  bonus: "bonus token", ignored: "discarded after a rejection",
};
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\uff60\u{1f300}-\u{1faff}]/u;

/** @type {(value: unknown) => value is number} */
export const isNumber = (value) => typeof value === "number";

/**
 * The width of a text in a monospaced font; wide characters count twice.
 * @param {string} text
 */
export const widthOf = (text) => [...text].reduce((sum, character) => sum + (WIDE.test(character) ? 2 : 1), 0);

/**
 * @param {string} text
 * @param {number} width
 */
export function truncate(text, width) {
  if (widthOf(text) <= width) return text;
  let kept = "";
  let used = 1;
  for (const character of text) {
    used += widthOf(character);
    if (used > width) break;
    kept += character;
  }
  return kept + "…";
}

/**
 * The tokens of an item, with visible white space.
 * @param {Item} item
 */
export const tokensOf = (item) => item.nodes.map((node) => visible(newestStep(node).token)).join("");

/** @param {Node} node */
function stateOf(node) {
  const verdict = VERDICTS[newestStep(node).notes.verdict];
  if (node.kind === "returned") return verdict ? `${verdict}; ${STATES.returned}` : STATES.returned;
  if (node.dropped) return "kept, but every continuation was pruned";
  return verdict ?? STATES[node.kind];
}

/** @param {number[]} through */
const ranks = (through) => through.map((rank) => rank + 1).join(", ");

/**
 * The lines of a node's tooltip: name and value.
 * @param {Item} item
 * @param {TreeRun} run
 */
export function tooltipLines(item, run) {
  const node = item.nodes[item.nodes.length - 1];
  const step = newestStep(node);
  const { notes } = step;
  /** @type {[string, string][]} */
  const lines = [["state", stateOf(node)]];
  const add = (/** @type {string} */ name, /** @type {string} */ value) => lines.push([name, value]);
  const rank = step.rank === null ? "" : `, rank ${grouped(step.rank)}`;
  add("model", step.raw === null ? "not captured" : `${percent(step.raw)}${rank}`);
  const processors = step.at === null ? [] : (run.distributions[step.at]?.processors ?? []);
  if (processors.length) add("as used", step.final ? percent(step.final) : "cut");
  for (const [name, value] of beamScores(node, run)) add(name, value);
  if (isNumber(notes.similarity)) {
    add("probability", percent(notes.probability));
    add("similarity", signed(notes.similarity));
    add("score", signed(notes.score));
  }
  if (isNumber(notes.p)) add("model p", percent(notes.p));
  if (isNumber(notes.q)) add("draft q", percent(notes.q));
  if (isNumber(notes.draw)) add("random number", notes.draw.toFixed(3));
  if (isNumber(notes.group)) add("group", String(notes.group + 1));
  if (isNumber(notes.penalty)) add("penalty", signed(notes.penalty));
  if (isNumber(notes.bank)) add("bank", `${notes.bank} constraint tokens`);
  if (Array.isArray(notes.constraints)) add("constraints", notes.constraints.map(([done, of]) => `${done} of ${of}`).join(", "));
  if (notes.forced) add("forced", "considered because it advances a constraint");
  if (node.steps.length > 1) add("texts", String(node.steps.length));
  if (node.through.length) add("returned", `sequence ${ranks(node.through)}`);
  for (const { lead, score } of run.end?.sequences ?? []) {
    if (score !== null && node.steps.some(({ id }) => id === lead)) add("sequence score", score.replace("-", "−"));
  }
  return lines;
}

/**
 * The scores of a beam, with the arithmetic where its numbers were recorded.
 * @param {Node} node
 * @param {TreeRun} run
 * @returns {[string, string][]}
 */
function beamScores(node, run) {
  const { parent, notes } = newestStep(node);
  const { score, total, normalized } = notes;
  if (!isNumber(total)) return [];
  const before = parent === null ? 0 : run.steps.get(parent)?.notes.total;
  const sum = isNumber(score) && isNumber(before) && parent !== null
    ? `${signed(before, 4)} ${score < 0 ? "−" : "+"} ${Math.abs(score).toFixed(4)} = ` : "";
  const length = node.depth + 1;
  const quotient = isNumber(run.lengthPenalty) ? `${signed(total, 4)} / ${length}^${run.lengthPenalty} = ` : "";
  return [
    ...(isNumber(score) ? [/** @type {[string, string]} */ (["step score", signed(score, 4)])] : []),
    ["total", sum + signed(total, 4)],
    ...(isNumber(normalized)
      ? [/** @type {[string, string]} */ (["normalised by length", quotient + signed(normalized, 4)])] : []),
  ];
}

/**
 * The text of the path that ends with a node.
 * @param {Node} node
 */
export function pathText(node) {
  const tokens = [];
  for (let at = node; at.parent; at = at.parent) tokens.push(newestStep(at).token);
  return tokens.reverse().join("");
}

/** @param {Item} item */
export function accessibleName(item) {
  if (item.kind === "origin") return "The prompt, the root of the tree";
  if (item.nodes.length > 1) {
    return `${item.nodes.length} tokens without a branch, ${tokensOf(item)}, collapsed; press Enter to expand`;
  }
  const { token, raw, rank, notes } = newestStep(item.node);
  const model = raw === null ? "not captured" : `model ${percent(raw)}${rank === null ? "" : `, rank ${rank}`}`;
  const total = isNumber(notes.total) ? `, total ${signed(notes.total)}` : "";
  const group = isNumber(notes.group) ? `, group ${notes.group + 1}` : "";
  const on = item.node.through.length ? `, part of returned sequence ${ranks(item.node.through)}` : "";
  return `${visible(token)}, ${stateOf(item.node)}, ${model}${total}${group}${on}`;
}
