// The model's own generation config, and one table per strategy card with the fields its run changes.

import { make, part } from "../../shared/web/dom.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */
/** @typedef {{ field: string, own: string, run: string, same: boolean }} Field */
/** @typedef {{ name: string, rows: Field[], note?: string, error?: string }} Card */

/**
 * @param {"td" | "th"} tag
 * @param {string[]} texts
 */
function row(tag, [field, ...values]) {
  const line = make("tr");
  line.append(make("th", "", field), ...values.map((value) => make(tag, "", value)));
  return line;
}

/** @param {Field[]} fields */
function table(fields) {
  const [grid, head, body] = [make("table"), make("thead"), make("tbody")];
  head.append(row("th", ["field", "model's own", "this run"]));
  for (const { field, own, run, same } of fields) {
    const line = row("td", [field, own, run]);
    line.classList.toggle("same", same);
    body.append(line);
  }
  grid.append(head, body);
  return grid;
}

/**
 * @param {Card} card
 * @param {number} place
 */
function section({ name, rows, note, error }, place) {
  const node = make("section");
  node.append(make("h4", "", `${place + 1}. ${name}`));
  if (error) {
    node.append(make("p", "refused", error));
  } else if (rows.length) {
    const scroll = make("div", "scroll");
    scroll.append(table(rows));
    node.append(scroll);
  } else {
    node.append(make("p", "", "No changes."));
  }
  if (note) node.append(make("p", "note", note));
  return node;
}

/** @param {Component} component */
export function mount({ element, props, watch }) {
  function show() {
    if (!props.value) return;
    const { model, own, cards, error } = JSON.parse(props.value);
    const text = make("pre", "", own);
    text.tabIndex = 0; // it may scroll
    part(element, "own").replaceChildren(make("h4", "", `${model}: its own config`), text);
    part(element, "runs").replaceChildren(...(error ? [make("p", "refused", error)] : cards.map(section)));
  }
  watch("value", show);
  show();
}
