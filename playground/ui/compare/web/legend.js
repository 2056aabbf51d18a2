// The legend above the columns: which measure the tint and the line of a token show, and what each mark
// means.

import { make } from "../../shared/web/dom.js";
import { placeOf, store } from "./store.js";
import { MEASURES, legendOf, measureOf } from "./token_marks.js";

/** @typedef {"background" | "underline"} Channel */

/** @type {[Channel, string][]} */
const CHANNELS = [["background", "Background"], ["underline", "Underline"]];

/**
 * Whether any token of the runs has a value of a measure.
 * @param {string} name
 */
function known(name) {
  const { value } = measureOf(name);
  for (const run of store.runs.values()) {
    if (run.before.some((place) => value(place) !== null)) return true;
    for (const step of run.steps.values()) if (value(placeOf(run, step)) !== null) return true;
  }
  return false;
}

/**
 * @template {HTMLElement} Node
 * @param {Node} node
 * @param {string | null} tint
 */
function tinted(node, tint) {
  if (tint) node.style.setProperty("--tint", tint);
  return node;
}

/**
 * @param {string} name
 * @param {Channel} channel
 * @param {boolean} missing
 */
function meaning(name, channel, missing) {
  const { about, ends, stops, samples } = legendOf(name, channel);
  const parts = [make("span", "about", about)];
  if (stops && ends) {
    const ramp = make("span", "ramp");
    ramp.setAttribute("role", "img");
    ramp.setAttribute("aria-label", `colour scale from ${ends[0]} to ${ends[1]}`);
    ramp.append(...stops.map((stop) => tinted(make("i"), stop)));
    parts.push(make("span", "ends", ends[0]), ramp, make("span", "ends", ends[1]));
  }
  for (const { tint, line, text } of samples ?? []) {
    const sample = make("span", "sample", text);
    if (channel === "background") tinted(sample, tint);
    else sample.dataset.line = line;
    parts.push(sample);
  }
  if (missing) parts.push(make("span", "lacking", measureOf(name).missing));
  return parts;
}

export class Legend {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.channels = CHANNELS.map(([channel, title]) => {
      const row = make("div", "channel");
      const label = make("label", "", title);
      const select = make("select");
      select.id = `live-${channel}`;
      label.htmlFor = select.id;
      for (const [key, { name }] of Object.entries(MEASURES)) select.append(new Option(name, key));
      select.addEventListener("change", () => store.setMarks({ [channel]: select.value }));
      const text = make("span", "meaning");
      row.append(label, select, text);
      root.append(row);
      return { channel, select, text, drawn: "" };
    });
    const row = make("div", "channel extras");
    this.missed = make("span", "missed");
    this.missed.append(make("span", "unseen", "dotted box"), " not captured");
    row.append(this.missed);
    root.append(row);
    this.refresh(false);
  }

  /** @param {boolean} uncaptured whether a token is shown whose probability was not captured */
  refresh(uncaptured) {
    this.root.hidden = !store.runs.size;
    for (const each of this.channels) {
      const chosen = store.marks[each.channel];
      const name = measureOf(chosen) === MEASURES.none ? "none" : chosen;
      const missing = name !== "none" && store.runs.size > 0 && store.length > 0 && !known(name);
      const now = `${name} ${missing}`;
      if (now === each.drawn) continue;
      each.drawn = now;
      each.select.value = name;
      each.text.replaceChildren(...meaning(name, each.channel, missing));
      each.select.title = each.text.querySelector(".about")?.textContent ?? "";
    }
    this.missed.hidden = !uncaptured;
  }
}
