// The result of a watermark detection: the verdict, the coloured tokens, the counts. All texts and
// numbers come from Python.

import { make, part } from "../../shared/web/dom.js";
import { counted } from "../../shared/web/format.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */

/**
 * @typedef {object} Detection
 * @property {string} verdict
 * @property {string} reason
 * @property {string} name
 * @property {string[]} notes
 * @property {{ ways: string[], rows: string[][], used: number }} counts `used` is the column that decides
 * @property {string[][]} layers
 * @property {[text: string, kind: string, about: string][]} tokens
 * @property {number} more tokens that are not shown
 * @property {[start: number, end: number] | null} best the watermarked passage
 * @property {boolean} layered
 */

const KINDS = {
  green: ["on the green list", "not on the green list", "not scored"],
  layered: ["g-values above chance", "not above chance", "not scored"],
};

/** @param {Detection} detection */
function legend({ layered, best }) {
  const line = make("p", "legend");
  const texts = KINDS[layered ? "layered" : "green"];
  ["green", "red", "unscored"].forEach((kind, at) => line.append(make("span", `sample ${kind}`, texts[at])));
  if (best) line.append(make("span", "sample passage", "watermarked passage"));
  return line;
}

/** @param {Detection} detection */
function tokenText({ tokens, more, best }) {
  const text = make("div", "text");
  text.tabIndex = 0; // it may scroll
  text.setAttribute("role", "group");
  text.setAttribute("aria-label", "The text, token by token");
  tokens.forEach(([content, kind, about], at) => {
    const inside = best && at >= best[0] && at < best[1];
    const token = make("span", `tok ${kind}${inside ? " passage" : ""}`, content);
    token.title = about;
    text.append(token);
  });
  if (more) text.append(make("span", "more", ` … and ${counted(more, "token")} more, which are scored too`));
  return text;
}

/**
 * A table whose first row and first column are headers.
 * @param {string} name
 * @param {string[][]} rows
 * @param {number | null} used the column to highlight
 */
function table(name, [head, ...rows], used = null) {
  const node = make("table");
  node.append(make("caption", "", name));
  const top = node.createTHead().insertRow();
  head.forEach((text, at) => {
    const cell = make("th", at === used ? "used" : "", text);
    cell.scope = "col";
    top.append(cell);
  });
  const body = node.createTBody();
  for (const [first, ...rest] of rows) {
    const row = body.insertRow();
    const cell = make("th", "", first);
    cell.scope = "row";
    row.append(cell, ...rest.map((text, at) => make("td", at + 1 === used ? "used" : "", text)));
  }
  const frame = make("div", "frame");
  frame.tabIndex = 0; // it scrolls on a narrow screen
  frame.setAttribute("role", "group");
  frame.setAttribute("aria-label", name);
  frame.append(node);
  return frame;
}

/** @param {Detection} detection */
function tables({ counts, layers, notes }) {
  const node = make("div", "tables");
  node.append(table("Counts", [["", ...counts.ways], ...counts.rows], counts.used + 1));
  if (layers.length) node.append(table("Scores of the g-values", layers));
  const list = make("ul", "notes");
  list.append(...notes.map((note) => make("li", "", note)));
  node.append(list);
  return node;
}

/** @param {Component} component */
export function mount({ element, props, watch }) {
  const [verdict, found] = ["verdict", "found"].map((name) => part(element, name));

  function show() {
    const view = props.value ? JSON.parse(props.value) : { empty: "" };
    const message = view.error ?? view.empty;
    const state = view.error === undefined ? (view.verdict ?? "empty") : "error";
    element.dataset.state = state;
    verdict.className = `verdict ${state.replaceAll(" ", "-")}`;
    if (message !== undefined) {
      verdict.textContent = message;
      if (view.error === undefined) found.replaceChildren(); // an error keeps the last result
      found.classList.toggle("old", view.error !== undefined);
      return;
    }
    const reason = view.reason.replace(view.verdict, "").replace(/^[:;,\s]+/, "");
    verdict.replaceChildren(make("b", "", view.verdict), make("span", "", reason));
    found.classList.remove("old");
    found.replaceChildren(make("p", "name", view.name), legend(view), tokenText(view), tables(view));
  }

  watch("value", show);
  show();
}
