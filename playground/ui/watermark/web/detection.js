// The result of a watermark detection: the verdict, the coloured tokens, the counts. All texts and
// numbers come from Python.

import { make, part } from "../../shared/web/dom.js";
import { counted } from "../../shared/web/format.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */

/**
 * @typedef {object} Detection
 * @property {string} verdict
 * @property {string} about the key and the scheme it refers to
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

const WAIT = 100; // ms after which a detection is announced; most are faster
const FAILED = "The detection failed. Change a setting to try again.";

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

class DetectionView {
  /** @param {Component} component */
  constructor({ element, props, watch }) {
    this.element = element;
    this.props = props;
    this.verdict = part(element, "verdict");
    this.working = part(element, "working");
    this.found = part(element, "found");
    this.timer = 0;
    watch("value", () => this.show());
    this.show();
  }

  /** A detection has started: says that what is shown is out of date, unless the result arrives at once. */
  start() {
    this.timer ||= setTimeout(() => this.#mark(true), WAIT);
  }

  #end() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.#mark(false);
  }

  /** @param {boolean} working */
  #mark(working) {
    part(this.element, "detected").setAttribute("aria-busy", String(working));
    this.working.textContent = working ? "Detecting …" : "";
  }

  fail() {
    this.#end();
    this.#say({ error: FAILED });
  }

  show() {
    this.#end();
    const view = this.props.value ? JSON.parse(this.props.value) : { empty: "" };
    if (view.verdict === undefined) this.#say(view);
    else this.#showDetection(view);
  }

  /**
   * Shows a message instead of a verdict. An error keeps the last result.
   * @param {{ error?: string, empty?: string }} message
   */
  #say({ error, empty }) {
    this.#setState(error === undefined ? "empty" : "error");
    this.verdict.textContent = error ?? empty ?? "";
    if (error === undefined) this.found.replaceChildren();
    this.found.classList.toggle("old", error !== undefined);
  }

  /** @param {Detection} view */
  #showDetection(view) {
    this.#setState(view.verdict);
    const reason = view.reason.replace(view.verdict, "").replace(/^[:;,\s]+/, "");
    this.verdict.replaceChildren(
      make("b", "", view.verdict), " ", make("span", "about", view.about), " ", make("span", "reason", reason),
    );
    this.found.classList.remove("old");
    this.found.replaceChildren(make("p", "name", view.name), legend(view), tokenText(view), tables(view));
  }

  /** @param {string} state */
  #setState(state) {
    this.element.dataset.state = state;
    this.verdict.className = `verdict ${state.replaceAll(" ", "-")}`;
  }
}

/** @type {DetectionView | null} */
let view = null;

/** @param {Component} component */
export function mount(component) {
  view = new DetectionView(component);
}

// Event listeners in Python call the functions below.

/**
 * A detection with these inputs starts.
 * @param {unknown[]} inputs
 */
export function started(...inputs) {
  view?.start();
  return inputs;
}

export function failed() {
  view?.fail();
  return [];
}
